"""How fast the catalogue is found in large logs, beside ripgrep with the same patterns, and in how much memory."""

from __future__ import annotations

import importlib.util
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from activities.casefile import Case, read_cases
from activities.logfile import MAX_HITS_OF_ONE_KIND
from benchmarks.figures import Figure, Report
from benchmarks.processes import Run, run_to_end
from benchmarks.scan import BLOCK_BYTES, ENGINES
from recovery.attribution.attribute import attribute
from recovery.signatures.catalogue import packaged_catalogue
from recovery.signatures.scanner import Scanner

CORPUS = Path(__file__).parents[1] / "tests" / "corpus" / "dev"
RIPGREP_TARGET = 1.0
MEMORY_TARGET_MIB = 200.0
VERDICT_TARGET_MS = 50.0
_KNOWN_SHARE = 0.01
_GENERATED_LINES = 200_000
_LEAST_LINES_OF_A_CASE = 300
_GROWN_BYTES = 200_000_000
_RIPGREP = ("rg", "-j1", "-c", "-a", "--no-unicode", "--dfa-size-limit", "1G")
"""Searching bytes and with room for its automaton: several times as fast as with ``rg -c -f`` alone."""


def measure(gigabytes: float, stream_gigabytes: float) -> Report:
    """Scan two logs of `gigabytes` and a stream of `stream_gigabytes`, and diagnose the corpus."""
    if not shutil.which("rg"):
        return Report("scanner", "beside ripgrep", skipped="ripgrep (rg) is not installed")
    cases = [case for _, case in read_cases(CORPUS)]
    generated, worst = _generated(cases), _worst(cases)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "patterns").write_text("".join(f"{pattern}\n" for pattern in _patterns()))
        figures = [
            *_beside_ripgrep("1 line in 100 known", folder, generated, gigabytes),
            *_beside_ripgrep("worst case repeated", folder, worst, gigabytes),
        ]
    figures += [
        *(_memory(engine, generated, stream_gigabytes) for engine in _engines()),
        _growth(generated),
        _slowest_verdict(cases),
    ]
    measured = f"logs of {gigabytes:g} GB, a stream of {stream_gigabytes:g} GB; CPU of whole processes, one core each"
    return Report("scanner", measured, tuple(figures))


def _engines() -> list[str]:
    return [name for name in ENGINES if name == "re2" or importlib.util.find_spec(name)]


def _patterns() -> list[str]:
    return [re.sub(r"\(\?P<\w+>", "(?:", signature.pattern) for signature in packaged_catalogue()]


def _generated(cases: Sequence[Case]) -> bytes:
    """Lines of all cases, one in a hundred of them known to the catalogue."""
    catalogue = packaged_catalogue()
    known: list[str] = []
    plain: list[str] = []
    for case in cases:
        for line in case.lines:
            (known if catalogue.recognise(line.text) else plain).append(line.text)
    dice = random.Random(1)
    chosen = (dice.choice(known if dice.random() < _KNOWN_SHARE else plain) for _ in range(_GENERATED_LINES))
    return "".join(f"{text}\n" for text in chosen).encode()


def _worst(cases: Sequence[Case]) -> bytes:
    """The long case with the fewest bytes for each known line, as often as makes a megabyte."""
    logs = [
        "".join(f"{line.text}\n" for line in case.lines) for case in cases if len(case.lines) > _LEAST_LINES_OF_A_CASE
    ]
    catalogue = packaged_catalogue()
    densest = min(logs, key=lambda log: len(log) / max(1, sum(bool(catalogue.recognise(x)) for x in log.splitlines())))
    return densest.encode() * (BLOCK_BYTES // len(densest) + 1)


def _beside_ripgrep(what: str, folder: Path, block: bytes, gigabytes: float) -> Iterator[Figure]:
    log = folder / "log"
    with log.open("wb") as stream:
        for _ in range(max(1, round(gigabytes * 1e9 / len(block)))):
            stream.write(block)
    megabytes = log.stat().st_size / 1e6
    ripgrep = run_to_end((*_RIPGREP, "-f", str(folder / "patterns"), str(log)))
    yield Figure(f"{what}: rg -c -f", ripgrep.cpu_s, "s", None, f"{megabytes / ripgrep.cpu_s:.0f} MB/s")
    for engine in _engines():
        for how, most in (("as diagnose reads", (str(MAX_HITS_OF_ONE_KIND),)), ("every known line", ())):
            run = _scan(str(log), engine, *most)
            beside = f"{megabytes / run.cpu_s:.0f} MB/s, {_peak_bytes(run) >> 20} MiB"
            target = RIPGREP_TARGET if engine == "hyperscan" and most else None
            yield Figure(f"{what}: {engine}, {how}, beside rg", run.cpu_s / ripgrep.cpu_s, "x", target, beside)


def _scan(log: str, engine: str, *most: str, stream: Iterable[bytes] = ()) -> Run:
    return run_to_end((sys.executable, "-m", "benchmarks.scan", log, engine, *most), stream)


def _peak_bytes(run: Run) -> int:
    return int(run.output.split()[1])


def _memory(engine: str, block: bytes, gigabytes: float) -> Figure:
    blocks = (block for _ in range(max(1, round(gigabytes * 1e9 / len(block)))))
    run = _scan("-", engine, stream=blocks)
    beside = f"{gigabytes * 1e3 / run.cpu_s:.0f} MB/s"
    return Figure(f"peak memory over the stream, {engine}", _peak_bytes(run) / 2**20, "MiB", MEMORY_TARGET_MIB, beside)


def _growth(block: bytes) -> Figure:
    """What one more kilobyte costs after 200 MB were scanned."""
    scanner = Scanner(packaged_catalogue())
    times = max(1, _GROWN_BYTES // len(block))
    began = time.process_time()
    for _ in range(times):
        for at in range(0, len(block), BLOCK_BYTES):
            scanner.feed(block[at : at + BLOCK_BYTES])
    before_s = time.process_time() - began
    began = time.process_time()
    scanner.feed(block[:1_000])
    grown_s = time.process_time() - began
    return Figure("1 kB more after 200 MB", grown_s * 1e3, "ms", None, f"the 200 MB took {before_s * 1e3:,.0f} ms")


def _slowest_verdict(cases: Sequence[Case]) -> Figure:
    """The slowest verdict over the cases, its best of three, all reading and matching of the lines included."""
    attribute(cases[0].incident())
    slowest_s, lines = max((min(_attribution_s(case) for _ in range(3)), len(case.lines)) for case in cases)
    return Figure(
        "slowest verdict, its lines' scan included", slowest_s * 1e3, "ms", VERDICT_TARGET_MS, f"{lines} lines"
    )


def _attribution_s(case: Case) -> float:
    incident = case.incident()
    began = time.process_time()
    attribute(incident)
    return time.process_time() - began
