"""An attempt on paper: lines at seconds after its start, and looks in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from recovery.detection.findings import Detection
from recovery.detection.monitor import AttemptMonitor
from recovery.detection.settings import DetectionSettings

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Signature:
    id: str
    fatal: bool


@dataclass(frozen=True)
class Match:
    signature: Signature


def match(line: str) -> Match | None:
    """A catalogue with two entries."""
    if "GPU has fallen off the bus" in line:
        return Match(Signature("xid-79", fatal=True))
    if "CUDA error" in line:
        return Match(Signature("cuda-error", fatal=True))
    return None


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def megatron(n: int, step_ms: float = 1_000, batch: int = 512) -> str:
    return (
        f" [2026-03-01 12:00:00.000000] iteration {n:8d}/   50000 | consumed samples: {n * 512:12d} |"
        f" elapsed time per iteration (ms): {step_ms:.1f} | learning rate: 1.5E-04 | global batch size: {batch:5d} |"
        f" lm loss: 2.408442E+00 | loss scale: 1.0 | grad norm: 0.266 | number of skipped iterations:   0 |"
    )


@dataclass
class Attempt:
    """Drives a monitor through time, looking once a second as the watcher would."""

    settings: DetectionSettings = field(default_factory=DetectionSettings)
    second: float = 0.0
    fresh: bool = True
    findings: list[Detection] = field(default_factory=list)
    restore: bool = False
    """Replace the monitor by one restored from its state before every step."""

    def __post_init__(self) -> None:
        self.monitor = AttemptMonitor(self.settings, match)
        self.look()

    def look(self) -> None:
        if self.restore:
            state = type(self.monitor.state).model_validate_json(self.monitor.state.model_dump_json())
            self.monitor = AttemptMonitor(self.settings, match, state)
        found = self.monitor.look(at(self.second), log_fresh=self.fresh)
        if found is not None:
            self.findings.append(found)
            self.monitor.take(found)

    def say(self, *lines: str) -> Attempt:
        for line in lines:
            self.monitor.feed(line, at(self.second), source="/scratch/slurm-1.out")
        self.look()
        return self

    def wait(self, seconds: float, *, chatter: str = "", every_s: float = 1.0) -> Attempt:
        end = self.second + seconds
        while self.second < end:
            self.second = min(end, self.second + every_s)
            if chatter:
                self.monitor.feed(chatter, at(self.second))
            self.look()
        return self

    def train(self, first: int, last: int, *, every_s: float = 1.0) -> Attempt:
        for n in range(first, last + 1):
            self.wait(every_s, every_s=min(every_s, 10.0))
            self.say(megatron(n, every_s * 1_000))
        return self

    def kinds(self) -> list[str]:
        return [found.kind for found in self.findings]
