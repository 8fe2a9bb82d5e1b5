"""Tables whose cells nobody escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.scheduler.hostlist import expand
from activities.scheduler.slurm_values import text_or_empty
from activities.scheduler.tables import TableError, read_table
from tests.site.answers import answer


def test_the_first_line_names_the_columns_and_blanks_around_a_value_go() -> None:
    table = read_table("NAME |STATE\nnode01 |idle \n", "|")

    assert table.rows == ({"NAME": "node01", "STATE": "idle"},)
    assert table.unreadable == 0


def test_a_value_may_have_line_breaks() -> None:
    table = read_table("JobID|#Comment|#State\n1|#first\n\nlast\\n|#FAILED\n2|#|#COMPLETED\n", "|#")

    assert [row["Comment"] for row in table.rows] == ["first\n\nlast\\n", ""]
    assert [row["State"] for row in table.rows] == ["FAILED", "COMPLETED"]


def test_a_row_that_was_cut_off_is_counted_and_the_next_one_is_read() -> None:
    table = read_table("A|B|C\n1|2\n3|4|5\n6|7|8|9|10\n11|12", "|")

    assert table.rows == ({"A": "3", "B": "4", "C": "5"},)
    assert table.unreadable == 3


def test_a_separator_behind_the_last_value_ends_the_row() -> None:
    assert read_table("1|2|\n", "|", ("A", "B")).rows == ({"A": "1", "B": "2"},)


def test_of_two_columns_of_one_name_the_first_counts() -> None:
    assert read_table("STATE|NAME|STATE\nidle|n1|other\n", "|").rows == ({"STATE": "idle", "NAME": "n1"},)


@pytest.mark.parametrize("text", ["", "\n", "|||", "|" * 600])
def test_a_text_without_column_names_is_no_table(text: str) -> None:
    with pytest.raises(TableError):
        read_table(text, "|")


@pytest.mark.parametrize(
    ("name", "delimiter", "rows", "unreadable"),
    [
        ("sacct-steps.txt", "|", 11, 0),
        ("sacct-fake-line-break.txt", "|#", 4, 0),
        ("sacct-one-multiline.txt", "|#", 4, 0),
        ("sacct-invalid-utf8.txt", "|", 11, 0),
        ("sacct-midnight-edge-case-small.txt", "|", 11, 0),
        ("sacct-running.txt", "|#", 10, 0),
        ("sacct-with-invalid-lines.txt", "|", 0, 1),
        ("sacctmgr-qos.txt", "|", 5, 0),
        ("sacctmgr-user-info.txt", "|", 4, 0),
        ("sinfo.txt", "|", 4, 0),
    ],
)
def test_the_tables_of_other_sites_are_read_whole(name: str, delimiter: str, rows: int, unreadable: int) -> None:
    table = read_table(answer(name), delimiter)

    assert len(table.rows) == rows
    assert table.unreadable == unreadable


def test_the_jobs_of_another_site_are_read_without_a_line_of_names() -> None:
    columns = tuple(f"column {number}" for number in range(34))

    table = read_table(answer("squeue.txt"), "|#", columns)

    assert table.unreadable == 0
    assert [row["column 2"] for row in table.rows][-2:] == ["22783212", "42271120_[7-8%1]"]
    assert all(expand(text_or_empty(row["column 15"])) for row in table.rows if row["column 9"] == "RUNNING")


cells = st.text(alphabet=st.characters(blacklist_characters="|", blacklist_categories=["Cs"]), max_size=8)


@given(st.lists(st.tuples(cells, cells, st.just("end")), max_size=8))
def test_rows_come_back_whatever_their_cells_hold_but_the_separator(written: list[tuple[str, str, str]]) -> None:
    text = "\n".join("|".join(("start", *row)) for row in written)

    read = read_table(text, "|", ("A", "B", "C", "D"))

    assert read.unreadable == 0
    assert [(row["B"], row["C"]) for row in read.rows] == [(first.strip(), last.strip()) for first, last, _ in written]


@given(st.text(alphabet="a|\n ", max_size=200), st.integers(1, 5))
def test_every_line_is_part_of_a_row_or_counted(text: str, width: int) -> None:
    table = read_table(text, "|", tuple("ABCDE"[:width]))

    in_rows = sum(1 + sum(cell.count("\n") for cell in row.values()) for row in table.rows)
    assert in_rows + table.unreadable <= text.count("\n") + 1
    assert table.rows or table.unreadable or not text.strip()


@pytest.mark.parametrize("name", ["sacctmgr-qos", "sacctmgr-user-info"])
def test_every_cell_is_what_another_reader_found_in_it(name: str) -> None:
    table = read_table(answer(f"{name}.txt"), "|")

    assert list(table.rows) == json.loads(answer(f"{name}-expected.json"))


@pytest.mark.parametrize("name", ["sacct-one-multiline", "sacct-fake-line-break"])
def test_a_row_of_several_lines_is_the_one_that_another_reader_put_together(name: str) -> None:
    rows = read_table(answer(f"{name}.txt"), "|#").rows
    expected = read_table(answer(f"{name}-expected.txt"), "|#").rows

    assert [_in_one_line(row) for row in rows] == [_in_one_line(row) for row in expected]


def _in_one_line(row: Mapping[str, str]) -> dict[str, str]:
    """Another reader takes line breaks away, also ones that are written out, and the blanks around them."""
    return {name: "".join(value.replace("\\n", "").split()) for name, value in row.items()}


def test_steps_that_end_after_midnight_are_told_from_those_of_the_day_before() -> None:
    rows = read_table(answer("sacct-midnight-edge-case-small.txt"), "|").rows
    before = [(row["JobID"], row["State"]) for row in rows if row["End"] < "2021-04-08"]
    expected = read_table(answer("sacct-midnight-edge-case-small-expected.txt"), "|").rows

    assert before == [(row["JobID"], row["State"]) for row in expected]


def test_a_table_in_fixed_widths_has_nodes_with_states_and_host_names() -> None:
    rows = read_table(
        answer("sinfo-structured.txt"), "|", ("node", "gres", "gres_used", "cpus", "cpu_states", "state", "partition")
    ).rows

    assert len(rows) == 10
    assert rows[0] == {
        "node": "node1074",
        "gres": "gpu:ampere:8",
        "gres_used": "gpu:ampere:0(IDX:N/A)",
        "cpus": "256",
        "cpu_states": "0/256/0/256",
        "state": "idle",
        "partition": "learn",
    }
    assert {row["state"] for row in rows} == {"idle", "allocated", "mixed", "drained$"}
    assert [expand(row["node"]) for row in rows] == [(row["node"],) for row in rows]
