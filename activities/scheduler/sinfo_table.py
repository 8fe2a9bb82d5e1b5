"""``sinfo`` to node records, from a table whose separators no reason contains.

``sinfo --json`` changed its shape between versions; this table did not. ``StateComplete`` (21.08 and later) names every
state flag in words, joined by ``+``.
"""

from __future__ import annotations

from pydantic import ValidationError

from activities.scheduler.protocol import NodeRecord, SchedulerUnavailable

_FIELD_END, _ROW_END = "\x1f", "\x1e"
COMMAND = (
    "sinfo",
    "--Node",
    "--noheader",
    "--all",
    f"--Format=NodeList:{_FIELD_END},StateComplete:{_FIELD_END},PartitionName:{_FIELD_END},Features:{_FIELD_END},Reason:{_ROW_END}",
)


def read_nodes(answer: str) -> tuple[NodeRecord, ...]:
    """Return one record a node; the table has one row for each partition that a node is in.

    Raises `SchedulerUnavailable` for anything else than such a table; an empty one is no answer either.
    """
    nodes: dict[str, NodeRecord] = {}
    rows = answer.split(f"{_ROW_END}\n")
    if len(rows) < 2 or rows.pop():
        raise SchedulerUnavailable(f"sinfo's answer of {len(answer)} characters is not the table that was asked for")
    for row in rows:
        node = _node(row)
        known = nodes.get(node.name)
        partitions = node.partitions | known.partitions if known else node.partitions
        nodes[node.name] = node.model_copy(update={"partitions": partitions})
    return tuple(nodes.values())


def _node(row: str) -> NodeRecord:
    try:
        name, states, partition, features, reason = row.split(_FIELD_END)
        return NodeRecord(
            name=name,
            states=frozenset(states.upper().split("+")),
            reason="" if reason == "none" else reason,
            partitions=frozenset({partition}),
            features=frozenset() if features == "(null)" else frozenset(features.split(",")),
        )
    except (ValidationError, ValueError) as error:
        raise SchedulerUnavailable(f"sinfo's row {row[:80]!r} cannot be read") from error
