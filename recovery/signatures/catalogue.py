"""The signature catalogue: what known log lines mean. Data in YAML, validated at load, matched in linear time by RE2.

Each entry describes one message of one piece of software. A site adds entries of its own as further YAML texts; they
come first, so that they can overrule a packaged entry. The first entry that matches a line, in catalogue order, counts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from importlib import resources
from typing import Any

import re2
import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from recovery.model import Action, Category, Value

PACKAGED = (
    "slurm",
    "gpu_driver",
    "host",
    "storage",
    "torch_distributed",
    "launchers",
    "cuda",
    "nccl",
    "jax",
    "numerical",
    "containers",
    "services",
    "python",
)
"""The packaged files in matching order: from the most specific texts to bare Python exceptions."""

REPORTER = "reporter"
NOBODY = "none"
MAX_MATCHED_CHARS = 4_096
"""Only the start of a line is matched: the messages we know say what they say early."""

_SET_MEMORY_BYTES = 256 << 20
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser is ten times as fast; wheels of PyYAML have it, other builds may not."""


class CatalogueError(ValueError):
    """An entry cannot be used. The message names file and line, what is wrong, and what to change."""


class Role(StrEnum):
    """What a line is to a failure."""

    ROOT = "root"
    """Can be the first fault."""
    CASCADE = "cascade"
    """The echo of a fault elsewhere: who prints it is a victim."""
    CONFIRMATION = "confirmation"
    """Makes another reading more certain, says too little alone."""
    NOISE = "noise"
    """Looks alarming and means nothing."""


class Witness(StrEnum):
    """Who speaks, which is how far a line is believed when several claim to be the first fault."""

    SCHEDULER = "scheduler"
    """Slurm states why it ended the job or a node."""
    HOST = "host"
    """Kernel, driver, NIC or a node check speaks of its own machine."""
    PROCESS = "process"
    """A process speaks of its own GPU, its own memory or its own code."""
    PEER = "peer"
    """A process speaks of another one that it waits for or talks to."""


class Signature(Value):
    """One message format and how to read it."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    pattern: str
    """RE2 syntax, searched anywhere in the line."""
    component: str
    """The software that prints it, with versions where the text differs."""
    category: Category
    cause: str = Field(pattern=r"^[a-z0-9_]+$")
    role: Role
    witness: Witness
    fatal: bool = False
    """The attempt cannot go on by itself after this line: worth a reaction while the job still runs."""
    everywhere: Category | None = None
    """The category when most nodes of a job show it: then it is no single node's fault."""
    everywhere_action: Action = Action.STOP
    echoed: bool = False
    """Peers print the same right after: only the first to print it is the culprit."""
    culprit: str = NOBODY
    """``reporter`` (the node that prints it), ``none`` (no node is at fault), or the captured field that names it."""
    action: Action = Action.RESTART
    source: str
    reading: str = ""
    """For people: what the line says and what it does not."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re2.compile(pattern, _quiet())
        except re2.error as error:
            raise ValueError(f"not an RE2 pattern: {_text(error)}") from error
        return pattern

    @model_validator(mode="after")
    def _culprit_is_captured(self) -> Signature:
        fields = re2.compile(self.pattern, _quiet()).groupindex
        if self.culprit not in (REPORTER, NOBODY, *fields):
            named = ", ".join(fields) or "none"
            raise ValueError(f"culprit {self.culprit!r} is neither reporter, none, nor a captured field ({named})")
        if self.fatal and self.role not in (Role.ROOT, Role.CASCADE):
            raise ValueError("only a root or a cascade line can be fatal")
        return self


class Match(Value):
    """A line that a signature recognised."""

    signature: Signature
    fields: Mapping[str, str]
    """The named captures that took part, by name."""


class Catalogue:
    """Signatures in matching order with one compiled matcher over all of them."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self._signatures = tuple(signatures)
        self._expressions = tuple(re2.compile(signature.pattern, _quiet()) for signature in signatures)
        self._set = re2.Set.SearchSet(_quiet())
        for signature in signatures:
            self._set.Add(signature.pattern)
        self._set.Compile()

    def __iter__(self) -> Iterator[Signature]:
        return iter(self._signatures)

    def __len__(self) -> int:
        return len(self._signatures)

    def match(self, line: str) -> Match | None:
        """Return what the first matching entry makes of `line`, None when no entry knows it. Linear in the line's
        length; no more than `MAX_MATCHED_CHARS` of it are looked at."""
        line = line[:MAX_MATCHED_CHARS]
        first = self._first(line)
        if first is None:
            return None
        found = self._expressions[first].search(line)
        fields = {name: value for name, value in found.groupdict().items() if value is not None} if found else {}
        return Match.model_construct(signature=self._signatures[first], fields=fields)

    def recognise(self, line: str) -> Signature | None:
        """Return the entry that `match` finds, without its captures, at a tenth of the cost."""
        first = self._first(line[:MAX_MATCHED_CHARS])
        return None if first is None else self._signatures[first]

    def _first(self, line: str) -> int | None:
        hits: list[int] | None = self._set.Match(line)
        return min(hits) if hits else None


