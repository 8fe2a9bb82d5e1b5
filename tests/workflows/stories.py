"""Whole lives of jobs, and of a cluster: run without a workflow cache, recorded, and replayed against today's code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from temporalio.client import WorkflowHandle

from activities.chains import Stranded
from activities.governor import GovernorDesk
from activities.scheduler.protocol import JobState
from recovery.governor import GovernorSettings, GrantRequest, Limit, Tripped
from recovery.model import Mode
from recovery.notices import FailureSeen
from recovery.opinion import Hint, NoOpinion, Opinion
from recovery.optin import OptIn
from tests.workflows import parts
from tests.workflows.parts import by
from tests.workflows.stage import Stage, eventually
from workflows.cluster_state import ClusterMemory
from workflows.overrides import Answer
from workflows.state import Phase

Handle = WorkflowHandle[Any, Any]
Story = Callable[[Stage], Awaitable[Handle]]
"""Returns the workflow once the story has come to its end."""


async def healthy(stage: Stage) -> Handle:
    """Two leases, a log that is away for a while, and the end."""
    return await _told(stage, parts.lease_over(), parts.blind(), parts.sighted(), parts.lease_over(), parts.completed())


async def bad_node(stage: Stage) -> Handle:
    """A node breaks, and the job comes back without it."""
    stage.verdict = parts.bad_node("node02")
    return await _told(
        stage, parts.ended(exit_code=1, checkpoint=100), parts.allocated(), parts.resumed(101), parts.completed()
    )


async def resubmitted(stage: Stage) -> Handle:
    """A job that can't be requeued is submitted anew without its bad node."""
    stage.verdict = parts.bad_node("node02")
    stage.outcomes = [parts.abandoned("not_requeueable")]
    job = await stage.adopt(parts.RESUBMIT)
    stage.reports(parts.ended(exit_code=1, checkpoint=100))
    await job.report()
    return job.handle


async def singleton_chain(stage: Stage) -> Handle:
    """A job of a chain breaks: the next one is kept off its bad node at the fatal line, and again at the end."""
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt(optin=OptIn(mode=Mode.ACT, chain=True))
    stage.reports(parts.faulted(certain=False), parts.ended(exit_code=1))
    await job.report()
    return job.handle


async def user_error(stage: Stage) -> Handle:
    """The program's own error: one retry, then a stop."""
    stage.verdict = parts.user_error()
    return await _told(stage, parts.ended(exit_code=1), parts.allocated(), parts.ended(exit_code=1))


async def hang(stage: Stage) -> Handle:
    """A hang is killed."""
    return await _told(stage, parts.stalled(), parts.allocated(), parts.resumed(), parts.completed())


async def evidence(stage: Stage) -> Handle:
    """A hang is killed twice: once what it showed is kept, once nothing is kept in time."""
    job = await stage.adopt()
    stage.reports(parts.stalled(), parts.allocated(), parts.resumed())
    await job.until(lambda state: state.attempt == 1)
    stage.evidence.fails(2)
    stage.reports(parts.stalled(), parts.allocated(), parts.resumed(), parts.completed())
    await job.report()
    return job.handle


async def fatal_line(stage: Stage) -> Handle:
    """A fatal line that is survived, and one that is not."""
    job = await stage.adopt()
    stage.reports(parts.faulted(certain=False), parts.survived())
    await job.until(lambda state: state.generation == 1 and state.advice is None)
    stage.verdict = parts.bad_node("node03")
    stage.reports(parts.faulted(certain=False), parts.ended(exit_code=1), parts.allocated(), parts.completed())
    await job.report()
    return job.handle


async def requeued_by_slurm(stage: Stage) -> Handle:
    """Slurm requeues by itself: once without a culprit, once with one."""
    job = await stage.adopt()
    stage.reports(parts.requeued())
    await job.until(lambda state: state.attempt == 1)
    stage.verdict = parts.bad_node("node04")
    stage.reports(parts.requeued(), parts.allocated(), parts.resumed(), parts.completed())
    await job.report()
    return job.handle


async def observed_then_acted(stage: Stage) -> Handle:
    """Observe records the advice; a person sets the mode to act."""
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt(optin=OptIn(mode=Mode.OBSERVE, warning="unknown key"))
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.ended)
    await job.says("mode", by("ana", "convinced", mode=Mode.ACT, request_id="1"))
    await job.until(lambda state: state.attempt == 1)
    stage.reports(parts.allocated(), parts.resumed(), parts.completed())
    await job.report()
    return job.handle


