"""A job that goes on, slower than it did: since when, and because of whom."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict

import re2

from recovery.attribution.finding import Finding
from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.attribution.throttling import slow_gpu, why_slow
from recovery.detection.markers import IterationFinished
from recovery.model import Action, Category, Confidence, SymptomKind
from recovery.signatures.catalogue import Role

_SUSTAINED = 5
_SLOWER = 1.1
_REPORT = re2.compile(r"MxRtt/Rnk: [\d.]+ms/(\d+).*MnEtpt/Rnk: [\d.]+TF/(\d+)")
_AFFECTED_RANK = re2.compile(r"(?:rank=|[\[{,] ?)(\d{1,7})(?:, node=['\"]?([\w.-]+))?")
_NIC_SPEED = re2.compile(r"NET/IB *: \[\d+\] ?(\w+):\w+:\d+/\w+ .*\bspeed=(\d+)")
_LOADING_TIMER = re2.compile(r"^\s+batch-generator \.+: \((\d+\.?\d*), (\d+\.?\d*)\)")
_ALIKE = 0.5
_LONG_LOADING_MS = 1_000.0
_REPORTS_THAT_AGREE = 2


def straggler(scene: Scene) -> Finding | None:
    """Find what slows a running job down, located as far as the lines and gauges allow."""
    slow_nic = _slow_nic(scene)
    slower = _slower(scene)
    if not slower and scene.detected is not SymptomKind.STRAGGLER:
        return slow_nic
    return (
        slow_nic
        or _slow_gpu(scene, slower)
        or _reported_rank(scene, slower)
        or _slow_host(scene, slower)
        or _slow_storage(scene, slower)
        or _unknown(slower)
    )


def _slower(scene: Scene) -> tuple[Reading, ...]:
    """The iterations of a lasting slow-down up to now; empty when there is none."""
    timed = _timed(scene)
    if len(timed) < 2 * _SUSTAINED:
        return ()
    baseline = statistics.median(time for time, _ in timed[:_SUSTAINED])
    recent = timed[-_SUSTAINED:]
    if any(time < _SLOWER * baseline for time, _ in recent):
        return ()
    slow = [r for time, r in timed if time >= _SLOWER * baseline]
    return (timed[0][1], *slow[:2], *(r for _, r in recent[-2:]))


def _timed(scene: Scene) -> list[tuple[float, Reading]]:
    """The finished iterations with the time each took: in seconds, or where no line says, per unit of throughput. Of a
    batch size that grows only those of the last one are comparable."""
    finished = [(r.marker, r) for r in scene.iterations if isinstance(r.marker, IterationFinished)]
    batches = [m.batch for m, _ in finished if m.batch]
    finished = [(m, r) for m, r in finished if not m.batch or m.batch == batches[-1]]
    return [(m.step_time_s, r) for m, r in finished if m.step_time_s] or [
        (1 / m.throughput, r) for m, r in finished if m.throughput
    ]


def _slow_nic(scene: Scene) -> Finding | None:
    """One node's adapters came up slower than the same ones everywhere else."""
    speeds: dict[str, dict[str, tuple[int, Reading]]] = defaultdict(dict)
    for r in scene.readings:
        found = _NIC_SPEED.search(r.text) if "speed=" in r.text else None
        if found and r.node:
            speeds[found.group(1)][r.node] = (int(found.group(2)), r)
    slow: dict[str, list[Reading]] = defaultdict(list)
    for by_node in speeds.values():
        usual = statistics.mode(speed for speed, _ in by_node.values())
        for node, (speed, reading) in by_node.items():
            if speed < usual and len(by_node) > 2:
                slow[node].append(reading)
    if len(slow) != 1:
        return None
    node, lines = next(iter(slow.items()))
    return Finding(
        category=Category.HARDWARE_NETWORK,
        cause="nic_degraded_speed",
        action=Action.RESTART_EXCLUDE,
        summary=f"{len(lines)} network adapter(s) of one node run slower than the same ones of all other nodes",
        evidence=tuple(lines[:4]),
        culprits=(node,),
        confidence=Confidence.ESTABLISHED,
        symptom=SymptomKind.STRAGGLER,
        place="nic",
    )


def _slow_gpu(scene: Scene, slower: tuple[Reading, ...]) -> Finding | None:
    node, gauges = slow_gpu(scene.gauges)
    if not node:
        return None
    return Finding(
        category=Category.HARDWARE_GPU,
        cause=why_slow(gauges),
        action=Action.RESTART_EXCLUDE,
        summary="one node's GPU is slower than all others by its own gauges",
        evidence=(*slower, *_reports(scene)[-1:]),
        culprits=(node,),
        confidence=Confidence.ESTABLISHED,
        symptom=SymptomKind.STRAGGLER,
        place="gpu clock",
        metric_evidence=tuple(gauge.text for gauge in gauges[:3]),
    )


