"""Turns what pydantic says of the settings into one line that names the key, its place, and the nearest key."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from workers.errors import OperatorError


class SettingsError(OperatorError):
    """The settings can't be used as they are."""


def describe(
    error: ValidationError, root: type[BaseModel], content: Mapping[str, Any], file: Path | None, env_prefix: str
) -> SettingsError:
    """Return the first problem as a `SettingsError`; `content` is what the file held, to tell whose key it is."""
    problems = error.errors(include_url=False, include_input=False)
    first = problems[0]
    path, model = _walk(first["loc"], root)
    # A missing key is nowhere: then it is the file's if the section around it is.
    in_file = file is not None and _holds(content, path[:-1] if first["type"] == "missing" else path)
    where = f"{file}: {'.'.join(path)}" if in_file else _variable(path, env_prefix)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    if first["type"] == "extra_forbidden":
        return SettingsError(f"{where} is not a known key{more}", _nearest(path, model, in_file, env_prefix))
    return SettingsError(f"{where}: {_plain(first['msg'])}{more}", "see deploy/relight.example.yaml")


def unknown_variable(variable: str, root: type[BaseModel], env_prefix: str) -> SettingsError:
    """Return the error for an environment variable whose first word names no setting."""
    path = tuple(variable.removeprefix(env_prefix).lower().split("__"))
    return SettingsError(f"{variable} is not a known variable", _nearest(path[:1], root, False, env_prefix))


def _walk(loc: tuple[int | str, ...], root: type[BaseModel]) -> tuple[tuple[str, ...], type[BaseModel]]:
    """Follow an error's location through the models: return the path as written in the file, without the tags that
    pydantic adds for unions, and the model that the last part belongs to."""
    path: list[str] = []
    model: type[BaseModel] = root
    candidates: list[type[BaseModel]] = [root]
    for part in loc:
        if len(candidates) > 1 and (tagged := [each for each in candidates if _has_tag(each, part)]):
            candidates = tagged
            continue
        path.append(str(part))
        if isinstance(part, int):
            continue
        model = candidates[0] if candidates else model
        field = model.model_fields.get(part)
        candidates = _models_in(field.annotation) if field else []
    return tuple(path), model


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for argument in get_args(annotation) for model in _models_in(argument)]


def _has_tag(model: type[BaseModel], part: int | str) -> bool:
    kind = model.model_fields.get("kind")
    return kind is not None and part in get_args(kind.annotation)


def _holds(content: Any, path: tuple[str, ...]) -> bool:
    for part in path:
        if isinstance(content, Mapping) and part in content:
            content = content[part]
        elif isinstance(content, list) and part.isdigit() and int(part) < len(content):
            content = content[int(part)]
        else:
            return False
    return True


def _nearest(path: tuple[str, ...], model: type[BaseModel], in_file: bool, env_prefix: str) -> str:
    known = list(model.model_fields)
    near = difflib.get_close_matches(path[-1].lower(), known, n=1, cutoff=0.5)
    if not near:
        return f"the keys there are {', '.join(known)}"
    meant = (*path[:-1], near[0])
    return f"did you mean {'.'.join(meant) if in_file else _variable(meant, env_prefix)}?"


def _variable(path: tuple[str, ...], env_prefix: str) -> str:
    """The variable that set `path`: a list is set whole, so its name ends before the first index."""
    whole = next((path[:index] for index, part in enumerate(path) if part.isdigit()), path)
    inside = f" ({'.'.join(path)})" if len(whole) < len(path) else ""
    return f"{env_prefix}{'__'.join(whole).upper()}{inside}"


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ")
