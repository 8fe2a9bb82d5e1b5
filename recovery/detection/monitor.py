"""Watches one attempt through the lines of its log: progress, hang, and faults that do not end the job.

Feed it every line with the time it was read, and look as often as you like. It keeps no clock and does no I/O; its
state restores it exactly. A finding is repeated at every look until it is taken, so that none is lost with a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from recovery.detection.fault import FaultEpisode, grace_s, launcher_ends_workers
from recovery.detection.findings import Detection, FatalLine, FaultConfirmed, FaultSurvived, Stall, Straggler
from recovery.detection.hang import deadline_s, is_learned, reports_communication_hang
from recovery.detection.markers import Phase
from recovery.detection.pace import Pace
from recovery.detection.progress import ProgressPattern, read_marker
from recovery.detection.settings import DetectionSettings
from recovery.detection.state import MAX_SURVIVED, MonitorState, quote
from recovery.detection.straggler import OF_THE_JOB
from recovery.detection.track import follow
from recovery.model import Evidence, Progress

WATCH_GAP_S = 30
"""A longer time between two looks means that nobody watched: what arrives then has no known time."""


class FatalSignature(Protocol):
    """What is needed of a catalogue entry."""

    @property
    def id(self) -> str:
        """Its name."""
        ...

    @property
    def fatal(self) -> bool:
        """Whether an attempt can't go on by itself after such a line."""
        ...


class SignatureMatch(Protocol):
    """A line that the catalogue knows."""

    @property
    def signature(self) -> FatalSignature:
        """The entry that matched."""
        ...


Matcher = Callable[[str], SignatureMatch | None]
"""For example ``load_catalogue().match``."""


