from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.flight_recorder import read_dumps
from recovery.attribution.flight_dump import Dump, load_dump
from recovery.attribution.flight_recorder import FlightRecorderVerdict, culpable_ranks
from recovery.attribution.plain_pickle import NotPlainData, load_plain

DATA = Path(__file__).parent.parent / "data" / "flight-recorder"
CASES = sorted(path.name for path in DATA.iterdir())


def injected(case: str) -> tuple[int, ...]:
    first = (DATA / case / "fault_injection.log").read_text().splitlines()[0]
    return tuple(json.loads(first.removeprefix("Fault ranks: ")))


def dumps_of(case: str) -> dict[int, Dump]:
    read = read_dumps(DATA / case)
    assert read.problems == ()
    return {dump.rank: dump for dump in read.dumps}


def op(group: str, sequence: int, name: str = "all_reduce", **more: object) -> dict[str, object]:
    return {
        "pg_id": int(group),
        "process_group": (group, f"kind {group}"),
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "profiling_name": f"nccl:{name}",
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "retired": False,
        "is_p2p": False,
        **more,
    }


def recorded(
    rank: int,
    groups: Mapping[str, Sequence[int]],
    reached: Mapping[str, tuple[int, int]],
    *entries: Mapping[str, object],
) -> Dump:
    """Return a dump of `rank`; `reached` is what it enqueued and what it saw done, by group."""
    document: dict[str, Any] = {
        "version": "2.9",
        "pg_config": {name: {"name": name, "desc": "", "ranks": str(list(ranks))} for name, ranks in groups.items()},
        "pg_status": {
            name: {
                "last_enqueued_collective": enqueued,
                "last_started_collective": -1,
                "last_completed_collective": done,
            }
            for name, (enqueued, done) in reached.items()
        },
        "entries": list(entries),
    }
    return load_dump(pickle.dumps(document, protocol=2), rank)


WORLD = {"0": [0, 1, 2, 3]}


@pytest.mark.parametrize("case", CASES)
def test_the_injected_ranks_are_named_and_no_other(case: str) -> None:
    verdict = culpable_ranks(dumps_of(case).values())
    assert verdict.culpable_ranks == injected(case)
    assert set(verdict.waiting_ranks) == set(range(16)) - set(injected(case))
    assert [finding.rank for finding in verdict.findings] == list(injected(case))


@pytest.mark.parametrize("case", CASES)
def test_the_order_of_the_dumps_does_not_matter(case: str) -> None:
    dumps = dumps_of(case)
    assert culpable_ranks(reversed(dumps.values())) == culpable_ranks(dumps.values())


@pytest.mark.parametrize("case", CASES)
def test_a_culprit_that_could_not_even_write_its_dump_is_named(case: str) -> None:
    left = [dump for rank, dump in dumps_of(case).items() if rank not in injected(case)]
    verdict = culpable_ranks(left)
    assert verdict.culpable_ranks == injected(case) == verdict.ranks_without_dump


def test_when_most_dumps_are_lost_their_absence_names_nobody() -> None:
    dumps = dumps_of("lock_gil_1st")
    verdict = culpable_ranks([dumps[0], dumps[1]])
    assert verdict.culpable_ranks == ()
    assert verdict.unlocated_because == "14 of the ranks have no dump"


def test_a_rank_that_is_behind_because_it_waits_itself_is_a_victim() -> None:
    groups = {"0": [0, 1], "1": [1, 2]}
    verdict = culpable_ranks(
        [
            recorded(0, {"0": [0, 1]}, {"0": (5, 4)}, op("0", 5)),
            recorded(1, groups, {"0": (4, 4), "1": (8, 7)}, op("1", 8)),
            recorded(2, {"1": [1, 2]}, {"1": (7, 7)}),
        ]
    )
    assert verdict.culpable_ranks == (2,)
    assert verdict.waiting_ranks == (0, 1)


def test_a_rank_that_stopped_while_it_waited_like_its_neighbours_is_named_too() -> None:
    verdict = culpable_ranks(
        [
            recorded(0, WORLD, {"0": (9, 4)}, *(op("0", n) for n in range(5, 10))),
            recorded(1, WORLD, {"0": (9, 4)}, *(op("0", n) for n in range(5, 10))),
            recorded(2, WORLD, {"0": (6, 4)}, op("0", 5), op("0", 6)),
            recorded(3, WORLD, {"0": (4, 4)}),
        ]
    )
    assert verdict.culpable_ranks == (2, 3)


def test_an_operation_done_elsewhere_and_not_here_names_this_rank() -> None:
    verdict = culpable_ranks(
        [
            recorded(0, WORLD, {"0": (6, 5)}, op("0", 6)),
            recorded(1, WORLD, {"0": (6, 4)}, op("0", 5), op("0", 6)),
            recorded(2, WORLD, {"0": (6, 5)}, op("0", 6)),
            recorded(3, WORLD, {"0": (6, 5)}, op("0", 6)),
        ]
    )
    assert verdict.culpable_ranks == (1,)


