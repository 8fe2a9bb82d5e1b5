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
    telling = [(g, *_told_by(g)) for g in new_xids(gauges)]
    telling += [(g, "gpu_row_remap_failure", Action.RESTART_EXCLUDE) for g in gauges if _remapping_failed(g)]
    telling += [(g, "gpu_ecc", Action.RESTART_EXCLUDE) for g in grown(gauges, UNCORRECTABLE_ECC)]
    telling = [(g, cause, action) for g, cause, action in telling if cause and g.node]
    nodes = {g.node for g, _, _ in telling}
    if len(nodes) != 1:
        return None
    _, cause, action = min(telling, key=lambda told: told[2] is not Action.RESTART_EXCLUDE)
    return Finding(
        category=Category.HARDWARE_GPU,
        cause=cause,
        action=action,
        summary=f"{cause.replace('_', ' ')}, by the GPU's own gauges",
        culprits=tuple(nodes),
        confidence=Confidence.LIKELY,
        metric_evidence=tuple(g.text for g, _, _ in telling[:4]),
    )


def _remapping_failed(gauge: Gauge) -> bool:
    return gauge.name in REMAP_FAILURE and gauge.value >= 1


def _told_by(gauge: Gauge) -> tuple[str, Action]:
    """The catalogue's cause of an Xid code that is a hardware fault, and what it calls for; no cause for all others."""
    match = packaged_catalogue().match(f"NVRM: Xid (PCI:0000:00:00): {gauge.value:.0f}, pid=0")
    if match is None or match.signature.role is not Role.ROOT:
        return "", Action.NONE
    return match.signature.cause, match.signature.action