class AttemptMonitor:
    """The monitor of one attempt."""

    def __init__(self, settings: DetectionSettings, match: Matcher, state: MonitorState | None = None) -> None:
        self._settings = settings
        self._match = match
        self._custom = ProgressPattern(settings.progress_pattern) if settings.progress_pattern is not None else None
        self._state = state or MonitorState()

    @property
    def progress(self) -> Progress:
        """How far the attempt came."""
        return self._state.progress

    @property
    def state(self) -> MonitorState:
        """All that a later monitor needs to go on from here."""
        return self._state

    def feed(self, line: str, at: datetime, *, source: str = "", number: int | None = None) -> None:
        """Take one line of the log, read at `at`; `source` and `number` are quoted in evidence."""
        self._note_time(at)
        rewound_before = self._state.rewound
        marker = read_marker(line, self._custom)
        if marker is not None:
            self._state = follow(self._state, marker, at, lambda: quote(line, at=at, source=source, number=number))
        found = self._match(line)
        if found is not None and found.signature.fatal:
            evidence = quote(line, at=at, source=source, number=number, signature=found.signature.id)
            self._note_fatal_line(evidence, at)
        if self._state.fault is not None:
            self._note_restart(self._state.fault, line, at, starts_again=self._state.rewound and not rewound_before)
        if self._state.communication_hang is None and reports_communication_hang(line):
            evidence = quote(line, at=at, source=source, number=number)
            self._update(communication_hang=evidence)

    def look(self, now: datetime, *, log_fresh: bool) -> Detection | None:
        """Return what there is to say at `now`, the gravest first, or None.

        `log_fresh`: the log could be read to its end within the last seconds, whether or not it grew. While it could
        not, nothing is concluded from silence.
        """
        self._note_time(now)
        self._note_readable(now, log_fresh=log_fresh)
        return self._fault_finding(now) or self._stall(now)

    def slowdown(self) -> Straggler | None:
        """Return the lasting slow-down that the attempt is in, if it is in one. It is told until it is taken; what the
        attempt does since then counts as usual from there on."""
        state = self._state
        found = state.drift.slowdown(OF_THE_JOB)
        if found is None or state.slow_since is None:
            return None
        evidence = () if state.last_marker is None else (state.last_marker,)
        return Straggler(since=state.slow_since, usual_s=found.baseline, now_s=found.now, evidence=evidence)

    def take(self, finding: Detection | Straggler) -> None:
        """Note that `finding` was handed on for good; it is not reported again."""
        fault = self._state.fault
        if isinstance(finding, Straggler):
            self._update(drift=self._state.drift.accepted(), slow_since=None)
            return
        if isinstance(finding, Stall):
            self._update(stall_taken=finding.since)
        elif fault is None or fault.at != finding.at:
            return
        elif isinstance(finding, FatalLine):
            self._update(fault=fault.model_copy(update={"announced": True}))
        elif isinstance(finding, FaultConfirmed):
            self._update(fault=fault.model_copy(update={"announced": True, "confirmed": True}))
        else:
            self._forget_fault(fault)

    def _update(self, **changes: object) -> None:
        self._state = self._state.model_copy(update=changes)

    def _note_time(self, at: datetime) -> None:
        state = self._state
        if state.looked_at is None:
            self._update(began_at=state.began_at or at, looked_at=at, watched_throughout=True)
        elif (at - state.looked_at).total_seconds() > WATCH_GAP_S:
            self._update(looked_at=at, readable_since=None, watched_throughout=False)
        elif at > state.looked_at:
            self._update(looked_at=at)

    def _note_readable(self, now: datetime, *, log_fresh: bool) -> None:
        if not log_fresh:
            self._update(readable_since=None, watched_throughout=False)
        elif self._state.readable_since is None:
            self._update(readable_since=now)

    def _note_fatal_line(self, line: Evidence, at: datetime) -> None:
        fault = self._state.fault
        if fault is not None:
            self._update(fault=fault.with_line(line))
        else:
            self._update(fault=FaultEpisode(at=at, line=line, announced=line.signature in self._state.survived))

    def _note_restart(self, fault: FaultEpisode, line: str, at: datetime, *, starts_again: bool) -> None:
        if starts_again:
            self._update(fault=fault.waiting(at, self._settings.startup_fault_grace_s))
        elif launcher_ends_workers(line):
            self._update(fault=fault.waiting(at, self._settings.fault_grace_cap_s))

    def _forget_fault(self, fault: FaultEpisode) -> None:
        survived = dict.fromkeys((*self._state.survived, fault.line.signature))
        self._update(fault=None, survived=tuple(survived)[-MAX_SURVIVED:])

    def _fault_finding(self, now: datetime) -> Detection | None:
        fault, state = self._state.fault, self._state
        if fault is None:
            return None
        pace = state.paces.get(state.phase, Pace())
        grace = grace_s(self._settings, pace, learned=is_learned(pace, state.phase))
        if fault.is_survived(grace):
            return self._survived(fault)
        if state.readable_since is not None and fault.is_confirmed(now, grace) and not fault.confirmed:
            return FaultConfirmed(at=fault.at, grace_s=grace, line=fault.line, later=fault.later)
        return None if fault.announced else FatalLine(at=fault.at, line=fault.line)

    def _survived(self, fault: FaultEpisode) -> FaultSurvived | None:
        """There is something to withdraw only where the line or its confirmation was told."""
        known_before = fault.line.signature in self._state.survived
        if fault.confirmed or (fault.announced and not known_before):
            return FaultSurvived(at=fault.at, line=fault.line)
        self._forget_fault(fault)
        return None

    def _stall(self, now: datetime) -> Stall | None:
        state = self._state
        since = state.progress.last_at or state.began_at
        limit = self._limit_s()
        if since is None or limit is None or state.readable_since is None or since == state.stall_taken:
            return None
        settled = (now - state.readable_since).total_seconds() >= min(self._settings.settle_s, limit / 2)
        if not settled or (now - since).total_seconds() < limit:
            return None
        evidence = tuple(line for line in (state.last_marker, state.communication_hang) if line is not None)
        return Stall(since=since, deadline_s=limit, phase=state.phase, evidence=evidence)

    def _limit_s(self) -> float | None:
        """Return how long the attempt may go without a completed marker now; None: for ever."""
        state = self._state
        if state.done:
            return None
        if not self._shows_progress():
            return self._settings.startup_after_s if state.progress.last_at is None else None
        told = state.communication_hang is not None and self._has_stood(state.communication_hang)
        return deadline_s(self._settings, state.paces, state.phase, communication_hang=told)

    def _shows_progress(self) -> bool:
        """A program may show only its checkpoints: their rhythm has to be known before their absence says anything."""
        paces = self._state.paces.items()
        return self._state.iterates or any(len(pace.recent) > 1 for phase, pace in paces if phase is not Phase.START_UP)

    def _has_stood(self, report: Evidence) -> bool:
        now = self._state.looked_at
        if now is None or report.at is None:
            return False
        return (now - report.at).total_seconds() >= self._settings.settle_s
