"""What is fuzzed: each target takes any bytes, and fails on an answer that does not hold. Being slow is a failure too:
the fuzzer and the replay each set a limit of time."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from activities.casefile import read_cases
from recovery.attribution.attribute import attribute
from recovery.attribution.flight_dump import Dump, load_dump
from recovery.attribution.flight_recorder import culpable_ranks
from recovery.attribution.incident import Incident, JobFacts, LogLine, MetricSample
from recovery.attribution.plain_pickle import NotPlainData
from recovery.detection.monitor import AttemptMonitor
from recovery.detection.settings import DetectionSettings
from recovery.model import Action, Verdict
from recovery.signatures.catalogue import packaged_catalogue
from recovery.signatures.engines import Engine, best_engine, re2_engine
from recovery.signatures.lines import MAX_LINE_BYTES, LineSplitter, parse_prefix
from recovery.signatures.scanner import Hit, Scanner

Target = Callable[[bytes], None]

BETWEEN_DUMPS = b"\n--\n"
BEGIN = datetime(2025, 6, 1, 12, 0, 0, tzinfo=UTC)
NODES = ("gpu-a-001", "gpu-a-002", "gpu-a-003", "gpu-a-004")

_CATALOGUE = packaged_catalogue()
_ENGINES: tuple[Engine, ...] = (best_engine(_CATALOGUE), re2_engine(_CATALOGUE))
_ROOT = Path(__file__).parents[1]


def scan(data: bytes) -> None:
    """Both engines find the same lines, however the bytes arrive, and those are lines that the catalogue knows."""
    log = data[1:]
    step = 1 + (data[0] if data else 0)
    whole = _hits(log, _ENGINES[0], max(len(log), 1))
    for engine in _ENGINES:
        assert _hits(log, engine, step) == whole
    for hit in whole:
        assert log[: hit.offset].count(b"\n") == hit.number - 1
        match = _CATALOGUE.match(hit.text)
        assert match is not None
        assert match.signature is hit.signature


def _hits(log: bytes, engine: Engine, step: int) -> list[Hit]:
    scanner = Scanner(_CATALOGUE, engine)
    pieces = (log[at : at + step] for at in range(0, len(log), step))
    return [hit for piece in pieces for hit in scanner.feed(piece)] + scanner.flush()


def read_lines(data: bytes) -> None:
    """Torn or whole, bytes give the same lines; every line has a prefix and a text; a watch can follow all of them."""
    log = data[1:]
    step = 1 + (data[0] if data else 0)
    whole, torn = LineSplitter(), LineSplitter()
    lines = whole.feed(log) + whole.flush()
    pieces = (log[at : at + step] for at in range(0, len(log), step))
    assert [line for piece in pieces for line in torn.feed(piece)] + torn.flush() == lines
    monitor = AttemptMonitor(DetectionSettings(), _CATALOGUE.match)
    for second, line in enumerate(lines):
        assert len(line) <= MAX_LINE_BYTES
        for nodes in ((), NODES):
            assert line.endswith(parse_prefix(line, nodes).rest)
        monitor.feed(line, BEGIN + timedelta(seconds=second))
    monitor.look(BEGIN + timedelta(days=1), log_fresh=True)


def diagnose(data: bytes) -> None:
    """Any log has a verdict that holds together. Of the first byte, single bits say what else is known of the job; a
    line that starts with a tab is a metric sample."""
    known = data[0] if data else 0
    splitter = LineSplitter()
    texts = splitter.feed(data[1:]) + splitter.flush()
    facts = JobFacts(
        nodes=NODES if known & 1 else (),
        gpus_per_node=8 if known & 2 else 0,
        state="RUNNING" if known & 4 else "FAILED",
    )
    lines = tuple(
        LogLine(
            text=text,
            number=number,
            at=BEGIN + timedelta(seconds=number) if known & 8 else None,
            host=NODES[number % 4] if known & 16 else "",
            rank=number % 32 if known & 32 else None,
        )
        for number, text in enumerate(texts)
        if not text.startswith("\t")
    )
    metrics = tuple(MetricSample(text=text[1:], at=BEGIN) for text in texts if text.startswith("\t"))
    verdict = attribute(Incident(lines=lines, metrics=metrics, facts=facts))
    assert Verdict.model_validate(verdict.model_dump()) == verdict
    assert not facts.nodes or set(verdict.culprits) <= set(facts.nodes)
    assert not set(verdict.culprits) & set(verdict.victims)
    assert verdict.suggested is not Action.RESTART_EXCLUDE or verdict.culprits


def read_flight_recorder(data: bytes) -> None:
    """Whatever lies in a rank's file, it is read or refused; what is read can be compared."""
    dumps = [*_readable(data.split(BETWEEN_DUMPS))]
    verdict = culpable_ranks(dumps)
    assert verdict.model_dump_json()
    assert not set(verdict.culpable_ranks) & set(verdict.waiting_ranks)


def _readable(parts: Sequence[bytes]) -> Iterator[Dump]:
    for rank, part in enumerate(parts):
        try:
            yield load_dump(part, rank)
        except NotPlainData:
            continue


TARGETS: dict[str, Target] = {
    "scanner": scan,
    "lines": read_lines,
    "attribution": diagnose,
    "flight_recorder": read_flight_recorder,
}


def seeds(target: str) -> Iterator[bytes]:
    """Yield inputs to start from: what real software writes, a few dozen lines at a time."""
    if target == "flight_recorder":
        yield from _dumps()
        return
    for number, (_, case) in enumerate(read_cases(_ROOT / "corpus" / "dev")):
        texts = [line.text for line in case.lines] + [f"\t{sample.text}" for sample in case.metrics]
        for first in range(0, len(texts), 40):
            yield bytes([number % 64]) + "\n".join(texts[first : first + 40]).encode()


def _dumps() -> Iterator[bytes]:
    for folder in sorted((_ROOT / "data" / "flight-recorder").iterdir()):
        files = [path.read_bytes() for path in sorted(folder.glob("_dump_*"))]
        yield from (BETWEEN_DUMPS.join(files[first : first + 2]) for first in range(0, len(files), 4))
    for ranks in (1, 2, 3):
        yield BETWEEN_DUMPS.join(pickle.dumps(_small_dump(rank, ranks)) for rank in range(ranks))


def _small_dump(rank: int, ranks: int) -> dict[str, object]:
    entries = [
        {
            "pg_id": 0,
            "process_group": ("0", "default_pg"),
            "collective_seq_id": sequence,
            "profiling_name": name,
            "state": state,
            "is_p2p": "->" in name,
            "p2p_seq_id": sequence,
            "time_discovered_started_ns": None,
        }
        for sequence, (name, state) in enumerate(
            itertools.product(("nccl:all_reduce", "nccl:send 0->1"), ("completed", "started", "scheduled"))
        )
    ]
    return {
        "version": "2.4",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}},
        "pg_status": {"0": {"last_enqueued_collective": 6 - rank, "last_completed_collective": 1}},
        "entries": entries,
    }
