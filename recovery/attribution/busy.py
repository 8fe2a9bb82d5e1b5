"""A rank that the others wait for because it does something long by itself, such as preparing the data for all."""

from __future__ import annotations

from dataclasses import replace

import re2

from recovery.attribution.finding import Finding
from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.model import Action, Category

_BAR = re2.compile(r"\b\d{1,15}/\d{1,15} \[\d+:\d{2}")
_BARS_THAT_SHOW_WORK = 3


def at_work(finding: Finding, first_complaint: Reading, scene: Scene) -> Finding | None:
    """Clear the node of `finding` when it drew progress bars until the others gave up: then it was not stuck, and what
    it did will take as long on any other node."""
    since = scene.iterations[-1].order if scene.iterations else -1
    bars = scene.where(
        lambda r: since < r.order < first_complaint.order and r.node in finding.culprits and bool(_BAR.search(r.text))
    )
    if len({r.text for r in bars}) < _BARS_THAT_SHOW_WORK:
        return None
    return replace(
        finding,
        category=Category.USER_CODE,
        cause="one_rank_busy",
        action=Action.RESTART,
        summary="ranks timed out while one of them did something long by itself",
        evidence=(*bars[-3:], *finding.evidence[:3]),
        culprits=(),
        unlocated_because="the rank that did not come was at work, not stuck",
    )
