"""What a monitor remembers: small enough for a heartbeat, and all that is needed to go on exactly where it was."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from recovery.detection.drift import Drift
from recovery.detection.fault import FaultEpisode
from recovery.detection.markers import CheckpointBegun, CheckpointLoading, Phase
from recovery.detection.pace import Pace
from recovery.model import Evidence, Progress, Value
from recovery.redaction import redact

MAX_SURVIVED = 8
_TEXT_BYTES = 200
_SOURCE_BYTES = 120


class MonitorState(Value):
    """The memory of one attempt's monitor, under 4 kB as JSON. It is per attempt: nothing of it outlives a restart."""

    began_at: datetime | None = None
    """When the watch of the attempt began."""
    looked_at: datetime | None = None
    readable_since: datetime | None = None
    """Since when the log could be read without a break; None while it can't."""
    watched_throughout: bool = False
    """Whether the log was readable and looked at all the time since the last completed marker."""
    phase: Phase = Phase.START_UP
    progress: Progress = Progress()
    paces: Mapping[Phase, Pace] = {}
    last_n: int | None = None
    """The iteration of the last iteration line."""
    last_evaluation: tuple[int, int | None] | None = None
    """The last evaluation step and the number of steps."""
    bar_total: int | None = None
    """The length of the training loop's progress bar."""
    iterates: bool = False
    """Whether the attempt has shown an iteration: before that, its silence says nothing."""
    rewound: bool = False
    """The workers started again or load a checkpoint: iteration numbers may go back."""
    done: bool = False
    """The program says that it has trained to its end."""
    writing: CheckpointBegun | None = None
    loading: CheckpointLoading | None = None
    last_marker: Evidence | None = None
    communication_hang: Evidence | None = None
    """The first report of a timed-out communication since the last completed marker."""
    fault: FaultEpisode | None = None
    survived: tuple[str, ...] = ()
    """Signatures whose lines were survived: they are no news any more, only silence after them is."""
    drift: Drift = Drift()
    batch: int | None = None
    """The global batch size of the iterations in `drift`, where the lines have it."""
    """The seconds per iteration, watched for a lasting slow-down."""
    slow_since: datetime | None = None
    """Since when they are suspected to be longer than before."""
    stall_taken: datetime | None = None
    """The `since` of the stall that was reported and taken."""

    def untaken(self) -> MonitorState:
        """Return this memory without the note that a stall or a confirmed fault was reported: where it is still so, it
        is reported again."""
        fault = self.fault.model_copy(update={"confirmed": False}) if self.fault is not None else None
        return self.model_copy(update={"stall_taken": None, "fault": fault})


def quote(line: str, *, at: datetime, source: str, number: int | None, signature: str = "") -> Evidence:
    """Return `line` as evidence, secrets masked, cut to what the state has room for."""
    shown = redact(_cut(line, 4 * _TEXT_BYTES))[:_TEXT_BYTES]
    if not shown.isprintable():
        shown = "".join(char if char.isprintable() else " " for char in shown)
    return Evidence(
        source=_cut(source[::-1], _SOURCE_BYTES)[::-1],
        text=_cut(shown, _TEXT_BYTES),
        line=number,
        at=at,
        signature=signature[:64],
    )


def _cut(text: str, size_bytes: int) -> str:
    text = text[:size_bytes]
    return text if text.isascii() else text.encode("utf-8", "replace")[:size_bytes].decode("utf-8", "ignore")
