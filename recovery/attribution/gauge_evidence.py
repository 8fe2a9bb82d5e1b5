"""Hardware faults that only gauges and counters show, because no kernel log was collected."""

from __future__ import annotations

from recovery.attribution.counted import UNCORRECTABLE_ECC, grown
from recovery.attribution.finding import Finding
from recovery.attribution.gauges import REMAP_FAILURE, Gauge, new_xids
from recovery.attribution.scene import Scene
from recovery.model import Action, Category, Confidence
from recovery.signatures.catalogue import Role, packaged_catalogue


def xid_in_gauges(scene: Scene) -> Finding | None:
    """A last-Xid gauge that changed to a fatal code, a failed row remapping, or new uncorrectable memory errors, on
    exactly one node of a failed job."""
    gauges = scene.gauges
    telling = [(g, _cause(g)) for g in new_xids(gauges)]
    telling += [(g, "gpu_row_remap_failure") for g in gauges if g.name in REMAP_FAILURE and g.value >= 1]
    telling += [(g, "gpu_ecc") for g in grown(gauges, UNCORRECTABLE_ECC)]
    telling = [(g, cause) for g, cause in telling if cause and g.node]
    nodes = {g.node for g, _ in telling}
    if len(nodes) != 1:
        return None
    return Finding(
        category=Category.HARDWARE_GPU,
        cause=telling[0][1],
        action=Action.RESTART_EXCLUDE,
        summary=f"{telling[0][1].replace('_', ' ')}, by the GPU's own gauges",
        culprits=tuple(nodes),
        confidence=Confidence.LIKELY,
        metric_evidence=tuple(g.text for g, _ in telling[:4]),
    )


def _cause(gauge: Gauge) -> str:
    """The catalogue's cause of an Xid code that is a hardware fault; empty for all others."""
    match = packaged_catalogue().match(f"NVRM: Xid (PCI:0000:00:00): {gauge.value:.0f}, pid=0")
    if match is None or match.signature.role is not Role.ROOT:
        return ""
    return match.signature.cause
