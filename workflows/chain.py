"""What becomes of the jobs that wait for this one to succeed: told, never touched."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.adopt import RecoveryStart
    from activities.chains import ChainOrder, ChainReader, Stranded
    from recovery.audit import AuditKind
    from workflows.ledger import Ledger
    from workflows.options import chain_options
    from workflows.state import RecoveryState


class Chain:
    """The dependents of one job."""

    def __init__(self, start: RecoveryStart, state: RecoveryState, ledger: Ledger) -> None:
        self._job = start.job
        self._state = state
        self._ledger = ledger

    async def tell_of_all_stranded(self) -> None:
        """Put on record which jobs can't start any more, now that this one has failed for good."""
        try:
            stranded = await workflow.execute_activity_method(
                ChainReader.find_stranded,
                ChainOrder(job=self._job, since=workflow.now()),
                summary="do other jobs wait for this one in vain?",
                **chain_options(self._job.cluster),
            )
        except ActivityError as error:
            workflow.logger.warning("whether others wait for this job in vain is not known: %s", error.cause)
            return
        self.tell_of(stranded, for_good=True)

    def tell_of(self, stranded: Stranded, *, for_good: bool) -> None:
        """Put on record that `stranded` can't start any more. `for_good`: this job does not come back."""
        if stranded.count and stranded != self._state.stranded:
            self._ledger.tell(AuditKind.WARNED, self._in_words(stranded, for_good=for_good))
        self._state.stranded = stranded

    def _in_words(self, stranded: Stranded, *, for_good: bool) -> str:
        if for_good:
            return f"dependents {stranded} can never start: they need this job to succeed"
        remedy = f"scontrol update JobId={stranded.jobs[0]} Dependency=afterok:{self._job.job_id}"
        return (
            f"dependents {stranded} can never start, also when this job comes back: Slurm counts what they wait for as"
            f" failed. `{remedy}` lets one wait again"
        )
