"""The one way to be sure: a marked line is printed by a real job and looked for where its lines should be read.

A marked line ends with its token again, and says when it was printed by the clock of the node that printed it, so that
one that is cut, stamped wrongly or late can be told from one that is well.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from dataclasses import dataclass
from datetime import timedelta

from activities.logs.files import FileTail
from activities.logs.protocol import LogCursor
from activities.logs.stores.protocol import Sample, SurveyedStore, Window
from activities.logs.stores.settings import LokiSettings, VictoriaLogsSettings
from activities.scheduler.protocol import JobRecord
from activities.scheduler.submission import Submission
from activities.stores.errors import StoreError
from recovery.model import JobId
from workers.doctor.checks import Check, Finding, failed, ok, unknown
from workers.doctor.logs_labels import ALIASES, wrong_cluster, wrong_job
from workers.doctor.logs_store import AHEAD_NS, SKEW_S, refused, tenant_with_lines
from workers.doctor.slurm_probe import MARK, NAME
from workers.log_sources import make_log_store

PAUSE_S = 0.5
PADDING_CHARS = 8_000
"""As long as the longest lines of evidence, such as a traceback in one line."""
_END = "end"
_PRINTED = re.compile(r"printed=(\d{1,12})\b")


@dataclass(frozen=True)
class Mark:
    """What is looked for, and what is known of it."""

    token: str
    wait_s: float
    job: JobRecord | None = None
    """None: the operator prints it in a job of his own."""
    not_before_s: float = 0.0
    """Since the epoch, by this host's clock: before that the line was not printed."""

    @property
    def job_ids(self) -> set[JobId]:
        """Whose line it is; empty where that is not known."""
        return {self.job.job_id} if self.job else set()


def marked_line(token: str, printed: str) -> str:
    """Return the line that a probe prints; `printed` is in seconds since the epoch."""
    return f"{NAME} {token} printed={printed} {'x' * PADDING_CHARS} {token} {_END}"


def submission(token: str, directory: str) -> Submission:
    """Return a job that prints the line to where jobs in `directory` do, and stays until it is cancelled."""
    return Submission(
        script=f'#!/bin/sh\necho "{marked_line(token, "$(date +%s)")}"\nexec sleep 600\n',
        name=NAME,
        comment=MARK,
        node_count=1,
        time_limit=timedelta(minutes=10),
        working_directory=directory,
    )


async def await_in_files(mark: Mark) -> tuple[Check, ...]:
    """Wait for the line in the files of the probe."""
    if mark.job is None:
        return (unknown("output", "nobody says whose file the line is in", "probe files with --probe"),)
    tail = FileTail()
    deadline_s = time.monotonic() + mark.wait_s
    paths = tail.sources(mark.job)
    detail = "it writes to no file"
    try:
        while True:
            for path in paths:
                chunk = await tail.read(LogCursor(source=path))
                if any(mark.token in line.text for line in chunk.lines):
                    return (ok("output", f"its line stands in {path}"),)
                detail = f"{path} is {chunk.state.value}: {chunk.detail or 'the line is not in it'}"
            if time.monotonic() > deadline_s or not paths:
                remedy = "mount the jobs' file system here under the same path, readable for relight's account"
                return (failed("output", detail, remedy),)
            await asyncio.sleep(PAUSE_S)
    finally:
        await tail.close()


async def await_in_store(settings: LokiSettings | VictoriaLogsSettings, cluster: str, mark: Mark) -> tuple[Check, ...]:
    """Wait for the line in a store, under whatever labels, and return what each link on its way came to."""
    store = make_log_store(settings, cluster)
    try:
        return await _awaited(store, settings, cluster, mark)
    except StoreError as error:
        return (refused(error),)
    finally:
        await store.close()


