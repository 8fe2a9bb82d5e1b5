"""Reads the settings file: YAML, with a key given twice taken for the mistake that it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from workers.settings_errors import SettingsError


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML's own rule: the keys of a mapping are unique. PyYAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key_node.value} is there twice", key_node.start_mark
                )
            seen.add(str(key_node.value))
        return super().construct_mapping(node, deep)


def read_settings_file(file: Path) -> dict[str, Any]:
    """Return the file's content, empty for an empty file. Raises `SettingsError` when it can't be read as a mapping."""
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise SettingsError(f"{file} can't be read: {error.strerror}", "name another file with --config") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file} is not UTF-8 text", "save it as UTF-8") from error
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise SettingsError(f"{file}{where}: {error.problem}", "mend the YAML at that line") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{file} is not YAML: {error}", "save it as plain YAML text") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(
            f"{file} holds a {type(content).__name__}, not keys with values", "write `key: value` lines"
        )
    return {str(key): value for key, value in content.items()}
