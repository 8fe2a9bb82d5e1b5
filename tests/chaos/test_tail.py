"""A file is read on from where it was read to, whole lines only."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.tail import Tail


def test_each_whole_line_comes_once(tmp_path: Path) -> None:
    file = tmp_path / "log"
    tail = Tail(file)
    assert tail.lines() == []
    file.write_text("one\ntw")
    assert tail.lines() == ["one"]
    with file.open("a") as more:
        more.write("o\nthree\n")
    assert tail.lines() == ["two", "three"]
    assert tail.lines() == []


def test_a_file_that_was_cut_is_read_on_from_its_new_end(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("one\ntwo\n")
    tail = Tail(file)
    tail.lines()
    file.write_text("one\n")
    assert tail.lines() == []
    with file.open("a") as more:
        more.write("other\n")
    assert tail.lines() == ["other"]
