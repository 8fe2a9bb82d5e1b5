"""When all that is left is how processes ended."""

from __future__ import annotations

from recovery.attribution.counted import what_hosts_counted
from recovery.attribution.finding import Finding
from recovery.attribution.locate import exit_order
from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.model import Action, Category, Confidence
from recovery.signatures.catalogue import Role, Witness

_OUT_OF_MEMORY_STATE = "OUT_OF_MEMORY"
_DO_NOT_REQUEUE = 93
_NATIVE_CRASHES = frozenset({"-11", "-7", "-4", "-8"})
_CRASHED = frozenset(
    {"Segmentation fault", "Bus error", "Illegal instruction", "Floating point exception"}
    | {f"Exited with exit code {128 + number}" for number in (4, 7, 8, 11)}
)
"""As srun, shells and crash handlers say it; a shell adds 128 to the signal."""
_CRASH_SIGNALS = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE"})


def native_crash(scene: Scene) -> Finding | None:
    """A process that crashed before any other complained of a peer: what they say is how they noticed."""
    if scene.facts.state == _OUT_OF_MEMORY_STATE or scene.facts.exit_code == _DO_NOT_REQUEUE:
        return None
    crashed = scene.where(_crashed)
    complaints = scene.where(lambda r: r.is_a(Role.CASCADE, Witness.PEER) and not scene.survived(r))
    if not crashed or any(r.is_before(crashed[0]) for r in complaints):
        return None
    return Finding(
        category=Category.SOFTWARE_STACK,
        cause="native_crash",
        action=Action.RESTART,
        summary="a process crashed in native code, and no line says why",
        evidence=crashed[:3],
        unlocated_because="a crash in native code alone says nothing of the node",
        place="native crash",
    )


def bare_exit(scene: Scene) -> Finding:
    """Read the job's state, exit codes and signals. Always finds something: at least that nothing is known."""
    facts = scene.facts
    if facts.state == _OUT_OF_MEMORY_STATE:
        return Finding(
            category=Category.USER_CODE,
            cause="host_oom_cgroup",
            action=Action.STOP,
            summary="the job reached its memory limit, Slurm says",
            confidence=Confidence.LIKELY,
            place="slurm state",
        )
    if facts.exit_code == _DO_NOT_REQUEUE:
        return Finding(
            category=Category.USER_CODE,
            cause="exit_code_do_not_requeue",
            action=Action.STOP,
            summary=f"the job ended with exit code {_DO_NOT_REQUEUE}, which asks not to be started again",
            confidence=Confidence.ESTABLISHED,
            place=f"exit {_DO_NOT_REQUEUE}",
        )
    exits = exit_order(scene)
    also, telling = what_hosts_counted(scene.gauges)
    return Finding(
        category=Category.UNKNOWN,
        cause="process_exited" if exits or facts.exit_code or facts.exit_signal else "unknown",
        action=Action.RESTART,
        summary=_how(scene) + (f"; {also}" if also else ""),
        evidence=tuple(reading for _, reading in exits[:3]),
        confidence=Confidence.GUESS,
        unlocated_because="no line says why it ended",
        place=f"exit {facts.exit_code} signal {facts.exit_signal}",
        metric_evidence=telling,
    )


def _how(scene: Scene) -> str:
    facts = scene.facts
    if facts.exit_signal:
        return f"the job was ended by signal {facts.exit_signal}, and no line says why"
    if facts.exit_code:
        return f"the job ended with exit code {facts.exit_code}, and no line says why"
    return "the job failed, and nothing that was read says why"


def _crashed(reading: Reading) -> bool:
    told = {reading.field(name).capitalize() for name in ("how", "caught", "signal", "printed")}
    by_number = reading.field("exit_code") in _NATIVE_CRASHES or reading.field("signal_name") in _CRASH_SIGNALS
    return by_number or bool(reading.field("heap")) or not told.isdisjoint(_CRASHED)
