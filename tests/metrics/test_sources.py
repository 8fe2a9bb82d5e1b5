"""Samples from a real Prometheus and a real VictoriaMetrics, and verdicts on corpus cases as seen through them."""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.assess import Assessor
from activities.assessment import AttributeOrder, Background, Terms
from activities.casefile import Case, read_case
from activities.logs.files import FileTail
from activities.metrics.names import known_names
from activities.metrics.prometheus import PrometheusMetrics
from activities.metrics.protocol import MetricsAnswer, MetricsState
from activities.scheduler.protocol import JobRecord, JobState
from recovery.attribution.attribute import attribute
from recovery.model import Action, JobKey, SymptomKind, Verdict
from recovery.optin import OptIn
from recovery.policy import PolicySettings
from tests.diagnosis.stories import Story
from tests.metrics.asking import asked, shows, until
from tests.metrics.stores import Exporter, MetricStore
from tests.watch.scripted import ScriptedScheduler

pytestmark = pytest.mark.timeout(240)

CORPUS = Path(__file__).parents[1] / "corpus"
HANG = CORPUS / "dev" / "069-hang-metrics-only.json.gz"
NEW_XID = CORPUS / "made" / "k17-gauge-shows-new-xid79-no-syslog.json.gz"


def util(node: str, value: float, gpu: int = 0) -> str:
    return f'DCGM_FI_DEV_GPU_UTIL{{gpu="{gpu}",Hostname="{node}",hpc_job="12"}} {value:g}'


HUNG = ("node11", "node12", "node13")
OTHERS = (util("gpu03", 1), util("gpu030", 2), util("xgpu03", 3), util('gpu03\\"}|.*', 4))
SHOWN = (
    util("gpu01", 100),
    'DCGM_FI_DEV_ROW_REMAP_FAILED{gpu="1",Hostname="gpu02.example.org:9400"} 0',
    'DCGM_FI_DEV_XID_ERRORS{gpu="1",Hostname="gpu02"} 79',
    'node_vmstat_oom_kill{instance="gpu01:9100"} 3',
    'node_filesystem_avail_bytes{instance="gpu01:9100",mountpoint="/tmp"} 4096',
    *OTHERS,
    *(util(node, 0 if node == "node12" else 100) for node in HUNG),
)


@pytest.fixture(autouse=True)
def _shown(exporter: Exporter) -> None:
    exporter.show(*SHOWN)


async def test_samples_come_with_the_times_of_their_scrapes_in_the_names_that_attribution_knows(
    source: PrometheusMetrics,
) -> None:
    """And a last Xid or a counter that only stands there is none."""
    answer = await until(source, lambda answer: len({sample.text for sample in answer.samples}) == 3)
    assert (answer.state, answer.reason) == (MetricsState.FRESH, "")
    found = {(sample.host, sample.text) for sample in answer.samples}
    assert found == {
        ("gpu01", 'DCGM_FI_DEV_GPU_UTIL{Hostname="gpu01",gpu="0",hpc_job="12"} 100'),
        ("gpu02", 'DCGM_FI_DEV_ROW_REMAP_FAILURE{Hostname="gpu02",gpu="1",series="DCGM_FI_DEV_ROW_REMAP_FAILED"} 0'),
        ("gpu01", 'node_filesystem_avail_bytes{Hostname="gpu01",mountpoint="/tmp"} 4096'),
    }
    assert all(sample.at and datetime.now(UTC) - sample.at < timedelta(seconds=60) for sample in answer.samples)


async def test_other_nodes_are_left_out_whatever_their_names(source: PrometheusMetrics) -> None:
    answer = await until(source, shows('Hostname="gpu03"'), "gpu03")
    assert {sample.text for sample in answer.samples} == {
        'DCGM_FI_DEV_GPU_UTIL{Hostname="gpu03",gpu="0",hpc_job="12"} 1'
    }


async def test_a_value_that_is_old_says_nothing(source: PrometheusMetrics, exporter: Exporter) -> None:
    await until(source, lambda answer: len(answer.samples) > 3, "gpu03")
    exporter.show(*(line for line in SHOWN if line not in OTHERS))
    answer = await until(source, lambda answer: answer.state is MetricsState.STALE, "gpu03")
    assert "older than the attempt's end" in answer.reason
    assert answer.samples == ()
    answer = await until(source, shows("gpu01"), "gpu01", "gpu03")
    assert answer.state is MetricsState.FRESH
    assert not shows("gpu03")(answer)


async def test_what_a_store_has_of_corpus_cases_gives_their_verdicts(
    source: PrometheusMetrics, exporter: Exporter
) -> None:
    cases = [read_case(HANG), read_case(NEW_XID)]
    hang, new_xid = cases
    now = datetime.now(UTC).replace(microsecond=0)
    told = (now - timedelta(seconds=10), now)
    for at, step in zip(told, (-2, -1), strict=True):
        lines = _shown_at(hang, _times(hang)[step], at)
        exporter.show(*lines, *_shown_at(new_xid, _times(new_xid)[step], at))
        known = sum(line.partition("{")[0] in known_names().by_series for line in lines)
        # A store may show some series of a scrape a moment before the others.
        await until(source, lambda answer, at=at, known=known: _count_at(answer, at) == known, *hang.job.nodes)
    await until(source, shows("XID"), *new_xid.job.nodes)
    for case in cases:
        then = dict(zip(told, _times(case)[-2:], strict=True))
        found = await asked(source, *case.job.nodes)
        metrics = tuple(s.model_copy(update={"at": then[s.at]}) for s in found.samples if s.at)
        verdict = attribute(case.incident().model_copy(update={"metrics": metrics}))
        assert case.expected is not None
        assert (verdict.symptom, verdict.culprits) == (case.expected.outcome, case.expected.culpable_nodes)