def _reports(scene: Scene) -> tuple[Reading, ...]:
    return scene.where(lambda r: "MxRtt/Rnk" in r.text and bool(_REPORT.search(r.text)))


def _reported_rank(scene: Scene, slower: tuple[Reading, ...]) -> Finding | None:
    """Megatron-LM's or NVRx's reports of slow ranks, when they keep naming one node: a rotating one is imbalance."""
    named: list[tuple[str, Reading]] = []
    for r in _reports(scene):
        found = _REPORT.search(r.text)
        if found and found.group(1) == found.group(2):
            named.append((scene.ranks.of_rank(int(found.group(1))), r))
    for r in scene.readings:
        ranks = _AFFECTED_RANK.findall(r.field("affected"))
        affected = {scene.ranks.of_rank(int(rank)) or scene.ranks.node(node) for rank, node in ranks}
        if affected:
            named.append((affected.pop() if len(affected) == 1 else "", r))
    counts = Counter(node for node, _ in named if node)
    if not counts:
        return None
    node, count = counts.most_common(1)[0]
    if count < _REPORTS_THAT_AGREE or count * 4 < 3 * len(named):
        return None
    return Finding(
        category=Category.HARDWARE_GPU,
        cause="gpu_slow",
        action=Action.RESTART_EXCLUDE,
        summary=f"{count} reports in a row name the same slowest rank",
        evidence=(*slower, *(r for named_node, r in named[-3:] if named_node == node)),
        culprits=(node,),
        symptom=SymptomKind.STRAGGLER,
        place="straggler report",
    )


def _slow_host(scene: Scene, slower: tuple[Reading, ...]) -> Finding | None:
    """One node's processors are held back by heat."""
    hot = scene.where(lambda r: r.cause == "cpu_thermal_throttle" and bool(r.node))
    nodes = {r.node for r in hot}
    if len(nodes) != 1:
        return None
    return Finding(
        category=Category.HOST,
        cause="cpu_thermal_throttle",
        action=Action.RESTART_EXCLUDE,
        summary="the kernel of one node holds its processors back because of heat",
        evidence=(*slower, *hot[-3:]),
        culprits=tuple(nodes),
        symptom=SymptomKind.STRAGGLER,
        place="processors",
    )


def _slow_storage(scene: Scene, slower: tuple[Reading, ...]) -> Finding | None:
    """All ranks wait for data alike, or file system clients wait for their server."""
    waiting = scene.where(lambda r: r.is_a(Role.CONFIRMATION) and r.speaks_of(Category.STORAGE))
    timers = _slow_loading(scene)
    if not waiting and not timers:
        return None
    nodes = {r.node for r in waiting if r.node}
    alone = len(nodes) == 1 and len(scene.nodes) > 2
    return Finding(
        category=Category.STORAGE,
        cause="slow_filesystem_client" if alone else "slow_shared_filesystem",
        action=Action.RESTART_EXCLUDE if alone else Action.WAIT,
        summary="one node's file system client is slow"
        if alone
        else "all ranks wait for data: the shared file system is slow",
        evidence=(*slower, *waiting[:3], *timers[-2:]),
        culprits=tuple(nodes) if alone else (),
        unlocated_because="" if alone else "all nodes are slow alike",
        symptom=SymptomKind.STRAGGLER,
        place="data loading",
    )


def _slow_loading(scene: Scene) -> tuple[Reading, ...]:
    """Megatron-LM's timer lines of the data loading, when it has become long on all ranks alike."""
    timed: list[tuple[float, Reading]] = []
    for r in scene.readings:
        found = _LOADING_TIMER.match(r.line.text) if "batch-generator" in r.line.text else None
        if found and float(found.group(1)) >= _ALIKE * float(found.group(2)):
            timed.append((float(found.group(1)), r))
    return tuple(r for _, r in timed) if timed and timed[-1][0] >= _LONG_LOADING_MS else ()


def _unknown(slower: tuple[Reading, ...]) -> Finding:
    return Finding(
        category=Category.UNKNOWN,
        cause="slowdown",
        action=Action.WAIT,
        summary="iterations have become slower and stay so",
        evidence=slower,
        confidence=Confidence.GUESS,
        unlocated_because="neither per-rank times nor GPU clocks are there to tell which rank is slow",
        symptom=SymptomKind.STRAGGLER,
        place="step time",
    )
