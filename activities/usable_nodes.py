"""On which nodes a job could start once they are free, as far as what Slurm tells of it decides.

An exclusion that leaves a job fewer nodes than it asks for keeps it PENDING (BadConstraints) for ever: seen on 22.05
with a job of two nodes in a reservation of two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from activities.scheduler.protocol import JobRecord, NodeRecord
from activities.scheduler.site import Reservation
from recovery.model import NodeName

_ALL_OF = re.compile(r"[\w.:=/+-]+(?:&[\w.:=/+-]+)*", re.ASCII)
"""Names of features, joined by ``&``. Whatever else ``--constraint`` takes (``|``, ``[a|b]``, counts) is not read."""
_MAY_LEAVE = "FLEX"
"""The flag of a reservation whose jobs may use other nodes too."""


def usable_nodes(
    job: JobRecord,
    nodes: Sequence[NodeRecord] | None,
    reservations: Sequence[Reservation] | None,
) -> frozenset[NodeName] | None:
    """Return the nodes of the job's partitions, of its reservation and with its features that are well; None where
    that is not known. `nodes`, `reservations`: None where the scheduler gave no answer."""
    if nodes is None:
        return None
    here = [node for node in nodes if not node.partitions or job.partitions & node.partitions]
    needed = _needed_features(job.constraint)
    fitting = [node for node in here if needed <= node.features]
    if not job.reservation:
        return frozenset(node.name for node in fitting if node.usable)
    asked_for = [each for each in reservations or () if each.name in job.reservation.split(",")]
    if not asked_for or any(not each.nodes or _MAY_LEAVE in each.flags for each in asked_for):
        return None
    # A reservation for maintenance shows its nodes as MAINT, which keeps only others off them.
    return frozenset(node.name for node in fitting if node.sound and any(node.name in each.nodes for each in asked_for))


def _needed_features(constraint: str) -> frozenset[str]:
    """What each node must have; nothing where the constraint says more than that."""
    return frozenset(constraint.split("&")) if _ALL_OF.fullmatch(constraint) else frozenset()
