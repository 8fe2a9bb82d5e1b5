"""The simulated cluster's process: answers requests on a unix socket, lets time pass, runs the jobs' processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import assert_never

import structlog
from pydantic import ValidationError

from activities.scheduler.protocol import JobRecord, JobUnknown, Refused
from activities.scheduler.simulated_wire import (
    MAX_LINE_BYTES,
    REQUEST,
    AllowRequeue,
    Answer,
    Cancel,
    ChangeRequest,
    Constrain,
    ControlRequest,
    EndAttempt,
    ErrorKind,
    FailNode,
    Fault,
    Hold,
    Inject,
    ReadJob,
    ReadJobs,
    ReadNodes,
    ReadRequest,
    ReadScript,
    Release,
    Request,
    Requeue,
    RestoreNode,
    Resubmit,
    Shutdown,
    StartNow,
    Submit,
)
from workers.simulator.cluster import Cluster, Launch, Termination, Timing
from workers.simulator.injection import Injector
from workers.simulator.job_process import JobProcess
from workers.simulator.journal import Journal, JournalLine
from workers.simulator.saved import StateFile

TICK_S = 0.1
BACKLOG = 1_024
"""Connections that may wait to be accepted: a unix socket refuses what is beyond."""
MAX_SOCKET_PATH_BYTES = 100
"""Linux allows 107 and macOS 103 for a unix socket's path."""

log = structlog.get_logger()


def run_simulator(state_dir: Path, socket_path: Path, *, name: str, node_count: int, timing: Timing) -> None:
    """Run a cluster with nodes ``node01``, ``node02``, ... until SIGTERM, SIGINT or a shutdown request. One that was
    killed in `state_dir` comes back with its jobs."""
    state_dir = state_dir.absolute()
    state_dir.mkdir(parents=True, exist_ok=True)
    socket_path.unlink(missing_ok=True)
    cluster = Cluster([f"node{number:02}" for number in range(1, node_count + 1)], state_dir, timing)
    state = StateFile(state_dir)
    try:
        asyncio.run(Simulator(cluster, timing, state, name=name, journal=Journal(state_dir)).serve(socket_path))
    finally:
        socket_path.unlink(missing_ok=True)
        state.remove()