async def approval(stage: Stage) -> Handle:
    """People change the advice that waits, approve it, and reject the next one."""
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt(parts.APPROVAL)
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.phase is Phase.AWAITING_APPROVAL)
    await job.says("exclude", by("ben", "it flaps", nodes=("node03",)))
    await job.says("readmit", by("ben", "repaired", nodes=("node02",)))
    await job.until(lambda state: state.generation == 3)
    await job.says("approve", by("ana", generation=3))
    await job.until(lambda state: state.attempt == 1)
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.phase is Phase.AWAITING_APPROVAL)
    await job.says("reject", by("ana", "enough"))
    stage.reports(parts.gone())
    await job.report()
    return job.handle


async def people(stage: Stage) -> Handle:
    """Pause, resume, restart, readmit and stop, as updates and as a signal that is refused."""
    job = await stage.adopt()
    await job.says("pause", by("ana", "maintenance"))
    stage.reports(parts.ended(exit_code=1))
    await eventually(lambda: "audit:detected" in stage.program)
    await job.signals("approve", by("ana"))
    await job.says("resume", by("ana"))
    await job.until(lambda state: state.attempt == 1)
    await job.says("exclude", by("ana", nodes=("node03",)))
    await job.says("restart", by("ana", "off node03"))
    await job.until(lambda state: state.attempt == 2)
    await job.says("readmit", by("ana", nodes=("node03",)))
    await job.signals("stop", by("ben", "wrong data"))
    await job.report()
    return job.handle


async def kept_waiting(stage: Stage) -> Handle:
    """A job can't start without a node that it is kept off; the next time a person readmits the node."""
    stage.verdict = parts.bad_node("node02")
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.cannot_start("node02"), parts.allocated(), parts.resumed())
    await job.until(lambda state: state.attempt == 1 and not state.recovering)
    stage.reports(parts.ended(exit_code=1, checkpoint=1))
    await job.until(lambda state: state.attempt == 2)
    await job.says("readmit", by("ana", "repaired", nodes=("node02",)))
    await eventually(lambda: len(stage.orders) == 4)
    stage.reports(parts.allocated(), parts.resumed(), parts.completed())
    await job.report()
    return job.handle


async def no_answers(stage: Stage) -> Handle:
    """Attribution, policy, audit trail and telemetry all fail, and the job comes back."""
    for trouble in (stage.attribution, stage.decision, stage.telemetry):
        trouble.gives_up()
    stage.trail.fails()
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1), parts.allocated(), parts.resumed())
    await job.until(lambda state: state.attempt == 1 and not state.recovering)
    stage.trail.is_over()
    stage.reports(parts.completed())
    await job.report()
    return job.handle


async def cancelled(stage: Stage) -> Handle:
    """The owner cancels after a restart."""
    return await _told(stage, parts.ended(exit_code=1), parts.ended(JobState.CANCELLED, cancelled_by="ana"))


async def array_task(stage: Stage) -> Handle:
    """A task of an array fails, hears of its siblings, and comes back, while another job waits for it in vain."""
    await stage.look_after_cluster()
    stage.verdict = parts.user_error()
    job = await stage.adopt(job_id="3_1", array_job_id="3")
    waiting = parts.stranded(Stranded(jobs=("12",), count=1))
    stage.reports(parts.ended(exit_code=1), waiting, parts.allocated(), parts.resumed(), parts.completed())
    await job.report()
    return job.handle


async def cluster(stage: Stage) -> Handle:
    """Three leases of looking for jobs."""
    stage.discovery_leases = 3
    handle = await stage.look_after_cluster()
    await eventually(lambda: len(stage.discoveries) == stage.discovery_leases)
    return handle


async def kept_back(stage: Stage) -> Handle:
    """The governor has no room for the restart; a person insists."""
    stage.rulings = [Tripped(limit=Limit.RESTARTS, says="3 restarts in the last 10 min, the limit is 3")]
    job = await stage.adopt()
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.phase is Phase.KEPT_BACK)
    await job.says("restart", by("ana", "it may"))
    await job.until(lambda state: state.attempt == 1)
    stage.reports(parts.allocated(), parts.completed())
    await job.report()
    return job.handle


async def slow_down(stage: Stage) -> Handle:
    """Training slows down, which is told and never acted on."""
    return await _told(stage, parts.slowed(), parts.completed())