def load_catalogue(extra: Sequence[tuple[str, str]] = (), packaged: Sequence[str] = PACKAGED) -> Catalogue:
    """Load the packaged catalogue with a site's own YAML texts, given as (file name, text), in front of it; of the
    packaged files only `packaged`.

    Raises `CatalogueError`.
    """
    entries = [entry for name, text in extra for entry in _entries(name, text)]
    entries += [entry for name in packaged for entry in _packaged(name)]
    _refuse_duplicates(entries)
    return Catalogue([signature for _, signature in entries])


@functools.cache
def packaged_catalogue() -> Catalogue:
    """The packaged catalogue alone, loaded once."""
    return load_catalogue()


def parse_signatures(name: str, text: str) -> tuple[Signature, ...]:
    """Parse one catalogue file: a YAML list of entries. Raises `CatalogueError` naming `name` and the line."""
    return tuple(signature for _, signature in _entries(name, text))


def _entries(name: str, text: str) -> tuple[tuple[str, Signature], ...]:
    """Parse a file into its entries, each with where it stands."""
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line if mark else text.encode().count(b"\n", 0, getattr(error, "position", 0))
        reason = getattr(error, "problem", None) or getattr(error, "reason", error)
        raise CatalogueError(f"{name}:{line + 1}: not YAML: {reason}") from error
    if root is None:
        return ()
    if not isinstance(root, yaml.SequenceNode):
        raise CatalogueError(f"{name}:1: a catalogue file is a list of entries, each starting with '- id: ...'")
    return tuple((f"{name}:{node.start_mark.line + 1}", _entry(name, node)) for node in root.value)


def _entry(name: str, node: yaml.Node) -> Signature:
    where = f"{name}:{node.start_mark.line + 1}"
    data: Any = yaml.SafeLoader("").construct_document(node)
    if not isinstance(data, dict):
        raise CatalogueError(f"{where}: an entry is a mapping with id, pattern, component, ...")
    unknown = sorted(str(key) for key in set(data) - set(Signature.model_fields))
    if unknown:
        raise CatalogueError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(Signature.model_fields)}")
    try:
        return Signature.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else str(data.get("id", "entry"))
        line = _line_of(name, node, key) or where
        raise CatalogueError(f"{line}: {key}: {first['msg']}") from error


def _line_of(name: str, node: yaml.Node, key: str) -> str:
    for entry_key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if entry_key.value == key:
            return f"{name}:{entry_key.start_mark.line + 1}"
    return ""


@functools.cache
def _packaged(name: str) -> tuple[tuple[str, Signature], ...]:
    file = resources.files("recovery.signatures") / f"{name}.yaml"
    return _entries(file.name, file.read_text(encoding="utf-8"))


def _refuse_duplicates(entries: Sequence[tuple[str, Signature]]) -> None:
    seen: dict[str, str] = {}
    for where, signature in entries:
        first = seen.setdefault(signature.id, where)
        if first != where:
            raise CatalogueError(f"{first}: {where} has the id {signature.id!r}, too: give one of them another id")


def _quiet() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _SET_MEMORY_BYTES
    return options


def _text(error: Exception) -> str:
    return str(error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else error)