def test_a_root_that_is_done_with_its_part_accuses_nobody() -> None:
    broadcast = op("0", 5, "broadcast")
    verdict = culpable_ranks(
        [recorded(0, WORLD, {"0": (5, 5)}), *(recorded(n, WORLD, {"0": (5, 4)}, broadcast) for n in (1, 2, 3))]
    )
    assert verdict.culpable_ranks == ()


def test_a_rank_whose_gpu_never_started_what_runs_elsewhere_is_named() -> None:
    started = op("0", 5, state="started", time_discovered_started_ns=1)
    before = op("0", 4, state="completed", time_discovered_started_ns=1)
    verdict = culpable_ranks(
        [
            recorded(0, WORLD, {"0": (5, 4)}, before, op("0", 5)),
            *(recorded(n, WORLD, {"0": (5, 4)}, before, started) for n in (1, 2, 3)),
        ]
    )
    assert verdict.culpable_ranks == (0,)


def test_a_receiver_whose_sender_never_came_waits_for_it() -> None:
    groups = {"0": [0, 1]}
    receive = op("0", 0, "recv 0<-1", is_p2p=True, p2p_seq_id=3)
    verdict = culpable_ranks([recorded(0, groups, {"0": (3, 2)}, receive), recorded(1, groups, {"0": (900, 900)})])
    assert verdict.culpable_ranks == (1,)


def behind(rank: int, entry: Callable[..., Mapping[str, object]], **document: object) -> Dump:
    """A dump in which rank 2 of four never enqueued the tenth operation."""
    done = [entry(sequence, state="completed", retired=True) for sequence in range(5, 10)]
    waiting = [] if rank == 2 else [entry(10)]
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    return load_dump(json.dumps({"pg_config": config, "entries": done + waiting, **document}).encode(), rank)


def test_dumps_without_a_status_are_judged_by_their_entries() -> None:
    def first_releases(sequence: int, **more: object) -> dict[str, object]:
        entry = op("0", sequence, **more)
        return {"seq_id": entry.pop("collective_seq_id"), **entry}

    for entry in (partial(op, "0"), first_releases):
        assert culpable_ranks(behind(rank, entry) for rank in range(4)).culpable_ranks == (2,)


def test_numbers_written_as_text_are_read() -> None:
    def dump(rank: int) -> Dump:
        last = 10 if rank == 2 else 11
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
        status = {"0": {"last_enqueued_collective": str(last), "last_completed_collective": str(last - 1)}}
        document = {"pg_config": config, "pg_status": status, "entries": [op("0", last)]}
        return load_dump(json.dumps(document).encode(), rank)

    assert culpable_ranks(dump(rank) for rank in range(4)).culpable_ranks == (2,)


def test_a_rank_that_never_used_a_group_that_the_others_wait_in_is_named() -> None:
    both = {**WORLD, "1": [0, 1, 2, 3]}
    dumps = [recorded(rank, both, {"0": (7, 7), "1": (1, 0)}, op("1", 1)) for rank in (0, 1, 3)]
    idle = recorded(2, both, {"0": (7, 7)}, op("0", 7, state="completed"))
    assert culpable_ranks([*dumps, idle]).culpable_ranks == (2,)


@pytest.mark.parametrize(
    "other",
    [op("0", 8, "_all_gather_base", input_sizes=[[16]]), op("0", 8, input_sizes=[[16, 2]])],
    ids=["another operation", "another size"],
)
def test_a_rank_that_calls_something_else_than_most_of_its_group_is_named(other: dict[str, object]) -> None:
    usual = op("0", 8, input_sizes=[[16]])
    dumps = [recorded(rank, WORLD, {"0": (8, 7)}, other if rank == 1 else usual) for rank in range(4)]
    verdict = culpable_ranks(dumps)
    assert verdict.culpable_ranks == (1,)
    assert "paths differ" in verdict.findings[0].reason


def test_parts_of_different_sizes_are_no_mismatch_where_members_may_differ() -> None:
    dumps = [
        recorded(rank, WORLD, {"0": (8, 7)}, op("0", 8, "all_to_all", input_sizes=[[16 + rank]])) for rank in range(4)
    ]
    assert culpable_ranks(dumps).culpable_ranks == ()


def test_when_all_are_at_the_same_place_nobody_is_named_and_it_is_said_why() -> None:
    verdict = culpable_ranks(recorded(n, WORLD, {"0": (5, 4)}, op("0", 5)) for n in range(4))
    assert verdict.culpable_ranks == ()
    assert "none has finished more than another" in verdict.unlocated_because