async def test_a_gpu_that_heat_holds_back_is_told_from_those_whose_counters_stand_still(
    source: PrometheusMetrics, exporter: Exporter
) -> None:
    story = Story().iterations(count=8).iterations(first=108, count=12, step_s=7.5)
    *others, odd = (story.node(node) for node in range(story.node_count))

    def held_us(node: str, spent: int) -> str:
        return f'DCGM_FI_DEV_THERMAL_VIOLATION{{gpu="0",Hostname="{node}"}} {spent}'

    before = [held_us(node, 7_000_000) for node in (*others, odd)]
    exporter.show(*before)
    await until(source, lambda answer: {s.host for s in answer.samples} == {*others, odd}, *others, odd)
    exporter.show(*before[:-1], held_us(odd, 900_000_000))
    answer = await until(source, shows("} 900000000"), *others, odd)
    began = min(sample.at for sample in answer.samples if sample.at)
    metrics = tuple(s.model_copy(update={"at": story.clock + (s.at - began)}) for s in answer.samples if s.at)
    verdict = attribute(story.incident().model_copy(update={"metrics": metrics}))
    assert (verdict.culprits, verdict.cause) == ((odd,), "gpu_thermal_throttle")


def _count_at(answer: MetricsAnswer, at: datetime) -> int:
    return sum(sample.at == at for sample in answer.samples)


def _times(case: Case) -> list[datetime]:
    return sorted({metric.t for metric in case.metrics if metric.t})


def _shown_at(case: Case, time: datetime, at: datetime) -> list[str]:
    """The case's series at one of its times, as an exporter shows them that says it is `at`."""
    return [f"{metric.text} {round(at.timestamp() * 1_000)}" for metric in case.metrics if metric.t == time]


class Recovery:
    """A job that hangs on three nodes, as the attribution activity sees it."""

    def __init__(self, directory: Path, source: PrometheusMetrics) -> None:
        self.out = directory / "job.out"
        self.out.write_text("starting\n")
        self.logs = FileTail()
        self.assessor = Assessor(ScriptedScheduler(), self.logs, PolicySettings(), Terms(), source)  # type: ignore[arg-type]

    async def verdict(self, symptom: SymptomKind = SymptomKind.HANG) -> Verdict:
        began = datetime.now(UTC) - timedelta(hours=1)
        record: dict[str, Any] = {"job_id": "12", "state": JobState.RUNNING, "submitted_at": began, "started_at": began}
        order = AttributeOrder(
            job=JobKey(cluster="c1", job_id="12", submitted_at=began),
            attempt=0,
            record=JobRecord(**record, partition="gpu", nodes=HUNG, node_count=3, stdout=str(self.out)),
            symptom=symptom,
            nodes=HUNG,
            background=Background(optin=OptIn()),
        )
        return (await ActivityEnvironment().run(self.assessor.attribute, order)).verdict


async def test_a_store_that_stalls_or_dies_in_the_middle_leaves_verdicts_without_metrics_and_comes_back(
    store: MetricStore, tmp_path: Path
) -> None:
    source = PrometheusMetrics(store.settings(timeout_s=2), known_names())
    await until(source, lambda answer: {sample.host for sample in answer.samples} == set(HUNG), *HUNG)
    recovery = Recovery(tmp_path, source)
    seen = await recovery.verdict()
    assert (seen.culprits, seen.suggested, seen.blind_to) == (("node12",), Action.RESTART_EXCLUDE, ())
    healthy = await recovery.verdict(SymptomKind.NONE)
    assert (healthy.symptom, healthy.suggested) == (SymptomKind.NONE, Action.NONE)

    assert store.process is not None
    store.process.send_signal(signal.SIGSTOP)
    stalled = await recovery.verdict()
    store.process.send_signal(signal.SIGCONT)
    assert (stalled.culprits, stalled.suggested) == ((), Action.RESTART)
    assert "no answer within 2 s" in stalled.blind_to[0]

    store.kill()
    await asyncio.sleep(2.5)
    dead = await recovery.verdict()
    assert (dead.culprits, dead.suggested) == ((), Action.RESTART)
    assert "that the store runs" in dead.blind_to[0]

    store.start()
    answer = await until(source, lambda answer: {sample.host for sample in answer.samples} == set(HUNG), *HUNG)
    assert (answer.state, answer.reason) == (MetricsState.FRESH, "")
    assert (await recovery.verdict()).culprits == ("node12",)
    source.close()
    await recovery.logs.close()
