"""Whether something is one node's or everybody's: what all nodes show alike is no single node's fault."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta

from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.model import Category

SHARED = frozenset({Category.HARDWARE_NETWORK, Category.STORAGE})
"""What nodes have in common: switches, and file servers."""
_SHARE = 0.5
_AT_ONCE = timedelta(seconds=5)


def is_widespread(nodes: Collection[str], scene: Scene) -> bool:
    """Whether so many of the allocation's nodes show the same that none of them is to blame."""
    return len(nodes) >= 2 and len(nodes) > _SHARE * len(scene.nodes)


def lost_together(alike: Iterable[Reading]) -> bool:
    """Whether several nodes lost something that nodes share in the same moment, as far as is known: then it is that,
    not the nodes."""
    lost = [r for r in alike if r.node and r.signature.category in SHARED]
    return any(r.node != lost[0].node and _at_once(r, lost[0]) for r in lost)


def _at_once(one: Reading, other: Reading) -> bool:
    return one.at is None or other.at is None or abs(one.at - other.at) <= _AT_ONCE
