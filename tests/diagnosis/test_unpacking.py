"""Logs as people keep them: packed, torn, damaged, or no logs at all."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from activities import logfile, unpacking
from activities.logfile import read_log
from recovery.signatures.catalogue import packaged_catalogue
from workers.cli.main import app
from workers.cli.output import CliError

XID = "n3: NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
DICE = random.Random(7)
NOISE = "".join(f"{DICE.getrandbits(200):x}\n" for _ in range(40_000))
"""2 MB that can't be packed to nothing."""


def _diagnose(*arguments: str, stdin: bytes | None = None) -> str:
    result = CliRunner().invoke(app, ["diagnose", *arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize("pack", PACKINGS.values(), ids=PACKINGS.keys())
def test_what_is_packed_is_known_by_its_bytes_and_not_by_its_name(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    packed = pack(f"{XID}\n".encode())
    (tmp_path / "job.out").write_bytes(packed)
    for said in (_diagnose(str(tmp_path / "job.out"), "--json"), _diagnose("-", "--json", stdin=packed)):
        assert json.loads(said)["culprits"] == ["n3"]
        assert json.loads(said)["blind_to"] == []


def test_a_plain_file_that_is_called_packed_is_read(tmp_path: Path) -> None:
    (tmp_path / "job.gz").write_text(XID + "\n")
    assert json.loads(_diagnose(str(tmp_path / "job.gz"), "--json"))["culprits"] == ["n3"]


@pytest.mark.parametrize("pack", PACKINGS.values(), ids=PACKINGS.keys())
def test_one_packed_after_another_is_one_log(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    texts = [f"part {n} of {NOISE}" for n in range(3)]
    (tmp_path / "job").write_bytes(b"".join(pack(text.encode()) for text in texts))
    read = read_log(str(tmp_path / "job"), packaged_catalogue())
    assert read.problem == ""
    assert [line.number for line in read.lines if line.text.startswith("part 2")] == [80_001]


@pytest.mark.parametrize("pack", PACKINGS.values(), ids=PACKINGS.keys())
@pytest.mark.parametrize("hurt", ["torn", "damaged"])
def test_a_torn_or_damaged_file_is_read_as_far_as_it_goes_and_said_to_be(
    pack: Callable[[bytes], bytes], hurt: str, tmp_path: Path
) -> None:
    packed = bytearray(pack(f"{XID}\n{NOISE}".encode()))
    at = len(packed) * 3 // 4
    packed[at:] = b"" if hurt == "torn" else b"\x5a" * 4_000 + packed[at + 4_000 :]
    log = tmp_path / "job.out"
    log.write_bytes(packed)
    report = _diagnose(str(log))
    assert "culprit  n3" in report
    assert f"not read\n  {log}: it is {hurt} and was read " in report
    assert (read_log(str(log), packaged_catalogue()).lines[-1].number or 0) > 5_000


def test_a_file_that_unpacks_without_end_is_read_to_a_bound_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "MAX_UNPACKED_BYTES", 20 << 20)
    monkeypatch.setattr(logfile, "TAIL_BYTES", 1 << 20)
    log = tmp_path / "bomb"
    log.write_bytes(gzip.compress(bytes(64 << 20) + b"behind\n"))
    tracemalloc.start()
    read = read_log(str(log), packaged_catalogue())
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read.problem == f"{log}: only the first 20 MiB that gzip packed in it were read"
    assert most_bytes < 16 << 20


def test_an_xz_file_that_wants_much_memory_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MAX_XZ_MEMORY_BYTES", 1 << 20)
    log = tmp_path / "job.xz"
    log.write_bytes(lzma.compress(b"all is well\n"))
    with pytest.raises(CliError, match="it is damaged and was read up to there: xz: Memory usage limit"):
        _diagnose(str(log))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (DICE.randbytes(100_000), "these bytes are no text"),
        (gzip.compress(DICE.randbytes(100_000)), "these bytes are no text"),
        (b"\x28\xb5\x2f\xfd" + DICE.randbytes(100), "packed by zstd, which is not read: unpack it first"),
        (b"", "the files are empty"),
    ],
)
def test_what_is_no_log_is_not_called_well(data: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "job").write_bytes(data)
    for arguments, stdin in (([str(tmp_path / "job")], None), (["-"], data)):
        with pytest.raises(CliError) as caught:
            _diagnose(*arguments, stdin=stdin)
        assert says in caught.value.message


def test_one_file_that_is_no_text_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "core").write_bytes(DICE.randbytes(10_000))
    (tmp_path / "job.out").write_text(XID + "\n")
    report = _diagnose(str(tmp_path / "*"))
    assert "culprit  n3" in report
    assert f"not read\n  {tmp_path}/core: these bytes are no text" in report


@pytest.mark.parametrize(
    "text",
    [
        b"\0" * 5_000 + XID.encode(),
        "Größe überschritten: schöne Grüße, n'était-ce pas\n".encode("latin-1") + XID.encode(),
        "今天的训练开始了\n".encode() + XID.encode(),
        b"\x1b[32m 10%|\xe2\x96\x88\x1b[0m\r\x07" + b"\n" + XID.encode(),
    ],
)
def test_text_of_any_kind_is_text(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "job").write_bytes(text)
    assert json.loads(_diagnose(str(tmp_path / "job"), "--json"))["culprits"] == ["n3"]


def test_a_text_that_says_nothing_of_training_is_neither_well_nor_ill(tmp_path: Path) -> None:
    log = tmp_path / "notes.txt"
    log.write_text("hello\nthis is my shopping list\n")
    report = _diagnose(str(log))
    assert "nothing here speaks of a training run" in report
    assert "nothing is wrong" not in report
    log.write_text("".join(f"iteration {n}/ 100 | consumed samples: {n} | loss: 2.0 |\n" for n in range(1, 6)))
    assert "nothing is wrong" in _diagnose(str(log))
    log.write_text("hello\n")
    assert "nothing is wrong" in _diagnose(str(log), "--state", "COMPLETED")
