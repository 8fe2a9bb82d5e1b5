"""The catalogue with a site's own entries: from files to what the worker and the commands match lines with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recovery.signatures.catalogue import PACKAGED, Catalogue, CatalogueError, load_catalogue, packaged_catalogue
from workers.errors import OperatorError

_HINT = "correct it; `relight signatures check FILE` looks again"


def site_catalogue(files: Sequence[Path]) -> Catalogue:
    """Return the packaged catalogue with the entries of `files` in front of it. Raises `OperatorError`, with file and
    line, for a file that can't be read or an entry that can't be used."""
    if not files:
        return packaged_catalogue()
    return _loaded(files, PACKAGED)


def count_entries(file: Path) -> int:
    """Check `file` and return how many entries it has. It is held against the packaged files, but for one that it is
    itself a version of. Raises `OperatorError` as above."""
    of_package = file.resolve().parent.parts[-2:] == ("recovery", "signatures")
    others = [name for name in PACKAGED if not (of_package and name == file.stem)]
    return len(_loaded([file], others)) - len(_loaded([], others))


def _loaded(files: Sequence[Path], packaged: Sequence[str]) -> Catalogue:
    texts = [(str(file), _text(file)) for file in files]
    try:
        return load_catalogue(texts, packaged)
    except CatalogueError as error:
        raise OperatorError(str(error), _HINT) from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise OperatorError(f"{file}: {error.strerror}", "give a readable YAML file of signatures") from error
    except UnicodeDecodeError as error:
        raise OperatorError(f"{file}: it is not UTF-8: {error.reason}", "save it as UTF-8") from error