def test_dumps_of_ranks_that_wait_for_nothing_name_nobody() -> None:
    verdict = culpable_ranks(recorded(n, WORLD, {"0": (5, 5)}) for n in range(4))
    assert verdict.unlocated_because == "no rank has an operation that is not done"
    assert culpable_ranks([]) == FlightRecorderVerdict(unlocated_because="there are no dumps")


def test_a_json_dump_reads_like_a_pickle() -> None:
    document = pickle.loads((DATA / CASES[0] / "_dump_0").read_bytes())
    assert load_dump(json.dumps(document).encode(), 0) == load_dump(pickle.dumps(document, protocol=2), 0)


class Harmful:
    def __reduce__(self) -> tuple[object, ...]:
        return (print, ("code of the dump's author runs",))


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Harmful()),
        pickle.dumps(Harmful(), protocol=0),
        pickle.dumps({"entries": {1, 2}}),
        b"cos\nsystem\n(S'true'\ntR.",
        b"S'\\H'\n.",
        b"\x80\x02r\xff\xff\xff\x7f.",
        b"\x80\x02]r\xff\xff\xff\x7f",
        b"\x80\x02}((K\x01K\x02tK\x03u.",
        b"\x80\x02]K\x01K\x02s.",
        b"\x80\x02\x8a\x04abc",
        b"",
        b".",
        b"{not json",
        b"[" * 100_000,
        b'{"entries": ' + b"[" * 100_000,
        b"\x80\x02X\xff\xff\xff\x7fabc.",
        b"]" * (17 << 20),
    ],
    ids=lambda data: repr(data[:12]),
)
def test_what_is_more_than_data_or_broken_is_refused(data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotPlainData):
        load_dump(data, 0)
    assert capsys.readouterr().out == ""


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), 1 << 63) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(PLAIN)
def test_plain_data_of_every_protocol_from_2_on_comes_back(value: object) -> None:
    for protocol in (2, 3, 4, 5):
        assert load_plain(pickle.dumps(value, protocol=protocol)) == value


def test_data_nested_deeply_where_text_belongs_is_no_trouble() -> None:
    nested = b"]" * 50_000 + b"a" * 49_999
    name, entries = b"X\x0e\x00\x00\x00profiling_name", b"X\x07\x00\x00\x00entries"
    dump = load_dump(b"\x80\x02}(" + entries + b"]}(" + name + nested + b"uau.", 0)
    assert [operation.name for operation in dump.pending] == [""]


def test_text_that_is_no_proper_text_is_tolerated() -> None:
    half, ranks = "\ud800", "[0,\ud800,\u00b2,1\x1e, 2]"
    dump = load_dump(
        pickle.dumps(
            {
                "pg_config": {"\u00b2": {"ranks": ranks}},
                "pg_status": {"7": {"last_enqueued_collective": half}},
                "entries": [op("7", 1, "all_reduce\x00") | {"profiling_name": "X" + "\udcff"}],
            },
            protocol=2,
        ),
        0,
    )
    assert dump.groups == {"\u00b2": (0, 1, 2)}
    assert dump.pending[0].name == "X?"


DAMAGES = st.lists(st.tuples(st.integers(0, 7_000), st.integers(0, 40), st.binary(max_size=40)), max_size=8)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 15), DAMAGES)
def test_a_damaged_dump_is_read_or_refused_and_never_breaks_the_verdict(
    rank: int, damages: list[tuple[int, int, bytes]]
) -> None:
    dumps = dict(WHOLE)
    data = (DATA / CASES[0] / f"_dump_{rank}").read_bytes()
    for position, removed, added in damages:
        data = data[:position] + added + data[position + removed :]
    try:
        dumps[rank] = load_dump(data, rank)
    except NotPlainData:
        del dumps[rank]
    culpable_ranks(dumps.values())


WHOLE = dumps_of(CASES[0])


def test_other_files_of_the_directory_are_left_alone(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps({"entries": []}))
    (tmp_path / "train.log.1").write_text("not a dump")
    (tmp_path / "notes.txt").write_text("not a dump")
    (tmp_path / "nccl_trace_rank_3").mkdir()
    (tmp_path / "nccl_trace_rank_4").write_bytes(b"broken")
    read = read_dumps(tmp_path)
    assert [dump.rank for dump in read.dumps] == [0, 1, 2]
    assert [problem.split(":")[0] for problem in read.problems] == ["nccl_trace_rank_3", "nccl_trace_rank_4"]


def test_an_empty_directory_has_no_dumps(tmp_path: Path) -> None:
    assert read_dumps(tmp_path) == ((), ())


def test_a_job_of_a_thousand_ranks_is_judged_in_seconds() -> None:
    groups = {"0": list(range(1_000))}
    dumps = [recorded(n, groups, {"0": (50, 40)}, *(op("0", s) for s in range(41, 51))) for n in range(999)]
    verdict = culpable_ranks([*dumps, recorded(999, groups, {"0": (40, 40)})])
    assert verdict.culpable_ranks == (999,)
