"""Heterogeneous jobs: several components with resources of their own, and one job.

Seen on Slurm 22.05.8 with a job 6 of the components 6, 7 and 8. ``requeue`` and ``requeuehold`` take the leader's id
and put all components back; a component's own number is refused ("Job not heterogeneous job leader"), and ``6+1`` is no
job id to them. ``update JobId=6``, and ``6+0`` too, sets AdminComment, ExcNodeList and StartTime of *all* components,
over whatever each had; ``update JobId=7`` those of component 7 alone. So the leader's own list can't be set without the
others'. All components end with the batch script, in its state and with its exit code.
"""

from __future__ import annotations

from collections.abc import Iterable

from activities.scheduler.protocol import Component, JobFlag, JobRecord
from recovery.model import JobId, NodeName


def joined(records: Iterable[JobRecord]) -> tuple[JobRecord, ...]:
    """Return the records with each het job's leader standing for the whole: all nodes that the job has, and what keeps
    every component. The components themselves are returned as they are."""
    listed = tuple(records)
    followers: dict[JobId, list[JobRecord]] = {}
    for record in listed:
        if record.het_leader_id:
            followers.setdefault(record.het_leader_id, []).append(record)
    if not followers:
        return listed
    return tuple(_whole(record, followers.get(record.job_id, ())) for record in listed)


def _whole(leader: JobRecord, followers: Iterable[JobRecord]) -> JobRecord:
    parts = (leader, *sorted(followers, key=lambda part: int(part.job_id)))
    if len(parts) == 1:
        return leader
    ends = any(JobFlag.COMPLETING in part.flags for part in parts)
    return leader.model_copy(
        update={
            "flags": leader.flags | ({JobFlag.COMPLETING} if ends else frozenset()),
            "nodes": _each_once(node for part in parts for node in part.nodes),
            "node_count": sum(part.node_count for part in parts),
            "excluded_nodes": tuple(node for node in leader.excluded_nodes if _avoided_by_all(node, parts)),
            "required_nodes": _each_once(node for part in parts for node in part.required_nodes),
            "reservation": _same_for_all(part.reservation for part in parts),
            "constraint": _same_for_all(part.constraint for part in parts),
            "components": tuple(_component(part) for part in parts),
        }
    )


def _component(part: JobRecord) -> Component:
    return Component(
        job_id=part.job_id,
        partition=part.partition,
        nodes=part.nodes,
        node_count=part.node_count,
        excluded_nodes=part.excluded_nodes,
        required_nodes=part.required_nodes,
    )


def _avoided_by_all(node: NodeName, parts: Iterable[JobRecord]) -> bool:
    return all(node in part.excluded_nodes for part in parts)


def _same_for_all(texts: Iterable[str]) -> str:
    """What one component alone asks for says nothing of where the others may start."""
    different = set(texts)
    return different.pop() if len(different) == 1 else ""


def _each_once(nodes: Iterable[NodeName]) -> tuple[NodeName, ...]:
    return tuple(dict.fromkeys(nodes))
