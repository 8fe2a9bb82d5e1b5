"""`relight doctor metrics` and `relight doctor attribution` on addresses that hold secrets, where nobody answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.stores.servers import free_port
from workers.cli.main import app

KINDS = {"metrics": "prometheus", "attribution": "http"}


def _doctor(directory: Path, command: str, services: list[dict[str, Any]], *options: str) -> str:
    """Run one of the commands on a cluster for each of `services`, and return all that it printed."""
    nobody = {"kind": "simulated", "socket": str(directory / "nobody.sock")}
    clusters = [{"name": f"c{n}", "scheduler": nobody, command: each} for n, each in enumerate(services)]
    config = directory / "relight.yaml"
    config.write_text(json.dumps({"clusters": clusters}))
    return CliRunner().invoke(app, ["--config", str(config), "doctor", command, *options]).output


@pytest.mark.parametrize("command", KINDS)
def test_no_account_and_no_secret_of_an_address_is_shown(command: str, tmp_path: Path) -> None:
    place = f"127.0.0.1:{free_port()}"
    accounts, paths = ("ana:s3cret-word@", "", "t0ken-word@"), ("", "/token=t0ken-word", "/base/")
    services = [
        {"kind": KINDS[command], "url": f"http://{account}{place}{path}"}
        for account, path in zip(accounts, paths, strict=True)
    ]
    for said in (_doctor(tmp_path, command, services), _doctor(tmp_path, command, services, "--json")):
        assert "word" not in said
        assert said.count(place) >= len(services)
    said = _doctor(tmp_path, command, services)
    assert f"cluster c0, http://{place}\n" in said
    assert f"cluster c2, http://{place}/base\n" in said


@pytest.mark.parametrize(("command", "nothing"), [("metrics", "no metrics"), ("attribution", "no attribution service")])
def test_a_cluster_without_such_a_service_is_named_so(command: str, nothing: str, tmp_path: Path) -> None:
    nobody = {"kind": "simulated", "socket": str(tmp_path / "nobody.sock")}
    config = tmp_path / "relight.yaml"
    config.write_text(json.dumps({"clusters": [{"name": "alpha", "scheduler": nobody}]}))
    said = CliRunner().invoke(app, ["--config", str(config), "doctor", command])
    assert (said.exit_code, said.output.splitlines()[0]) == (0, f"cluster alpha, {nothing}")
