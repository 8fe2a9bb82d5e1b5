"""What people see of a workflow in Temporal's own UI: search attributes, summary and current details."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

with workflow.unsafe.imports_passed_through():
    from activities.adopt import PHASE, RecoveryStart
    from workflows.state import Entry, RecoveryState

CLUSTER = SearchAttributeKey.for_keyword("Cluster")
SLURM_JOB_ID = SearchAttributeKey.for_keyword("SlurmJobId")
SLURM_USER = SearchAttributeKey.for_keyword("SlurmUser")
MODE = SearchAttributeKey.for_keyword("RecoveryMode")
CATEGORY = SearchAttributeKey.for_keyword("FailureCategory")
RESTARTS = SearchAttributeKey.for_int("Restarts")
EXCLUDED_NODES = SearchAttributeKey.for_keyword_list("ExcludedNodes")
BLIND_SINCE = SearchAttributeKey.for_keyword("BlindSince")
"""In ISO 8601, UTC; empty once it is in sight again: ``BlindSince > ''`` selects the jobs that can't be seen now."""

ALL_KEYS = (CLUSTER, SLURM_JOB_ID, SLURM_USER, PHASE, MODE, CATEGORY, RESTARTS, EXCLUDED_NODES, BLIND_SINCE)
"""To be registered before the first workflow: an unknown one fails every workflow task."""

SHOWN_ENTRIES = 12


class Window:
    """Shows the state; an upsert is a history event, so only what changed is written."""

    def __init__(self, start: RecoveryStart, state: RecoveryState) -> None:
        self._start = start
        self._state = state
        self._shown: dict[str, SearchAttributeUpdate[Any]] = {}

    def show(self) -> None:
        """Bring search attributes and details up to date."""
        now = {update.key.name: update for update in self._attributes()}
        changed = [update for name, update in now.items() if self._shown.get(name) != update]
        self._shown = now
        if changed:
            workflow.upsert_search_attributes(changed)
        workflow.set_current_details(details(self._start, self._state))

    def _attributes(self) -> list[SearchAttributeUpdate[Any]]:
        start, state = self._start, self._state
        shown: list[SearchAttributeUpdate[Any]] = [
            CLUSTER.value_set(start.job.cluster),
            SLURM_JOB_ID.value_set(start.job.job_id),
            SLURM_USER.value_set(start.record.user or "unknown"),
            PHASE.value_set(state.phase.value),
            MODE.value_set(state.mode(start.optin).value),
            RESTARTS.value_set(state.attempt),
            EXCLUDED_NODES.value_set([exclusion.node for exclusion in state.exclusions]),
        ]
        if state.verdict is not None:
            shown.append(CATEGORY.value_set(state.verdict.category.value))
        if state.blind_since is not None:
            shown.append(BLIND_SINCE.value_set(f"{state.blind_since.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"))
        elif BLIND_SINCE.name in self._shown:
            shown.append(BLIND_SINCE.value_set(""))
        return shown


def details(start: RecoveryStart, state: RecoveryState) -> str:
    """Return the state as Markdown for the workflow's page."""
    lines = [
        f"**{state.phase.value.replace('_', ' ')}** · attempt {state.attempt} · mode {state.mode(start.optin).value}",
    ]
    if state.progress.iteration is not None:
        checkpoint = state.progress.checkpoint
        lines.append(f"iteration {state.progress.iteration}, checkpoint {'none' if checkpoint is None else checkpoint}")
    if state.blind_since is not None:
        lines.append(f"**blind** since {state.blind_since:%H:%M:%S}: {plain(state.blind_because)}")
    if state.lost_lines:
        lines.append(f"{state.lost_lines} lines of this attempt were lost on their way")
    if state.verdict is not None:
        lines.append(f"verdict: {plain(state.verdict.summary)}")
    if state.advice is not None:
        done = state.reconciliation.disposition.value if state.reconciliation else "not carried out yet"
        lines.append(f"advice: {state.advice.action.value}, {plain(state.advice.reason)} — {done}")
    if state.exclusions:
        lines.append("excluded: " + ", ".join(exclusion.node for exclusion in state.exclusions))
    rows = [_row(entry) for entry in state.timeline[-SHOWN_ENTRIES:]]
    return "\n\n".join(lines) + "\n\n| time | | |\n|---|---|---|\n" + "\n".join(rows)


def _row(entry: Entry) -> str:
    who = f" ({plain(entry.who)})" if entry.who else ""
    return f"| {entry.at:%H:%M:%S} | {entry.kind}{who} | {plain(entry.text)} |"


def plain(text: str) -> str:
    """Outside text in Markdown: no markup, no table breaks."""
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, "\\" + sign if sign != "|" else "/")
    return " ".join(text.split())
