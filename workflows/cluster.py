"""`ClusterWatch`: one per cluster. Finds the jobs that opted in and starts their workflows; rules on their acts as the
cluster's governor; holds the pause switch; and tells people of failures, once for many."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.arrays import ARRAY_QUERY
    from activities.blindness import Blindness
    from activities.discovery import Discovered, DiscoverOrder, Discovery
    from activities.governor import ASK_UPDATE, Asked, Ruled
    from activities.notify import Notifier
    from activities.sources import SOURCES_SIGNAL
    from activities.suspicions import SUSPICIONS_QUERY
    from recovery.arrays import ArrayStanding, TaskFailed
    from recovery.governor import GrantRequest, Limit, Ruling, Tripped, ruling_on
    from recovery.notices import FailureSeen, Notice, NoticeKind
    from recovery.suspects import Suspicion, program_of
    from workflows.cluster_state import ClusterStanding, ClusterStart, Pause
    from workflows.options import NOTIFY_OPTIONS, watch_options
    from workflows.overrides import Answer, Request
    from workflows.visibility import plain

KEPT_REQUESTS = 50
FAILED_SIGNAL = "failed"
TASK_FAILED_SIGNAL = "task_failed"
TASK_COMPLETED_SIGNAL = "task_completed"


@workflow.defn(name="ClusterWatch")
class ClusterWatch:
    """One cluster: a lease of looking after the other, for as long as the operator lets it run."""

    @workflow.init
    def __init__(self, start: ClusterStart) -> None:
        self._cluster = start.cluster
        self._lease = start.lease
        self._adopted = start.adopted
        self._memory = start.memory
        self._telling = False

    @workflow.run
    async def run(self, start: ClusterStart) -> None:
        """Look for jobs until terminated."""
        courier = asyncio.create_task(self._tell_forever())
        while not workflow.info().is_continue_as_new_suggested():
            self._show()
            await self._look_for_jobs()
        await workflow.wait_condition(lambda: workflow.all_handlers_finished() and not self._telling)
        courier.cancel()
        workflow.continue_as_new(start.model_copy(update={"adopted": self._adopted, "memory": self._memory}))

    @workflow.query
    def adopted(self) -> int:
        """Return how many jobs were taken under guard, as of the end of the last lease that came to its end."""
        return self._adopted

    @workflow.query
    def standing(self) -> ClusterStanding:
        """Return the pause and what the governor has granted."""
        return self._memory.standing(workflow.now())

    @workflow.query(name=SUSPICIONS_QUERY)
    def suspicions(self) -> tuple[Suspicion, ...]:
        """Return what jobs that failed within a day say against nodes."""
        return self._memory.suspects.fresh(workflow.now())

    @workflow.update(name=ASK_UPDATE, description="Rule on acts within the limits; for relight's own workers")
    def ask(self, asked: Asked) -> Ruled:
        """Rule on each request, in their order, and note the failures that led to them."""
        self._remember(settings=asked.settings)
        for request in asked.requests:
            if request.failure is not None:
                self.failed(request.failure)
        rulings = tuple(self._rule(request) for request in asked.requests)
        self._show()
        return Ruled(rulings=rulings)

    @workflow.signal(name=FAILED_SIGNAL, description="A job has failed; for relight's own workflows")
    def failed(self, failure: FailureSeen) -> None:
        """Note a failure to tell of, and what it says against nodes. What is systematic in an array is told once for
        all of its tasks."""
        if failure.systematic:
            self._tell_once(failure)
            return
        suspects = self._memory.suspects.with_failure(
            program_of(failure.job, failure.array_id), failure.against, workflow.now()
        )
        self._remember(board=self._memory.board.with_failure(failure), suspects=suspects)

    @workflow.signal(name=TASK_FAILED_SIGNAL, description="A task of an array failed; for relight's own workflows")
    def task_failed(self, failed: TaskFailed) -> None:
        """Remember how a task failed."""
        self._remember(arrays=self._memory.arrays.with_failure(failed, workflow.now()))

    @workflow.signal(
        name=TASK_COMPLETED_SIGNAL, description="A task of an array completed; for relight's own workflows"
    )
    def task_completed(self, array_id: str) -> None:
        """Remember that a task completed."""
        self._remember(arrays=self._memory.arrays.with_completed(array_id, workflow.now()))

    @workflow.query(name=ARRAY_QUERY)
    def array(self, failed: TaskFailed) -> ArrayStanding:
        """Return how the tasks of an array have fared, but for those that run."""
        return self._memory.arrays.standing(failed, workflow.now())

    @workflow.signal(name="refused", description="Whether mode act was refused; for relight's own workers")
    def refused(self, why: str) -> None:
        """Note why acts can't be done here; empty: they can."""
        self._remember(refused=why[:1_000])

    @workflow.signal(name=SOURCES_SIGNAL, description="Which sources can't be seen; for relight's own workers")
    def sources(self, blind: tuple[Blindness, ...]) -> None:
        """Note which sources can't be seen."""
        self._remember(blind=blind)
        self._show()

    @workflow.update(description="Touch nothing on the whole cluster until resumed")
    def pause(self, request: Request) -> Answer:
        """Keep all acts by policy back."""
        return self._obey("pause", request)

    @pause.validator
    def _pause_is_new(self, request: Request) -> None:
        self._refuse_unless_new("pause", request)

    @workflow.update(description="Go on after a pause of the whole cluster")
    def resume(self, request: Request) -> Answer:
        """Let acts go on."""
        return self._obey("resume", request)

    @resume.validator
    def _resume_is_new(self, request: Request) -> None:
        self._refuse_unless_new("resume", request)

    @workflow.signal(name="pause", description="Touch nothing on the whole cluster until resumed")
    def pause_signal(self, request: Request) -> None:
        """Keep all acts by policy back; where that is so already, nothing changes."""
        if not self._refusal("pause", request):
            self._obey("pause", request)

    @workflow.signal(name="resume", description="Go on after a pause of the whole cluster")
    def resume_signal(self, request: Request) -> None:
        """Let acts go on; where nothing is paused, nothing changes."""
        if not self._refusal("resume", request):
            self._obey("resume", request)

    @workflow.update(description="Forget what failed jobs said against nodes: they are repaired")
    def readmit(self, request: Request) -> Answer:
        """Take nodes out of suspicion."""
        return self._obey("readmit", request)

    @readmit.validator
    def _readmit_is_new(self, request: Request) -> None:
        self._refuse_unless_new("readmit", request)

    @workflow.signal(name="readmit", description="Forget what failed jobs said against nodes: they are repaired")
    def readmit_signal(self, request: Request) -> None:
        """Take nodes out of suspicion."""
        if not self._refusal("readmit", request):
            self._obey("readmit", request)

    async def _look_for_jobs(self) -> None:
        """Look for one lease, or until this run has become long."""
        discovery = workflow.start_activity_method(
            Discovery.discover_jobs,
            DiscoverOrder(cluster=self._cluster, lease_s=self._lease.total_seconds()),
            summary=f"look for jobs on {self._cluster}",
            **watch_options(self._cluster),
        )
        await workflow.wait_condition(
            lambda: discovery.done() or workflow.info().is_continue_as_new_suggested(),
        )
        if discovery.done():
            discovered: Discovered = await discovery
            self._adopted += discovered.adopted
            return
        discovery.cancel()
        with suppress(ActivityError):
            await discovery

    def _rule(self, request: GrantRequest) -> Ruling:
        """A pause comes before all limits."""
        if self._memory.pause is not None:
            return Tripped(limit=Limit.PAUSED, says=self._memory.pause.says)
        now = workflow.now()
        governor, ruling = ruling_on(self._memory.governor, request, self._memory.settings, now)
        self._remember(governor=governor)
        if isinstance(ruling, Tripped):
            self._trip(ruling, now)
        return ruling

    def _trip(self, tripped: Tripped, now: datetime) -> None:
        """Tell people once, however many acts are kept back until the limits have been kept for a whole window."""
        if not self._memory.is_tripped(now):
            until = f" until about {tripped.until:%H:%M:%S} UTC" if tripped.until else ""
            text = f"the governor keeps restarts on {self._cluster} back{until}: {tripped.says}"
            self._put_up(NoticeKind.GOVERNOR_TRIPPED, text)
        self._remember(tripped=tripped, tripped_at=now)

    def _obey(self, verb: str, request: Request) -> Answer:
        memory = self._memory
        if request.request_id and request.request_id in memory.request_ids:
            return Answer(text=f"{verb} was accepted before")
        self._remember(request_ids=tuple(filter(None, (*memory.request_ids, request.request_id)))[-KEPT_REQUESTS:])
        by = f"by {request.who}" + (f": {request.reason}" if request.reason else "")
        if verb == "pause":
            self._remember(pause=Pause(who=request.who, reason=request.reason, since=workflow.now()))
            self._put_up(NoticeKind.PAUSED, f"cluster {self._cluster} was paused {by}")
        elif verb == "resume":
            self._remember(pause=None)
            self._put_up(NoticeKind.RESUMED, f"cluster {self._cluster} was resumed {by}")
        else:
            self._remember(suspects=memory.suspects.without(request.nodes))
            self._put_up(NoticeKind.READMITTED, f"{self._cluster}: {', '.join(request.nodes)} readmitted {by}")
        self._show()
        return Answer(text=f"{verb} accepted")

    def _refuse_unless_new(self, verb: str, request: Request) -> None:
        if request.request_id in self._memory.request_ids:
            return
        if problem := self._refusal(verb, request):
            raise ValueError(problem)

    def _refusal(self, verb: str, request: Request) -> str:
        pause = self._memory.pause
        if verb == "pause" and pause is not None:
            return f"{pause.says} already"
        if verb == "resume" and pause is None:
            return "the cluster is not paused"
        return "readmit needs at least one node" if verb == "readmit" and not request.nodes else ""

    def _tell_once(self, failure: FailureSeen) -> None:
        array_id, arrays, now = failure.array_id, self._memory.arrays, workflow.now()
        if failure.fingerprint in arrays.of(array_id, now).told:
            return
        self._remember(arrays=arrays.with_told(array_id, failure.fingerprint, now))
        text = f"array {self._cluster}/{array_id}: {failure.systematic}. {failure.what} Advice for each of them: stop."
        self._put_up(NoticeKind.ARRAY_SYSTEMATIC, f"{text} What still runs or waits of it is for its owner to cancel.")

    def _put_up(self, kind: NoticeKind, text: str) -> None:
        notice = Notice(kind=kind, cluster=self._cluster, at=workflow.now(), text=text)
        self._remember(board=self._memory.board.with_notice(notice))

    async def _tell_forever(self) -> None:
        """Deliver notices beside the main loop, one at a time. One that can't be delivered is given up: it stands in
        the worker's log."""
        while True:
            await workflow.wait_condition(lambda: bool(self._memory.board.waiting or self._memory.board.gathered.count))
            if not self._memory.board.waiting and (quiet := self._memory.board.quiet_for(workflow.now())):
                with suppress(TimeoutError):
                    await workflow.wait_condition(
                        lambda: bool(self._memory.board.waiting),
                        timeout=quiet,
                        timeout_summary="gather failures into one message",
                    )
            self._remember(board=self._memory.board.summed_up(self._cluster, workflow.now()))
            for notice in self._memory.board.waiting:
                await self._tell(notice)

    async def _tell(self, notice: Notice) -> None:
        self._telling = True
        try:
            await workflow.execute_activity_method(
                Notifier.notify, notice, summary=f"tell: {notice.kind.value}", **NOTIFY_OPTIONS
            )
        except ActivityError as error:
            workflow.logger.warning("a notice was not delivered: %s", error.cause)
        finally:
            self._telling = False
        self._remember(board=self._memory.board.without(notice))

    def _remember(self, **changes: object) -> None:
        self._memory = self._memory.model_copy(update=changes)

    def _show(self) -> None:
        lines = [f"looking for opted-in jobs · {self._adopted} taken under guard so far"]
        if self._memory.pause is not None:
            lines.append(f"**{self._memory.pause.says}**")
        standing = self.standing()
        lines.append(f"{standing.restarts} restarts granted within the window")
        if standing.tripped is not None:
            lines.append(f"**the governor keeps acts back**: {standing.tripped.says}")
        lines += [f"**{plain(each.says)}**" for each in standing.blind]
        workflow.set_current_details("\n\n".join(lines))