class Simulator:
    """One simulated cluster. When it ends, all its processes end."""

    def __init__(self, cluster: Cluster, timing: Timing, state: StateFile, *, name: str, journal: Journal) -> None:
        self._cluster = cluster
        self._timing = timing
        self._state = state
        self._name = name
        self._journal = journal
        self._injector = Injector(Inject())
        self._processes: dict[str, JobProcess] = {}
        self._attempts: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()

    async def serve(self, socket_path: Path) -> None:
        """Answer on `socket_path`, where nothing may be yet, until a signal or a shutdown request."""
        self._take_up_what_was_left()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        server = await asyncio.start_unix_server(self._converse, socket_path, limit=MAX_LINE_BYTES, backlog=BACKLOG)
        log.info("simulated cluster is up", socket=str(socket_path), cluster=self._name)
        try:
            while not self._stop.is_set():
                self._let_time_pass()
                await self._tick_or_stop()
        finally:
            server.close()
            await self._end_all()

    def _take_up_what_was_left(self) -> None:
        saved, now = self._state.read(), datetime.now(UTC)
        if saved is None:
            return
        self._journal.cut(saved.journal_bytes)
        for lost in self._cluster.restore(saved, now):
            request = FailNode(node=lost.batch_host)
            self._journal.note(
                JournalLine(received_at=now, at=now, request=request, error=ErrorKind.NONE, jobs=(lost,))
            )
        self._save()

    def _save(self) -> None:
        self._state.write(self._cluster.save(journal_bytes=self._journal.size_bytes))

    async def _tick_or_stop(self) -> None:
        try:
            async with asyncio.timeout(TICK_S):
                await self._stop.wait()
        except TimeoutError:
            return

    # --- requests -------------------------------------------------------------------------------------------------

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._answer(await reader.readline())
            if answer is not None:
                writer.write(answer.model_dump_json().encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError) as error:
            # The caller went away, or its line has no end: it sees a closed connection, the cluster carries on.
            log.warning("request dropped", error=str(error))
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> Answer | None:
        """Carry out one request; None when no answer is to be given."""
        try:
            request = REQUEST.validate_json(line)
        except ValidationError as error:
            return Answer(error=ErrorKind.REFUSED, message=f"Not a request: {error}")
        received_at = datetime.now(UTC)
        if not isinstance(request, ReadRequest | ChangeRequest):
            return self._carry_out(request, received_at)
        fault = self._injector.draw()
        if fault is Fault.LOSE_REQUEST:
            return None
        if fault is Fault.DELAY_REQUEST:
            await asyncio.sleep(self._injector.delay_s)
        answer = self._carry_out(request, received_at)
        if fault is Fault.DUPLICATE:
            answer = self._carry_out(request, received_at)
        if fault is Fault.DELAY_ANSWER:
            await asyncio.sleep(self._injector.delay_s)
        return None if fault is Fault.LOSE_ANSWER else answer

    def _carry_out(self, request: Request, received_at: datetime) -> Answer:
        answer = self._try(request)
        if not isinstance(request, ReadRequest):
            jobs, now = self._concerned(request, answer), datetime.now(UTC)
            self._journal.note(
                JournalLine(received_at=received_at, at=now, request=request, error=answer.error, jobs=jobs)
            )
            self._save()
        return answer

    def _try(self, request: Request) -> Answer:
        try:
            if isinstance(request, ReadRequest):
                return self._read(request)
            return self._schedule(request) if isinstance(request, ChangeRequest) else self._control(request)
        except JobUnknown as error:
            return Answer(error=ErrorKind.JOB_UNKNOWN, message=str(error))
        except Refused as error:
            return Answer(error=ErrorKind.REFUSED, message=str(error))

    def _concerned(self, request: Request, answer: Answer) -> tuple[JobRecord, ...]:
        if answer.error is ErrorKind.JOB_UNKNOWN or not (job_id := getattr(request, "job_id", "")):
            return answer.jobs
        return (self._cluster.record(job_id),)

    def _read(self, request: ReadRequest) -> Answer:
        cluster = self._cluster
        match request:
            case ReadJobs():
                return Answer(jobs=cluster.records())
            case ReadJob(job_id=job_id):
                return Answer(jobs=(cluster.record(job_id),))
            case ReadNodes():
                return Answer(nodes=cluster.node_records())
            case ReadScript(job_id=job_id):
                return Answer(spec=cluster.spec(job_id))
            case _:
                assert_never(request)

    def _schedule(self, request: ChangeRequest) -> Answer:
        cluster, now = self._cluster, datetime.now(UTC)
        match request:
            case Requeue(job_id=job_id, held=held):
                self._terminate(cluster.requeue(job_id, now, held=held))
            case Constrain(job_id=job_id, exclude=exclude, admin_comment=admin_comment):
                cluster.constrain(job_id, exclude=exclude, admin_comment=admin_comment)
            case Release(job_id=job_id):
                cluster.release(job_id)
            case StartNow(job_id=job_id, admin_comment=admin_comment):
                cluster.start_now(job_id, now, admin_comment=admin_comment)
            case AllowRequeue(job_id=job_id):
                cluster.allow_requeue(job_id)
            case Cancel(job_id=job_id, by=by):
                self._terminate(cluster.cancel(job_id, now, by=by))
            case Resubmit(spec=spec):
                return Answer(job_id=cluster.submit(spec, now))
            case _:
                assert_never(request)
        return Answer()

    def _control(self, request: ControlRequest) -> Answer:
        cluster, now = self._cluster, datetime.now(UTC)
        match request:
            case Submit(spec=spec):
                return Answer(job_id=cluster.submit(spec, now))
            case Hold(job_id=job_id, admin=admin):
                cluster.hold(job_id, admin=admin)
            case EndAttempt(job_id=job_id, state=state):
                self._terminate(cluster.end_attempt(job_id, state, now))
            case FailNode(node=node):
                hit = cluster.fail_node(node, now)
                self._terminate(hit)
                return Answer(jobs=tuple(cluster.record(termination.job_id) for termination in hit))
            case RestoreNode(node=node):
                cluster.restore_node(node)
            case Inject():
                self._injector = Injector(request)
            case Shutdown():
                self._stop.set()
            case _:
                assert_never(request)
        return Answer()

    # --- attempts -------------------------------------------------------------------------------------------------

    def _let_time_pass(self) -> None:
        for launch in self._cluster.tick(datetime.now(UTC)):
            process = self._processes[launch.job_id] = JobProcess(launch, self._timing, cluster_name=self._name)
            self._save()
            attempt = asyncio.create_task(self._run_attempt(launch, process))
            self._attempts.add(attempt)
            attempt.add_done_callback(self._attempts.discard)

    async def _run_attempt(self, launch: Launch, process: JobProcess) -> None:
        log.info("job starts", job=launch.job_id, attempt=launch.restart_count, nodes=launch.nodes)
        outcome = await process.run()
        del self._processes[launch.job_id]
        self._cluster.attempt_gone(launch.job_id, outcome.exit_code, outcome.exit_signal, datetime.now(UTC))
        self._save()
        log.info("job's processes are gone", job=launch.job_id, attempt=launch.restart_count, **outcome.model_dump())

    def _terminate(self, orders: Iterable[Termination]) -> None:
        for order in orders:
            self._processes[order.job_id].terminate(order)

    async def _end_all(self) -> None:
        for attempt in self._attempts:
            attempt.cancel()
        await asyncio.gather(*self._attempts, return_exceptions=True)
