"""Follows an attempt through its markers: where it is, how far it came, and how long its intervals are."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime

from recovery.detection.drift import Drift
from recovery.detection.markers import (
    CheckpointBegun,
    CheckpointFinished,
    CheckpointLoaded,
    CheckpointLoading,
    EvaluationFinished,
    EvaluationStep,
    IterationFinished,
    Marker,
    Phase,
    PhaseChanged,
    TrainingCompleted,
)
from recovery.detection.pace import Pace
from recovery.detection.state import MonitorState
from recovery.detection.straggler import OF_THE_JOB
from recovery.model import Evidence

_MOST_ITERATIONS_A_LINE = 100_000
_LEAST_TIMED_S = 10.0
"""Shorter intervals between lines say more of when they were read than of the training."""
_LONGEST_STATED_S = 4 * 3_600.0
"""A line's own step time is believed up to here."""

Quote = Callable[[], Evidence]


def follow(state: MonitorState, marker: Marker, at: datetime, quote: Quote) -> MonitorState:
    """Return the state after `marker`, read at `at`; `quote` gives its line as evidence."""
    match marker:
        case IterationFinished():
            return _iteration(state, marker, at, quote)
        case EvaluationStep():
            return _evaluation_step(state, marker, at, quote)
        case EvaluationFinished():
            return _completed(state, at, quote, spent_in=Phase.EVALUATE, then=Phase.TRAIN)
        case CheckpointBegun():
            return _enter(state, Phase.CHECKPOINT).model_copy(update={"writing": marker})
        case CheckpointFinished():
            return _checkpoint_finished(state, marker, at, quote)
        case CheckpointLoading():
            return _enter(state, Phase.START_UP).model_copy(update={"loading": marker, "rewound": True})
        case CheckpointLoaded():
            return _checkpoint_loaded(state, marker, at, quote)
        case PhaseChanged():
            return _phase_changed(state, marker.phase)
        case TrainingCompleted():
            return state.model_copy(update={"done": True})


def _enter(state: MonitorState, phase: Phase) -> MonitorState:
    progress = state.progress.model_copy(update={"phase": phase.value})
    return state.model_copy(update={"phase": phase, "progress": progress})


def _phase_changed(state: MonitorState, phase: Phase) -> MonitorState:
    """The bars of a new training loop may have another length."""
    state = _enter(state, phase)
    if phase is Phase.START_UP:
        return state.model_copy(update={"rewound": True})
    return state.model_copy(update={"bar_total": None}) if phase is Phase.TRAIN else state


def _iteration(state: MonitorState, marker: IterationFinished, at: datetime, quote: Quote) -> MonitorState:
    if _is_other_loop(state, marker):
        return _evaluation_step(state, EvaluationStep(n=marker.n or 0, total=marker.total), at, quote)
    if marker.n is not None and marker.n == state.last_n and not state.rewound:
        return state
    state = _with_pace_of_training(state, marker, at)
    state = _completed(state, at, quote, spent_in=state.phase, then=Phase.TRAIN, stated_s=_stated_s(state, marker))
    progress = state.progress
    highest = marker.n
    if progress.iteration is not None and not state.rewound:
        highest = max(progress.iteration, marker.n or 0)
    changes: dict[str, object] = {} if highest is None else {"iteration": highest}
    if progress.first_iteration is None:
        changes["first_iteration"] = marker.n
    if progress.resumed_from is None and _has_resumed(state.loading, marker):
        changes["resumed_from"] = state.loading.iteration if state.loading is not None else None
    writing = state.writing
    if writing is not None and writing.blocks_training and _is_past(writing.iteration, marker.n):
        changes["checkpoint"] = writing.iteration
        writing = None
    return state.model_copy(
        update={
            "progress": progress.model_copy(update=changes),
            "last_n": marker.n if marker.n is not None else state.last_n,
            "last_evaluation": None,
            "bar_total": marker.total if marker.from_bar else state.bar_total,
            "iterates": True,
            "rewound": False,
            "done": False,
            "writing": writing,
            "loading": None,
        }
    )


def _iteration_time_s(state: MonitorState, marker: IterationFinished, at: datetime) -> float:
    """Return the seconds per iteration; 0 when they are not known well. Bars round and smooth what they show."""
    if state.phase is not Phase.TRAIN or state.rewound or marker.from_bar:
        return 0.0
    if marker.step_time_s is not None:
        return marker.step_time_s
    since, last_n = state.progress.last_at, state.last_n
    if since is None or last_n is None or marker.n is None or marker.n <= last_n or not state.watched_throughout:
        return 0.0
    interval_s = (at - since).total_seconds()
    return interval_s / (marker.n - last_n) if interval_s >= _LEAST_TIMED_S else 0.0


