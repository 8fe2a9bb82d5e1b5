"""Whether something is one node's or everybody's: what all nodes show alike is no single node's fault."""

from __future__ import annotations

from collections.abc import Collection

from recovery.attribution.scene import Scene

_SHARE = 0.5


def is_widespread(nodes: Collection[str], scene: Scene) -> bool:
    """Whether so many of the allocation's nodes show the same that none of them is to blame."""
    return len(nodes) >= 2 and len(nodes) > _SHARE * len(scene.nodes)
