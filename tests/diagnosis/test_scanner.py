"""The scanner finds in raw bytes what line by line matching finds, however the bytes arrive."""

from __future__ import annotations

import importlib.util
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities import logfile
from activities.logfile import read_log
from recovery.signatures import scanner
from recovery.signatures.catalogue import Catalogue, load_catalogue, packaged_catalogue
from recovery.signatures.engines import Engine, HyperscanEngine, best_engine, re2_engine
from recovery.signatures.lines import MAX_LINE_BYTES
from recovery.signatures.scanner import Scanner
from tests.diagnosis.test_catalogue import ENTRY
from tests.diagnosis.test_kinds import KINDS

CATALOGUE = packaged_catalogue()
SCRAPS = [line.text.encode() for kind, _ in KINDS for line in kind().lines]
KNOWN = [scrap for scrap in SCRAPS if CATALOGUE.match(scrap.decode())]
LOGS = st.lists(st.one_of(st.sampled_from(SCRAPS), st.binary(max_size=30), st.just(b""))).map(b"\n".join)

FLOODS = st.lists(st.one_of(st.sampled_from(KNOWN[:9]), st.sampled_from(KNOWN)), min_size=5, max_size=60).map(
    b"\n".join
)


def _engines() -> dict[str, Engine]:
    engines: dict[str, Engine] = {"re2": re2_engine(CATALOGUE)}
    if importlib.util.find_spec("hyperscan"):
        engines["hyperscan"] = best_engine(CATALOGUE)
        assert isinstance(engines["hyperscan"], HyperscanEngine)
    return engines


ENGINES = _engines()


def _line_by_line(data: bytes) -> list[tuple[int, str]]:
    found = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        for piece in line.split(b"\r"):
            text = piece.decode("utf-8", errors="replace").replace("\x00", "").rstrip()
            if "\x1b" not in text and CATALOGUE.match(text):
                found.append((number, text))
    return found


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
@given(data=LOGS, cuts=st.lists(st.integers(0, 5_000), max_size=4))
@settings(deadline=None)
def test_torn_blocks_give_the_lines_that_matching_each_line_gives(engine: Engine, data: bytes, cuts: list[int]) -> None:
    scanning = Scanner(CATALOGUE, engine)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    hits = [hit for a, b in itertools.pairwise(edges) for hit in scanning.feed(data[a:b])] + scanning.flush()
    found = [(hit.number, hit.text) for hit in hits if "\x1b" not in hit.text]
    assert found == _line_by_line(data)
    for hit in hits:
        match = CATALOGUE.match(hit.text)
        assert match is not None
        assert match.signature is hit.signature
        assert data[: hit.offset].count(b"\n") == hit.number - 1


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
def test_an_endless_line_stays_small_and_the_next_one_is_found(engine: Engine) -> None:
    scanning = Scanner(CATALOGUE, engine)
    for _ in range(40):
        assert scanning.feed(b"x" * 100_000) == []
    assert len(scanning.pending()) == MAX_LINE_BYTES
    (hit,) = scanning.feed(b"\nNVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
    assert hit.number == 2
    assert hit.signature.id == "xid-off-the-bus"


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
@given(data=FLOODS, step=st.integers(50, 2_000), most=st.integers(1, 3), costs=st.sampled_from([1, 1_000]))
@settings(deadline=None, max_examples=30)
def test_of_a_flood_the_first_lines_of_each_kind_are_found(
    engine: Engine, data: bytes, step: int, most: int, costs: int
) -> None:
    kinds: Counter[str] = Counter()
    expected = []
    for hit in Scanner(CATALOGUE, engine).feed(data + b"\n"):
        kinds[hit.signature.id] += 1
        if kinds[hit.signature.id] <= most:
            expected.append(hit)
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanner, "_WORTH_REBUILDING", costs)
        limited = Scanner(CATALOGUE, engine, most_of_a_kind=most)
        assert [hit for piece in pieces for hit in limited.feed(piece)] + limited.flush() == expected


@pytest.mark.parametrize("build", [best_engine, re2_engine])
def test_a_line_of_a_full_kind_does_not_count_as_another_that_knows_it_too(
    build: Callable[[Catalogue], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "_WORTH_REBUILDING", 1)
    catalogue = load_catalogue(
        [("site.yaml", ENTRY + ENTRY.replace("site-disk", "tape").replace("disk of", "tape of"))]
    )
    limited = Scanner(catalogue, build(catalogue), most_of_a_kind=1)
    lines = [
        b"disk of n1 is tired",
        b"disk of n2 is tired",
        b"tape of n3 is tired, disk of n3 is tired",
        b"tape of n4 is tired",
    ]
    assert [hit.text[-11:] for line in lines for hit in limited.feed(line + b"\n")] == ["n1 is tired", "n4 is tired"]


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
def test_a_pattern_that_ends_in_a_blank_does_not_find_a_line_that_loses_it(engine: Engine) -> None:
    assert Scanner(CATALOGUE, engine).feed(b"  exitcode  : \n") == []
    assert len(Scanner(CATALOGUE, engine).feed(b"  exitcode  : 1\n")) == 1


def test_a_large_file_keeps_head_tail_and_what_the_catalogue_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logfile, "HEAD_BYTES", 10_000)
    monkeypatch.setattr(logfile, "TAIL_BYTES", 40_000)
    monkeypatch.setattr(logfile, "_BLOCK_BYTES", 10_000)
    xid = "2: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
    plain = [f"line {n} of ordinary output" for n in range(1, 20_001)]
    texts = [*plain[:9_999], xid, *plain[10_000:]]
    path = tmp_path / "big.log"
    path.write_text("\n".join(texts) + "\n")
    lines = read_log(str(path), CATALOGUE).lines
    assert sum(len(line.text) for line in lines) < 80_000
    assert all(line.number is not None and texts[line.number - 1] == line.text for line in lines)
    assert (lines[0].number, lines[-1].number) == (1, 20_000)
    assert [line.number for line in lines if line.text == xid] == [10_000]


def test_line_numbers_are_those_an_editor_shows(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(b"one\n\n 10%\r 20%\rthree\r\nfour")
    assert [(line.number, line.text) for line in read_log(str(path), CATALOGUE).lines] == [
        (1, "one"),
        (3, " 10%"),
        (3, " 20%"),
        (3, "three"),
        (4, "four"),
    ]