def _with_pace_of_training(state: MonitorState, marker: IterationFinished, at: datetime) -> MonitorState:
    """A larger batch takes longer without being slow: iterations are compared with those of the same batch size."""
    batch = state.batch if marker.batch is None else marker.batch
    before = state.drift if batch == state.batch else Drift()
    drift = before.after(_iteration_time_s(state, marker, at), OF_THE_JOB)
    slow_since = (state.slow_since or at) if drift.suspected else None
    return state.model_copy(update={"drift": drift, "batch": batch, "slow_since": slow_since})


def _is_other_loop(state: MonitorState, marker: IterationFinished) -> bool:
    """A bar of another length than the training loop's is drawn by another loop, such as an evaluation."""
    return marker.from_bar and None not in (state.bar_total, marker.total) and marker.total != state.bar_total


def _is_past(iteration: int | None, n: int | None) -> bool:
    return iteration is None or n is None or n > iteration


def _has_resumed(loading: CheckpointLoading | None, marker: IterationFinished) -> bool:
    """Not every program says that it has loaded; an iteration past the checkpoint's shows it."""
    if loading is None or loading.iteration is None or marker.n is None:
        return False
    return marker.n > loading.iteration


def _stated_s(state: MonitorState, marker: IterationFinished) -> float:
    """Return how long the iterations since the last line took by the line's own account; 0 when it does not say."""
    if marker.step_time_s is None or marker.n is None or state.last_n is None or state.rewound:
        return 0.0
    stated = marker.step_time_s * (marker.n - state.last_n)
    if marker.n - state.last_n > _MOST_ITERATIONS_A_LINE or not math.isfinite(stated):
        return 0.0
    return min(max(stated, 0.0), _LONGEST_STATED_S)


def _evaluation_step(state: MonitorState, marker: EvaluationStep, at: datetime, quote: Quote) -> MonitorState:
    if (marker.n, marker.total) == state.last_evaluation:
        return state
    state = _completed(state, at, quote, spent_in=Phase.EVALUATE, then=Phase.EVALUATE)
    return state.model_copy(update={"last_evaluation": (marker.n, marker.total)})


def _checkpoint_finished(state: MonitorState, marker: CheckpointFinished, at: datetime, quote: Quote) -> MonitorState:
    """Every rank may print this: only the first line of a checkpoint is progress."""
    if marker.iteration is not None and marker.iteration == state.progress.checkpoint:
        return state
    iteration = marker.iteration
    if iteration is None:
        iteration = state.writing.iteration if state.writing is not None else None
    if iteration is None:
        iteration = state.progress.iteration
    then = Phase.TRAIN if state.phase in (Phase.CHECKPOINT, Phase.START_UP) else state.phase
    state = _completed(state, at, quote, spent_in=state.phase, then=then)
    progress = state.progress.model_copy(update={"checkpoint": iteration})
    return state.model_copy(update={"progress": progress, "writing": None})


def _checkpoint_loaded(state: MonitorState, marker: CheckpointLoaded, at: datetime, quote: Quote) -> MonitorState:
    """The attempt's start counts: what workers load when they start again within it is not noted."""
    iteration = marker.iteration
    if iteration is None and state.loading is not None:
        iteration = state.loading.iteration
    state = _completed(state, at, quote, spent_in=Phase.START_UP, then=Phase.START_UP)
    progress = state.progress
    if progress.resumed_from is None and progress.iteration is None:
        progress = progress.model_copy(update={"resumed_from": iteration})
    return state.model_copy(update={"progress": progress, "loading": None, "rewound": True})


def _completed(
    state: MonitorState, at: datetime, quote: Quote, *, spent_in: Phase, then: Phase, stated_s: float = 0.0
) -> MonitorState:
    """Count a completed marker: the interval that ends with it, and all that it ends the waiting for."""
    since = state.progress.last_at
    spent_in = Phase.START_UP if since is None else spent_in
    since = since or state.began_at or at
    watched_s = max(0.0, (at - since).total_seconds()) if state.watched_throughout else 0.0
    pace = state.paces.get(spent_in, Pace()).with_interval(watched_s or stated_s)
    progress = state.progress.model_copy(
        update={
            "last_at": at,
            "longest_interval_s": max(state.progress.longest_interval_s, round(watched_s, 3)),
            "phase": then.value,
        }
    )
    return state.model_copy(
        update={
            "progress": progress,
            "phase": then,
            "paces": {**state.paces, spent_in: pace},
            "watched_throughout": True,
            "last_marker": quote(),
            "communication_hang": None,
            "fault": state.fault.with_marker(at) if state.fault is not None else None,
        }
    )
