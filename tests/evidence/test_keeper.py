"""What is kept of an attempt before it is killed, on real files and the simulated cluster."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.testing import ActivityEnvironment

from activities import evidence
from activities.evidence import MAX_EXCERPT_BYTES, TAIL_BYTES, EvidenceKeeper, EvidenceOrder, KeptEvidence
from activities.evidence_settings import EvidenceSettings
from activities.logs.files import FileTail
from activities.logs.protocol import LogCursor
from activities.scheduler.protocol import JobRecord, Refused, Scheduler
from activities.scheduler.simulated import SimulatedScheduler
from activities.scheduler.simulated_wire import JobSpec
from recovery.audit import AuditEvent, AuditKind
from recovery.model import Action, Advice, JobKey, Mode, NodeName
from tests.simulator.running import RunningSimulator, ended, running, running_simulator, until

HANGS = "echo iteration 12; echo API_KEY=sk-abcdefghijklmnopqrstuv; exec sleep 600"


@pytest.fixture(scope="module")
async def simulator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningSimulator]:
    async with running_simulator(tmp_path_factory.mktemp("sim")) as simulator:
        yield simulator


async def hanging(simulator: RunningSimulator, script: str = HANGS) -> JobRecord:
    job_id = await simulator.cluster.submit(JobSpec(argv=("sh", "-c", script)))
    record = await until(simulator, job_id, running)
    while not Path(record.stdout).read_text().strip():
        record = await until(simulator, job_id, running)
    return record


def order_for(record: JobRecord, *, began: tuple[LogCursor, ...] = (), attempt: int = 0) -> EvidenceOrder:
    now = datetime.now(UTC)
    advice = Advice(
        job=JobKey(cluster="sim", job_id=record.job_id, submitted_at=record.submitted_at),
        attempt=attempt,
        generation=3,
        action=Action.RESTART,
        reason="no progress for 900 s",
        rule="hang",
        advised_at=now,
        expires_at=now + timedelta(minutes=15),
        kill_first=True,
    )
    return EvidenceOrder(advice=advice, began=began)


async def kept(scheduler: Scheduler, directory: Path, order: EvidenceOrder, *, stacks: bool = False) -> KeptEvidence:
    keeper = EvidenceKeeper(scheduler, FileTail(), EvidenceSettings(stacks=stacks), directory)
    return await ActivityEnvironment().run(keeper.keep_evidence, order)


async def test_the_end_of_the_output_is_kept_with_its_secrets_masked(
    simulator: RunningSimulator, tmp_path: Path
) -> None:
    record = await hanging(simulator)

    said = await kept(simulator.scheduler, tmp_path / "evidence", order_for(record))

    file = Path(said.file)
    assert file == tmp_path / "evidence" / record.job_id / "attempt-0.3.txt"
    assert said.summary == f"kept the end of its output in {file}"
    assert "iteration 12" in file.read_text()
    assert "iteration 12" in said.output
    assert "sk-abcdef" not in file.read_text() + said.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    await simulator.scheduler.cancel(record.job_id)


async def test_what_the_attempt_before_wrote_is_not_kept(simulator: RunningSimulator, tmp_path: Path) -> None:
    record = await hanging(simulator)
    output = Path(record.stdout)
    output.write_text("of the attempt before\n")
    began = await FileTail().end(record.stdout)
    with output.open("a") as file:
        file.write("of this attempt\n" * 3)

    said = await kept(simulator.scheduler, tmp_path, order_for(record, began=(began,)))

    assert "of the attempt before" not in Path(said.file).read_text()
    assert said.output.count("of this attempt") == 3
    await simulator.scheduler.cancel(record.job_id)


async def test_of_a_long_output_the_last_part_is_kept(simulator: RunningSimulator, tmp_path: Path) -> None:
    record = await hanging(simulator)
    lines = [f"line {number}" for number in range(20_000)]
    Path(record.stdout).write_text("\n".join(lines) + "\n")

    said = await kept(simulator.scheduler, tmp_path, order_for(record))

    numbers = [line for line in Path(said.file).read_text().splitlines() if line.startswith("line ")]
    assert numbers == lines[-len(numbers) :]
    assert TAIL_BYTES - 100 < sum(len(line) + 1 for line in numbers) <= TAIL_BYTES
    assert lines[-1] in said.output
    assert len(said.output) <= MAX_EXCERPT_BYTES
    await simulator.scheduler.cancel(record.job_id)


async def test_what_is_kept_twice_is_one_file_and_the_oldest_files_of_all_go(
    simulator: RunningSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "KEPT_FILES", 2)
    record = await hanging(simulator)
    for number, age_s in ((1, 100), (2, 50)):
        other = tmp_path / str(number) / "attempt-0.1.txt"
        other.parent.mkdir()
        other.write_text("of another job")
        os.utime(other, (other.stat().st_mtime - age_s,) * 2)

    first = await kept(simulator.scheduler, tmp_path, order_for(record))
    again = await kept(simulator.scheduler, tmp_path, order_for(record))

    assert first.file == again.file
    assert {str(file.relative_to(tmp_path)) for file in tmp_path.glob("*/*")} == {
        "2/attempt-0.1.txt",
        f"{record.job_id}/attempt-0.3.txt",
    }
    await simulator.scheduler.cancel(record.job_id)


async def test_an_ended_attempt_leaves_its_output_and_the_next_attempt_is_nobodys_evidence(
    simulator: RunningSimulator, tmp_path: Path
) -> None:
    job_id = await simulator.cluster.submit(JobSpec(argv=("sh", "-c", "echo over; exit 3")))
    record = await until(simulator, job_id, ended)

    left = await kept(simulator.scheduler, tmp_path, order_for(record), stacks=True)
    assert left.summary.startswith("kept the end of its output in ")
    assert "stacks: the attempt is FAILED" in Path(left.file).read_text()

    await simulator.scheduler.requeue(job_id)
    none = await kept(simulator.scheduler, tmp_path / "next", order_for(record))
    assert (none.file, none.summary) == ("", "no evidence kept: the next attempt is there already")


async def test_what_cannot_be_had_is_told_and_raises_nothing(simulator: RunningSimulator, tmp_path: Path) -> None:
    record = await hanging(simulator)
    Path(record.stdout).unlink()
    no_directory = tmp_path / "a file"
    no_directory.write_text("")

    missing = await kept(simulator.scheduler, tmp_path / "evidence", order_for(record), stacks=True)
    unwritten = await kept(simulator.scheduler, no_directory, order_for(record))
    unknown = await kept(simulator.scheduler, tmp_path, order_for(record.model_copy(update={"job_id": "999"})))
    silent = await kept(SimulatedScheduler(tmp_path / "nobody"), tmp_path, order_for(record))

    text = Path(missing.file).read_text()
    assert "(nothing: " in text
    assert "stacks: this transport starts no job steps" in text
    assert unwritten.file == ""
    assert "could not be written: [Errno" in unwritten.summary
    assert unknown.summary.startswith("no evidence kept: the job could not be read: Invalid job id")
    assert silent.summary.startswith("no evidence kept: the job could not be read: The simulated cluster cannot")
    await simulator.scheduler.cancel(record.job_id)


class WithStacks(SimulatedScheduler):
    """A transport that can start a step, and a site that lets it or not."""

    said: str | Exception = "0: node01, step 0\n0:   all_reduce (train.py:12) token=abcdefgh1234"
    asked: tuple[NodeName, ...] = ()

    async def stacks(self, job: JobRecord, nodes: tuple[NodeName, ...], settings: EvidenceSettings) -> str:
        self.asked = nodes
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


async def test_stacks_are_asked_of_the_culprits_first_and_kept_redacted(
    simulator: RunningSimulator, tmp_path: Path
) -> None:
    job_id = await simulator.cluster.submit(JobSpec(argv=("sleep", "600"), nodes=3))
    record = await until(simulator, job_id, running)
    scheduler = WithStacks(simulator.socket)
    order = order_for(record)
    order = order.model_copy(
        update={"advice": order.advice.model_copy(update={"exclude": ("node77", record.nodes[2])})}
    )

    said = await kept(scheduler, tmp_path, order, stacks=True)

    assert said.summary == f"kept the end of its output and its stacks in {said.file}"
    assert scheduler.asked == (record.nodes[2], *record.nodes[:2])
    assert "all_reduce (train.py:12)" in said.stacks
    assert "abcdefgh1234" not in said.stacks + Path(said.file).read_text()

    scheduler.said = Refused("no stacks of job 1: srun: error: Unable to create step: Access/permission denied")
    refused = await kept(scheduler, tmp_path, order, stacks=True)
    assert "permission denied" in refused.stacks
    unasked = await kept(scheduler, tmp_path, order)
    assert unasked.stacks == ""
    await simulator.scheduler.cancel(job_id)


@given(text=st.text(max_size=30_000), end=st.booleans())
def test_an_excerpt_fits_on_record_whatever_is_in_it(text: str, end: bool) -> None:
    excerpt = evidence._excerpt(text * 3, end=end)

    assert len(json.dumps(excerpt)) <= MAX_EXCERPT_BYTES
    assert (text * 3).endswith(excerpt) if end else (text * 3).startswith(excerpt)


@pytest.mark.parametrize("letter", ["a", "\x00", "é", "码", "🔥", "\\", '"'])
def test_two_full_excerpts_make_an_audit_event_that_is_taken(letter: str) -> None:
    excerpt = evidence._excerpt(letter * 10_000, end=True)
    now = datetime.now(UTC)

    assert len(excerpt) > 400
    AuditEvent(
        key="k",
        at=now,
        job=JobKey(cluster="sim", job_id="1", submitted_at=now),
        attempt=0,
        kind=AuditKind.EVIDENCE,
        who="policy",
        summary="kept",
        mode=Mode.ACT,
        details={"output": excerpt, "stacks": excerpt, "file": "/x" * 1_000, "host": "h" * 253},
    )
