"""A site's own signatures, from relight.yaml to what the commands and the worker say."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from typer.testing import CliRunner

from activities.assess import Assessor
from activities.assessment import Terms
from recovery.policy import PolicySettings
from recovery.signatures import catalogue
from tests.assess.test_attribution import Assessment
from tests.diagnosis.test_catalogue import ENTRY as PLAIN_ENTRY
from workers.cli.main import app
from workers.errors import OperatorError
from workers.settings import load_settings
from workers.site_signatures import site_catalogue
from workers.worker import running_worker

CORPUS = Path(__file__).parents[1] / "corpus" / "dev"
ENTRY = PLAIN_ENTRY.replace("  culprit:", "  fatal: true\n  culprit:")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Settings that name a file of signatures beside them."""
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "own.yaml").write_text(ENTRY)
    (folder / "relight.yaml").write_text("signatures: [own.yaml]\nclusters: [{name: alpha}]\n")
    return folder / "relight.yaml"


def _said(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return json.loads(result.stdout)


def test_diagnose_goes_by_the_sites_signatures(config: Path, tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text("disk of n2 is tired\n")
    asked = ("diagnose", str(log), "--node-list", "n[1-3]", "--state", "FAILED")
    verdict = _said("--config", str(config), *asked)
    assert (verdict["cause"], verdict["culprits"]) == ("tired_disk", ["n2"])
    assert _said(*asked)["cause"] != "tired_disk"


def test_eval_and_a_case_go_by_them_too(config: Path, tmp_path: Path) -> None:
    case = json.loads(gzip.decompress(next(CORPUS.glob("002-*")).read_bytes()))
    node = case["job"]["nodes"][0]
    case["lines"] = [{"text": f"disk of {node} is tired"}]
    case["expected"] |= {"outcome": "crash", "category": "host", "action": "restart_exclude", "culpable_nodes": [node]}
    cases = tmp_path / "cases"
    cases.mkdir()
    (cases / "one.json").write_text(json.dumps(case))
    assert _said("--config", str(config), "eval", str(cases))["culprit_recall"] == 1.0
    assert _said("eval", str(cases))["culprit_recall"] == 0.0
    assert _said("--config", str(config), "diagnose", "--case", str(cases / "one.json"))["cause"] == "tired_disk"


async def test_a_worker_attributes_by_them(config: Path, tmp_path: Path) -> None:
    job = Assessment(tmp_path)
    job.out.write_text("disk of node02 is tired\n")
    assert (await job.attribute(job.order())).verdict.cause != "tired_disk"
    job.assessor = Assessor(
        job.scheduler,  # type: ignore[arg-type]
        job.logs,
        PolicySettings(),
        Terms(),
        catalogue=site_catalogue(load_settings(config).signatures),
    )
    assert (await job.attribute(job.order())).verdict.cause == "tired_disk"


async def test_a_worker_does_not_start_with_a_signature_that_cannot_be_used(config: Path) -> None:
    (config.parent / "own.yaml").write_text(ENTRY.replace("is tired'", "is (tired'"))
    nowhere = await Client.connect("127.0.0.1:1", lazy=True)
    with pytest.raises(OperatorError, match=r"etc/own\.yaml:3: pattern: .*not an RE2 pattern"):
        async with running_worker(nowhere, load_settings(config), ""):
            pass


def test_a_packaged_file_can_be_checked() -> None:
    for file in sorted(Path(catalogue.__file__).parent.glob("*.yaml")):
        assert "all good" in CliRunner().invoke(app, ["signatures", "check", str(file)]).stdout


def test_a_file_that_is_not_there_is_named(config: Path) -> None:
    (config.parent / "own.yaml").unlink()
    with pytest.raises(OperatorError, match=r"etc/own\.yaml: No such file"):
        site_catalogue(load_settings(config).signatures)
