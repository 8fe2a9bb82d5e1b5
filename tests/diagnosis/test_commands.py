"""The commands that need no server: diagnose, signatures, eval."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recovery.attribution.score import Prediction
from recovery.redaction import MASK, mask_also
from workers.cli.main import app
from workers.cli.output import CliError
from workers.settings import SettingsError

CORPUS = Path(__file__).parents[1] / "corpus" / "dev"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def _run(*arguments: str, stdin: bytes | None = None) -> str:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_report_names_what_why_who_and_what_to_do_with_file_and_line(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(f"hello\n2: {XID}\nsrun: error: n3: task 2: Exited with exit code 1\n")
    report = _run("diagnose", str(log), "--node-list", "n[1-4]")
    assert "A GPU has fallen off the bus (on n3)." in report
    assert "culprit  n3" in report
    assert "restart from the last checkpoint without n3 (restart_exclude)" in report
    assert f"{log}:2 [n3] 2: NVRM: Xid" in report


def test_a_report_says_why_nobody_can_be_blamed(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(XID + "\n")
    assert "cannot be located, because no prefix tells which node" in _run(
        "diagnose", str(log), "--node-list", "n[1-4]"
    )


def test_files_globs_compressed_files_and_standard_input_are_read_alike(tmp_path: Path) -> None:
    text = f"n3: {XID}\n".encode()
    (tmp_path / "a.log").write_bytes(text)
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(text))
    ways = [
        _run("diagnose", str(tmp_path / "a.log"), "--json"),
        _run("diagnose", str(tmp_path / "*.log"), "--json"),
        _run("diagnose", str(tmp_path / "b.log.gz"), "--json"),
        _run("diagnose", "-", "--json", stdin=text),
    ]
    assert {tuple(json.loads(way)["culprits"]) for way in ways} == {("n3",)}


def test_a_file_named_after_a_node_speaks_of_that_node(tmp_path: Path) -> None:
    log = tmp_path / "dmesg.n-2.log"
    log.write_text(f"[  812.123456] {XID}\n")
    assert json.loads(_run("diagnose", str(log), "--node-list", "n-[1-4]", "--json"))["culprits"] == ["n-2"]


def test_the_allocation_is_learned_from_the_log_when_it_is_printed_there(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(f"SLURM_JOB_NODELIST=gpu[07-10]\n1: {XID}\n")
    assert json.loads(_run("diagnose", str(log), "--gpus-per-node", "1", "--json"))["culprits"] == ["gpu08"]


@pytest.fixture
def badge_masked(tmp_path: Path) -> Iterator[Path]:
    """Settings of a site that masks its badges."""
    config = tmp_path / "relight.yaml"
    config.write_text("redaction: {patterns: ['badge-[0-9]{6}']}\n")
    yield config
    mask_also(())


def test_what_the_sites_settings_mask_is_masked_in_a_report(badge_masked: Path, tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(
        "Traceback (most recent call last):\n"
        '  File "/w/train.py", line 3, in main\n'
        "ValueError: no card for badge-123456\n"
        "srun: error: n3: task 2: Exited with exit code 1\n"
    )
    assert "badge-123456" in _run("diagnose", str(log), "--json")
    ways = [
        _run("--config", str(badge_masked), "diagnose", str(log)),
        _run("--config", str(badge_masked), "diagnose", str(log), "--json"),
    ]
    for said in ways:
        assert "badge-123456" not in said
        assert f"no card for {MASK}" in said


def test_nothing_is_shown_where_the_sites_settings_cannot_be_read(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(XID + "\n")
    with pytest.raises(SettingsError, match=r"no-such\.yaml"):
        _run("--config", str(tmp_path / "no-such.yaml"), "diagnose", str(log))


def test_a_case_is_printed_as_one_prediction() -> None:
    case = next(CORPUS.glob("002-*"))
    said = json.loads(_run("diagnose", "--case", str(case), "--json"))
    assert list(said) == ["id", "outcome", "category", "cause", "culpable_nodes", "victim_nodes", "action"]
    assert (said["id"], said["outcome"], said["action"]) == ("002", "hang", "restart_exclude")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["diagnose"], "nothing to read"),
        (["diagnose", "no-such-file.log"], "no-such-file.log: no such file"),
        (["diagnose", "x", "--case", "y"], "more than one kind of input at once"),
        (["diagnose", "--case", __file__], "not a corpus case"),
        (["diagnose", __file__, "--node-list", "n[1-"], "--node-list"),
        (["diagnose", "--flight-recorder", "no-such-folder"], "no-such-folder"),
        (["eval", str(Path(__file__).parent)], "no case files"),
        (["signatures", "check", "no-such.yaml"], "no-such.yaml"),
        (["signatures", "test", "all is well"], "no entry knows this line"),
    ],
)
def test_what_a_caller_can_mend_is_one_line_with_a_hint(arguments: list[str], says: str) -> None:
    with pytest.raises(CliError) as caught:
        _run(*arguments)
    assert says in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_eval_prints_the_figures_and_writes_the_predictions(tmp_path: Path) -> None:
    for case in sorted(CORPUS.glob("07*")):
        (tmp_path / case.name).write_bytes(case.read_bytes())
    predictions = tmp_path / "said.txt"
    figures = json.loads(_run("eval", str(tmp_path), "--json", "--predictions", str(predictions)))
    said = [Prediction.model_validate(one) for one in json.loads(predictions.read_text())]
    assert figures["cases"] == len(said) == len(list(CORPUS.glob("07*")))
    assert figures["wrong"]["false_alarms"] == []
    assert "culprit_recall" in _run("eval", str(tmp_path))


def test_eval_counts_each_kind_of_mistake(tmp_path: Path) -> None:
    case = json.loads(gzip.decompress(next(CORPUS.glob("002-*")).read_bytes()))
    case["expected"] |= {"outcome": "none", "category": "none", "action": "none", "culpable_nodes": ["gpu-c-011"]}
    (tmp_path / "wrong.json").write_text(json.dumps(case))
    figures = json.loads(_run("eval", str(tmp_path), "--json"))
    assert (figures["outcome"], figures["all"], figures["culprit_precision"]) == (0.0, 0.0, 0.0)
    kinds = {kind for kind, ids in figures["wrong"].items() if ids}
    assert kinds == {"outcome", "category", "action", "wrong_exclusions", "missed_culprits", "false_alarms"}


def test_signatures_can_be_listed_tested_and_checked(tmp_path: Path) -> None:
    assert "xid-off-the-bus" in _run("signatures", "list")
    assert "gpu_fallen_off_bus (hardware_gpu), a root line" in _run("signatures", "test", XID)
    own = tmp_path / "own.yaml"
    own.write_text(
        "- {id: own, pattern: 'abc', component: c, category: host, cause: own_cause, role: root, witness: host, "
        "source: 'https://example.org'}\n"
    )
    assert "1 entries, all good" in _run("signatures", "check", str(own))
    assert json.loads(_run("signatures", "test", "xabcx", "--with", str(own), "--json"))["signature"]["id"] == "own"
    own.write_text("- {id: own, pattern: '('}\n")
    with pytest.raises(CliError, match=r"own\.yaml:1"):
        _run("signatures", "check", str(own))
