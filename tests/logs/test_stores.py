"""What only stores have: times, labels, tenants, limits, lines that are late or come twice, many jobs at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from activities.logs.protocol import LogCursor, SourceState, StorePosition
from activities.logs.stores.paging import Pager
from activities.logs.stores.protocol import Entry, LogStore, Window
from activities.logs.stores.source import StoreLogs
from tests.logs.conformance import JOB_IDS, at_least, reads, running, texts
from tests.stores.servers import KINDS, RunningStore, Shipper, running_store, shipping
from tests.stores.skipping import store_or_skip

SECOND_NS = 1_000_000_000


@pytest.fixture(scope="module", params=KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[RunningStore]:
    with store_or_skip(request.param) as store:
        yield store


@pytest.fixture(autouse=True)
def frequent_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.logs.stores.reader.SWEEP_S", 2.0)


@pytest.fixture
async def shipper(store: RunningStore) -> AsyncIterator[Shipper]:
    async with shipping(store) as shipper:
        yield shipper


@pytest.fixture
async def logs(store: RunningStore) -> AsyncIterator[StoreLogs]:
    source = StoreLogs(*store.client())
    yield source
    await source.close()


@pytest.fixture
async def client(store: RunningStore) -> AsyncIterator[LogStore]:
    client, _ = store.client()
    yield client
    await client.close()


def since(store: RunningStore, job_id: str, begin_ns: int) -> LogCursor:
    return LogCursor(source=f"{store.kind}:{job_id}", store=StorePosition(begin_ns=begin_ns, since_ns=begin_ns))


async def there(client: LogStore, job_ids: list[str], window: Window, count: int) -> list[Entry]:
    """Wait until so many entries can be read."""
    async with asyncio.timeout(30):
        while len(found := await client.page(job_ids, window, 5_000)) < count:
            await asyncio.sleep(0.1)
    return found


async def test_a_line_tells_what_its_labels_say(store: RunningStore, shipper: Shipper, logs: StoreLogs) -> None:
    job_id, at_ns = next(JOB_IDS), time.time_ns()
    where = {"host": "node07", "rank": "12", "filename": "/var/log/job.out", "stream": "stderr"}
    await shipper.ship(job_id, ["with labels"], at_ns=at_ns, **where)
    await shipper.ship(job_id, ["without"], at_ns=at_ns + 1, rank="no number")
    (first, second), _ = await reads(logs, since(store, job_id, at_ns), at_least(2))
    assert (first.host, first.rank, first.file, first.stream) == ("node07", 12, "/var/log/job.out", "stderr")
    assert first.at == datetime.fromtimestamp(at_ns // 1_000 / 1e6, UTC)
    assert (second.host, second.rank, second.file, second.stream) == ("", None, "", "")


async def test_one_entry_of_several_lines_is_told_line_by_line(
    store: RunningStore, shipper: Shipper, logs: StoreLogs
) -> None:
    job_id, at_ns = next(JOB_IDS), time.time_ns()
    await shipper.ship(job_id, ["Traceback:\n  File x\r\nValueError\n\n"], at_ns=at_ns)
    lines, _ = await reads(logs, since(store, job_id, at_ns), at_least(3))
    assert texts(lines) == ["Traceback:", "  File x", "ValueError"]


async def test_lines_that_come_twice_count_once_and_those_of_one_moment_all(
    store: RunningStore, shipper: Shipper, logs: StoreLogs
) -> None:
    job_id, at_ns = next(JOB_IDS), time.time_ns()
    for _ in range(2):
        await shipper.ship(job_id, ["the same", "moment"], at_ns=at_ns, apart_ns=0, host="node01")
        await shipper.ship(job_id, ["the same"], at_ns=at_ns, host="node02")
    lines, cursor = await reads(logs, since(store, job_id, at_ns), at_least(3))
    await shipper.ship(job_id, ["last"], at_ns=at_ns + 1)
    more, _ = await reads(logs, cursor, at_least(1))
    assert sorted(texts(lines)) == ["moment", "the same", "the same"]
    assert texts(more) == ["last"]


async def test_a_late_line_is_heard(store: RunningStore, shipper: Shipper, logs: StoreLogs) -> None:
    job_id, now_ns = next(JOB_IDS), time.time_ns()
    await shipper.ship(job_id, ["prompt"], at_ns=now_ns)
    _, cursor = await reads(logs, since(store, job_id, now_ns - 60 * SECOND_NS), at_least(1))
    await shipper.ship(job_id, ["late"], at_ns=now_ns - 5 * SECOND_NS)
    lines, _ = await reads(logs, cursor, at_least(1))
    assert texts(lines) == ["late"]


async def test_a_line_belongs_to_the_attempt_of_its_time_however_late_it_comes(
    store: RunningStore, shipper: Shipper, logs: StoreLogs
) -> None:
    job_id = next(JOB_IDS)
    first = running(job_id, 0, datetime.now(UTC) - timedelta(seconds=60))
    (source,) = logs.sources(first)
    begun = await logs.beginning(source, first)
    assert begun is not None
    await shipper.ship(job_id, ["of attempt 0"], at_ns=time.time_ns() - 9 * SECOND_NS)
    _, cursor = await reads(logs, begun, at_least(1))

    started_ns = time.time_ns() - 4 * SECOND_NS
    second = running(job_id, 1, datetime.fromtimestamp(started_ns // SECOND_NS, UTC))
    of_the_second = logs.not_before(cursor, second)
    await shipper.ship(job_id, ["of attempt 0, late"], at_ns=started_ns - 3 * SECOND_NS)
    await shipper.ship(job_id, ["of attempt 1"], at_ns=started_ns + SECOND_NS)
    lines, _ = await reads(logs, of_the_second, at_least(1))
    assert texts(lines) == ["of attempt 1"]
    assert second.started_at is not None
    stretch = await logs.read_range(begun.until(second.started_at), 1 << 20)
    assert texts(stretch.lines) == ["of attempt 0", "of attempt 0, late"]


async def test_other_jobs_tenants_and_clusters_are_not_heard(store: RunningStore, shipper: Shipper) -> None:
    job_id, at_ns = next(JOB_IDS), time.time_ns()
    tenants = ("team-a", "team-b") if store.kind == "loki" else ("7:0", "8:0")
    for tenant in tenants:
        async with shipping(store, tenant=tenant) as of_tenant:
            await of_tenant.ship(job_id, [f"of {tenant}"], at_ns=at_ns)
            await of_tenant.ship(next(JOB_IDS), ["another job's"], at_ns=at_ns)
        async with shipping(store, tenant=tenant, cluster="beta") as of_beta:
            await of_beta.ship(job_id, ["another cluster's"], at_ns=at_ns)
    source = StoreLogs(*store.client(tenant=tenants[1]))
    lines, _ = await reads(source, since(store, job_id, at_ns), at_least(1))
    assert texts(lines) == [f"of {tenants[1]}"]
    await source.close()


@pytest.mark.parametrize("tail", [True, False], ids=["pushed", "asked for"])
async def test_hundreds_of_jobs_cost_a_few_questions(store: RunningStore, shipper: Shipper, tail: bool) -> None:
    source = StoreLogs(*store.client(tail=tail))
    job_ids, at_ns = [next(JOB_IDS) for _ in range(600)], time.time_ns()
    cursors = {job_id: since(store, job_id, at_ns) for job_id in job_ids}
    heard: dict[str, list[str]] = {job_id: [] for job_id in job_ids}
    for step in range(2):
        streams = [
            {
                "stream": {"app": "slurm", "cluster": "alpha", "slurm_job_id": job_id},
                "values": [[str(at_ns + step), f"step {step} of {job_id}"]],
            }
            for job_id in job_ids
        ]
        await shipper.push(streams)
        async with asyncio.timeout(60):
            while any(len(lines) <= step for lines in heard.values()):
                for job_id in job_ids:
                    chunk = await source.read(cursors[job_id])
                    cursors[job_id] = chunk.cursor
                    heard[job_id] += texts(chunk.lines)
                await asyncio.sleep(0.2)
    assert heard == {job_id: [f"step 0 of {job_id}", f"step 1 of {job_id}"] for job_id in job_ids}
    assert source.reader.questions < 60
    await source.close()


# fmt: off
HOSTILE = (
    '"', '"}', "\\", '\\"', "{", "}", "|", "a|b", ".*", "(", "a\nb", "\t", "` or `", "☃", '",b="c', "*", "'",
    "$", "\x07",
)
# fmt: on


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=8)), min_size=2, max_size=6))
async def test_no_label_value_is_more_than_a_value(
    store: RunningStore, shipper: Shipper, client: LogStore, values: list[str]
) -> None:
    run = next(JOB_IDS)
    values = sorted({f"{run}-{value}-" for value in values if value.isprintable() or value in HOSTILE})
    at_ns = time.time_ns()
    stream = {"app": "slurm", "cluster": "alpha"}
    await shipper.push(
        [{"stream": {**stream, "slurm_job_id": value}, "values": [[str(at_ns), f"of {value!r}"]]} for value in values]
    )
    window = Window(at_ns, at_ns + 1)
    found = await there(client, values, window, len(values))
    assert sorted(entry.text for entry in found) == sorted(f"of {value!r}" for value in values)
    for value in values:
        assert [entry.text for entry in await client.page([value], window, 100)] == [f"of {value!r}"]


async def test_pages_meet_without_loss_in_both_directions(
    store: RunningStore, shipper: Shipper, client: LogStore
) -> None:
    job_id, at_ns = next(JOB_IDS), time.time_ns() - 3_600 * SECOND_NS
    for group in range(40):
        await shipper.ship(job_id, [f"{group:02d}-{n}" for n in range(5)], at_ns=at_ns + group, apart_ns=0)
    window = Window(at_ns, at_ns + 1_000)
    expected = [entry.text for entry in await there(client, [job_id], window, 200)]
    pager = Pager(client, most_entries=7)
    forward = [entry.text async for page in pager.forward([job_id], window) for entry in page.entries]
    backward = [entry.text async for page in pager.backward([job_id], window) for entry in page.entries]
    assert sorted(set(forward)) == sorted(set(backward)) == sorted(expected)
    assert [text[:2] for text in forward] == sorted(text[:2] for text in forward)
    assert [text[:2] for text in backward] == sorted((text[:2] for text in backward), reverse=True)


async def test_more_lines_of_one_moment_than_a_page_holds_are_told_as_left_out(
    store: RunningStore, shipper: Shipper, client: LogStore
) -> None:
    job_id, at_ns = next(JOB_IDS), time.time_ns()
    await shipper.ship(job_id, [str(n) for n in range(20)], at_ns=at_ns, apart_ns=0)
    await shipper.ship(job_id, ["after"], at_ns=at_ns + 1)
    window = Window(at_ns, at_ns + 10)
    await there(client, [job_id], window, 21)
    pages = [page async for page in Pager(client, most_entries=7).forward([job_id], window)]
    assert any(page.skipped for page in pages)
    assert "after" in [entry.text for page in pages for entry in page.entries]


async def test_labels_of_the_store_are_told(store: RunningStore, shipper: Shipper, client: LogStore) -> None:
    at_ns = time.time_ns()
    await shipper.ship(next(JOB_IDS), ["x"], at_ns=at_ns, host="node01")
    window = Window(at_ns - SECOND_NS, at_ns + SECOND_NS)
    async with asyncio.timeout(30):
        while not {"slurm_job_id", "host", "cluster"} <= set(await client.label_names(window)):
            await asyncio.sleep(0.1)


async def test_a_store_without_new_lines_of_any_job_is_stale_until_one_comes(store: RunningStore) -> None:
    tenant = "quiet" if store.kind == "loki" else "9:9"
    source = StoreLogs(*store.client(tenant=tenant, stale_after_s=8))
    job_id, at_ns = next(JOB_IDS), time.time_ns()
    async with shipping(store, tenant=tenant) as shipper:
        _, cursor = await reads(
            source, since(store, job_id, at_ns), lambda lines, chunk: chunk.state is SourceState.STALE
        )
        await shipper.ship(job_id, ["one"])
        _, cursor = await reads(source, cursor, lambda lines, chunk: bool(lines) and chunk.state is SourceState.FRESH)
        seen: list[str] = []
        _, cursor = await reads(
            source, cursor, lambda lines, chunk: seen.append(chunk.detail) or chunk.state is SourceState.STALE
        )
        assert "no new line of any job since" in seen[-1]
        others = asyncio.create_task(_ship_on(shipper))
        await reads(source, cursor, lambda lines, chunk: chunk.state is SourceState.FRESH)
        others.cancel()
    await source.close()


async def _ship_on(shipper: Shipper) -> None:
    while True:
        await shipper.ship(next(JOB_IDS), ["another job's"])
        await asyncio.sleep(1)


async def test_a_store_that_gives_less_at_once_is_asked_for_less() -> None:
    with running_store("loki", "--max-entries", "100") as store:
        async with shipping(store) as shipper:
            source = StoreLogs(*store.client())
            job_id, at_ns = next(JOB_IDS), time.time_ns()
            await shipper.ship(job_id, [str(n) for n in range(1_500)], at_ns=at_ns)
            lines, _ = await reads(source, since(store, job_id, at_ns), at_least(1_500))
            assert texts(lines) == [str(n) for n in range(1_500)]
            long_ago = since(store, job_id, at_ns - 90 * 24 * 3_600 * SECOND_NS)
            assert len((await source.read_range(long_ago, 1 << 20)).lines) == 1_500
            await source.close()
