"""slurmrestd's ``/nodes`` to node records.

The state is one word and its flags a second list in v0.0.38, one list from v0.0.40 on. One flag has another name than
in sinfo: MAINTENANCE for MAINT. The features are one text with commas in v0.0.38, a list later.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError

from activities.scheduler.protocol import NodeRecord, SchedulerUnavailable
from activities.scheduler.slurm_json import Part, Text, Words, first_fault

_AS_SINFO_SAYS = {"MAINTENANCE": "MAINT"}


def _feature_names(value: Any) -> Any:
    return [name for name in value.split(",") if name] if isinstance(value, str) else value or []


class _RawNode(Part):
    name: str
    state: Words
    state_flags: tuple[str, ...] = ()
    reason: Text = ""
    partitions: tuple[str, ...] = ()
    features: Annotated[frozenset[str], BeforeValidator(_feature_names)] = frozenset()


class _Answer(Part):
    nodes: tuple[_RawNode, ...]


def read_nodes(answer: str, teller: str) -> tuple[NodeRecord, ...]:
    """Return the nodes that `answer` tells of; `teller` names who gave it.

    Raises `SchedulerUnavailable` for anything else; no node at all is no answer either.
    """
    try:
        nodes = tuple(_record(raw) for raw in _Answer.model_validate_json(answer).nodes)
    except ValidationError as error:
        raise SchedulerUnavailable(f"{teller}'s answer on nodes: {first_fault(error)}") from error
    if not nodes:
        raise SchedulerUnavailable(f"{teller} tells of no node at all")
    return nodes


def _record(raw: _RawNode) -> NodeRecord:
    words = (word.upper() for word in (*raw.state, *raw.state_flags))
    return NodeRecord(
        name=raw.name,
        states=frozenset(_AS_SINFO_SAYS.get(word, word) for word in words),
        reason=raw.reason,
        partitions=frozenset(raw.partitions),
        features=raw.features,
    )