async def handed_on(stage: Stage) -> Handle:
    """A run that goes on where an earlier one stood, with its exclusions, its past and a trail that is away."""
    stage.verdict = parts.bad_node("node02")
    earlier = await stage.adopt()
    stage.reports(parts.ended(exit_code=1, checkpoint=100))
    await earlier.until(lambda state: state.attempt == 1)
    stage.trail.fails()
    await earlier.says("exclude", by("ana", "it flaps", nodes=("node03",), request_id="1"))
    state = await earlier.until(lambda state: len(state.exclusions) == 2)
    await earlier.handle.terminate("its next run takes over")
    stage.trail.is_over()
    key = earlier.key.model_copy(update={"job_id": "999"})
    job = await stage.start(parts.start(key, parts.ACT), state)
    stage.reports(parts.resumed(101), parts.ended(exit_code=1), parts.completed())
    await job.report()
    return job.handle


async def second_opinion(stage: Stage) -> Handle:
    """A service says stop once the job has been restarted, and has no opinion on the next failure."""
    stop = Opinion(says="nvrx", hint=Hint.STOP, text="budget exhausted", received_at=parts.SUBMITTED_AT)
    job = await stage.adopt(parts.ACT.model_copy(update={"second_opinion_s": 180.0}))
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.attempt == 1)
    stage.opinion = stop
    await job.until(lambda state: state.asking is None)
    stage.opinion = None
    stage.terms = parts.APPROVAL.model_copy(update={"second_opinion_s": 180.0})
    stage.reports(parts.allocated(), parts.resumed(101), parts.ended(exit_code=1, checkpoint=150))
    await job.until(lambda state: state.phase is Phase.AWAITING_APPROVAL)
    stage.opinion = NoOpinion(says="nvrx", reason="HTTP 503; see its log", received_at=parts.SUBMITTED_AT)
    await job.until(lambda state: state.asking is None)
    await job.says("approve", by("ana", request_id="1"))
    stage.reports(parts.completed())
    await job.report()
    return job.handle


async def heard_out(stage: Stage) -> Handle:
    """A service says stop of a failure when the job has completed already."""
    job = await stage.adopt(parts.ACT.model_copy(update={"second_opinion_s": 180.0}))
    stage.reports(parts.ended(exit_code=1), parts.allocated(), parts.resumed(101), parts.completed())
    await job.until(lambda state: state.phase is Phase.CLOSED)
    stage.opinion = Opinion(says="nvrx", hint=Hint.STOP, text="budget exhausted", received_at=parts.SUBMITTED_AT)
    await job.report()
    return job.handle


async def stop_at_once(stage: Stage) -> Handle:
    """A service says stop of a failure whose restart the governor keeps back."""
    stage.rulings = [Tripped(limit=Limit.RESTARTS, says="3 restarts in the last 10 min, the limit is 3")]
    job = await stage.adopt(parts.ACT.model_copy(update={"second_opinion_s": 180.0}))
    stage.reports(parts.ended(exit_code=1))
    await job.until(lambda state: state.phase is Phase.KEPT_BACK)
    stage.opinion = Opinion(says="nvrx", hint=Hint.STOP, text="budget exhausted", received_at=parts.SUBMITTED_AT)
    await job.report()
    return job.handle


async def cluster_asked(stage: Stage) -> Handle:
    """The governor is asked, the cluster paused and resumed, mode act refused, and a failure told of."""
    stage.discovery_leases = 1
    stage.desk = GovernorDesk(stage.client, stage.cluster, GovernorSettings(restarts=1))
    handle = await stage.look_after_cluster(adopted=3, memory=ClusterMemory(refused="scontrol is not there"))
    await handle.signal("refused", "")
    for number, verb in enumerate(("pause", "resume")):
        await handle.execute_update(verb, by("ana", "maintenance", request_id=verb), result_type=Answer)
        await stage.desk.ask_governor(GrantRequest(key=f"a#{number}", excluded_until=await stage.clock()))
    await handle.signal("failed", FailureSeen(job="c1/1", partition="main", what="a bug", advice="stop"))
    await eventually(lambda: bool(stage.notices))
    return handle


async def _told(stage: Stage, *scenes: parts.Scene) -> Handle:
    job = await stage.adopt()
    stage.reports(*scenes)
    await job.report()
    return job.handle


STORIES: dict[str, Story] = {
    story.__name__: story
    for story in (
        healthy,
        bad_node,
        resubmitted,
        singleton_chain,
        user_error,
        hang,
        evidence,
        fatal_line,
        requeued_by_slurm,
        observed_then_acted,
        approval,
        people,
        no_answers,
        cancelled,
        array_task,
        kept_back,
        kept_waiting,
        slow_down,
        handed_on,
        second_opinion,
        heard_out,
        stop_at_once,
        cluster,
        cluster_asked,
    )
}