async def _awaited(
    store: SurveyedStore, settings: LokiSettings | VictoriaLogsSettings, cluster: str, mark: Mark
) -> tuple[Check, ...]:
    deadline_s = time.monotonic() + mark.wait_s
    by = tuple(dict.fromkeys((settings.labels.job_id, *ALIASES["job_id"])))
    looks = 0
    while True:
        now_ns = time.time_ns()
        window = Window(now_ns - AHEAD_NS, now_ns + AHEAD_NS)
        pieces = await store.survey(window, 10, labels=by, containing=mark.token)
        if head := next((piece for piece in pieces if not _is_rest(piece, mark.token)), None):
            labels = await _labels(store, settings, cluster, mark, head)
            times = _time(head, mark.not_before_s)
            delay = unknown("delay", "it can't be told while times are wrong")
            if times.finding is not Finding.FAILED:
                delay = _delay(head, settings.late_s, looks)
            return (labels, _length(pieces, head, mark.token), times, delay)
        if time.monotonic() > deadline_s:
            return (await _nowhere(store, settings, cluster, mark, window),)
        looks += 1
        await asyncio.sleep(PAUSE_S)


async def _nowhere(
    store: SurveyedStore, settings: LokiSettings | VictoriaLogsSettings, cluster: str, mark: Mark, window: Window
) -> Check:
    if tenant := await tenant_with_lines(store, settings, cluster, window, mark.token):
        says = f"collected for tenant {tenant}, and not for {settings.tenant or 'none'}"
        return failed("tenant", says, f'set tenant: "{tenant}"')
    says = f"not collected: no line with {mark.token} after {mark.wait_s:.0f} s, under any label"
    where = f"{mark.job.stdout or 'its output'} on {', '.join(mark.job.nodes)}" if mark.job else "the job's output"
    return failed("collected", says, f"see that a collector reads {where} and ships to this store and tenant")


async def _labels(
    store: SurveyedStore, settings: LokiSettings | VictoriaLogsSettings, cluster: str, mark: Mark, head: Sample
) -> Check:
    names = settings.labels
    if wrong := wrong_job(head, names, mark.job_ids) or wrong_cluster(head, names, cluster):
        return wrong
    job_id = head.labels[names.job_id]
    if not await store.page([job_id], Window(head.ns, head.ns + 1), 1):
        return failed("selector", f"{settings.selector or 'the query'} leaves the line out", "correct `selector`")
    return ok("labels", f"found as relight looks for it, under {names.job_id}={job_id}")


def _is_rest(piece: Sample, token: str) -> bool:
    """Whether a piece is the second half of a line that a collector split."""
    return piece.text.rstrip().endswith(f"{token} {_END}") and piece.text.count(token) == 1


def _length(pieces: list[Sample], head: Sample, token: str) -> Check:
    remedy = "raise the limit of line length of the collector or the store"
    if not _PRINTED.search(head.text):
        return unknown("length", "not a line of the doctor's form: its end is not known")
    if head.text.rstrip().endswith(f"{token} {_END}"):
        return ok("length", f"whole, {len(head.text)} characters")
    if any(_is_rest(piece, token) for piece in pieces):
        return failed("length", f"split after {len(head.text)} characters", remedy)
    return failed("length", f"truncated after {len(head.text)} characters", remedy)


def _time(head: Sample, not_before_s: float) -> Check:
    found = _PRINTED.search(head.text)
    if found is None:
        return unknown("time", "not a line of the doctor's form: when it was printed is not known")
    printed_s = int(found[1])
    ahead_s, behind_s = printed_s - time.time(), not_before_s - printed_s
    if max(ahead_s, behind_s) > SKEW_S:
        says = f"the node's clock is {max(ahead_s, behind_s):.0f} s {'ahead' if ahead_s > behind_s else 'behind'}"
        return failed("time", says, "run chrony or ntpd on nodes and here")
    off_s = head.ns / 1e9 - printed_s
    # The time of printing is in whole seconds, cut.
    if -SKEW_S <= off_s <= SKEW_S + 1:
        return ok("time", "stamped with the time at which it was printed")
    says = f"stamped {abs(off_s):.0f} s {'after' if off_s > 0 else 'before'} it was printed"
    remedy = "have the collector pass on the time of printing, in UTC, and run chrony or ntpd on every host"
    return failed("time", says, remedy)


def _delay(head: Sample, late_s: float, looks: int) -> Check:
    found = _PRINTED.search(head.text)
    if found is None or not looks:
        return unknown("delay", "it was there before it was looked for")
    delay_s = max(0.0, time.time() - int(found[1]))
    says = f"there {delay_s:.0f} s after it was printed"
    if delay_s > late_s + 1:
        return failed("delay", f"{says}, later than late_s allows", f"set late_s: {math.ceil(2 * delay_s)}")
    return ok("delay", says)
