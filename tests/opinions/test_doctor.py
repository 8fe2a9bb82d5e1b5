"""`relight doctor attribution` on the real nvrx-attrsvc and on stand-ins, well and with one thing wrong at a time."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import commands
from tests.opinions.attrsvc import RELEASES, RunningService, running_attrsvc
from tests.opinions.parts import Reply, one_after_another, standing_in
from tests.stores.servers import NoStore, free_port

pytestmark = pytest.mark.timeout(240)

WELL = {"reach": "ok", "health": "ok", "release": "ok", "copies": "ok"}
ALL_WELL = {"0.7": WELL, "0.6": {**WELL, "release": "warning"}}


@pytest.fixture(scope="module", params=RELEASES)
def attrsvc(request: pytest.FixtureRequest) -> Iterator[RunningService]:
    with tempfile.TemporaryDirectory(prefix="relight-attrsvc-") as directory:
        try:
            with running_attrsvc(request.param, Path(directory)) as service:
                (service.root / "copies").mkdir()
                yield service
        except NoStore as missing:
            pytest.skip(str(missing))


async def doctor(directory: Path, attribution: dict[str, Any] | None, *options: str) -> tuple[int, str]:
    """Run the command of the document and return its exit code and what it printed."""
    (command,) = commands("docs/attribution-services.md")
    nobody = {"kind": "simulated", "socket": str(directory / "nobody.sock")}
    cluster = {"name": "alpha", "scheduler": nobody, "attribution": attribution}
    (directory / "relight.yaml").write_text(json.dumps({"clusters": [cluster]}))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "workers.cli", *command.split()[1:], *options),
        cwd=directory,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def checks(directory: Path, attribution: dict[str, Any] | None) -> tuple[int, dict[str, dict[str, str]]]:
    code, said = await doctor(directory, attribution, "--json")
    return code, {check["name"]: check for check in json.loads(said)["clusters"]["alpha"]}


async def test_a_service_that_sees_the_copies_is_well(attrsvc: RunningService, tmp_path: Path) -> None:
    settings = {"kind": "nvrx", "url": attrsvc.url, "copy_dir": str(attrsvc.root / "copies")}
    code, found = await checks(tmp_path, settings)
    assert (code, {name: check["finding"] for name, check in found.items()}) == (0, ALL_WELL[attrsvc.release]), found
    assert attrsvc.release in found["release"]["says"]
    assert found["health"]["says"] == "ok"
    _, said = await doctor(tmp_path, settings)
    assert f"cluster alpha, {attrsvc.url}" in said


async def test_copies_outside_its_root_are_named(attrsvc: RunningService, tmp_path: Path) -> None:
    code, found = await checks(tmp_path, {"kind": "nvrx", "url": attrsvc.url, "copy_dir": str(tmp_path)})
    assert (code, found["copies"]["finding"]) == (1, "failed")
    assert "ALLOWED_ROOT" in found["copies"]["remedy"]
    assert [path.name for path in tmp_path.iterdir()] == ["relight.yaml"]


async def test_a_place_for_copies_that_is_not_there_is_named(attrsvc: RunningService, tmp_path: Path) -> None:
    settings = {"kind": "nvrx", "url": attrsvc.url, "copy_dir": str(attrsvc.root / "missing")}
    code, found = await checks(tmp_path, settings)
    assert (code, found["copies"]["finding"]) == (1, "failed")
    assert "make the directory" in found["copies"]["remedy"]


async def test_without_copies_and_running_jobs_nothing_is_known_of_its_root(
    attrsvc: RunningService, tmp_path: Path
) -> None:
    code, found = await checks(tmp_path, {"kind": "nvrx", "url": attrsvc.url})
    assert (code, found["output"]["finding"]) == (0, "unknown")


async def test_a_service_that_is_down_is_named(tmp_path: Path) -> None:
    code, found = await checks(tmp_path, {"kind": "nvrx", "url": f"http://127.0.0.1:{free_port()}"})
    assert (code, list(found), found["reach"]["finding"]) == (1, ["reach"], "failed")
    assert "check `url`" in found["reach"]["remedy"]


@pytest.mark.parametrize(
    ("reply", "finding"),
    [
        (Reply('{"detail":"Method Not Allowed"}', 405), "ok"),
        (Reply("{}"), "ok"),
        (Reply("who?", 401), "failed"),
        (Reply("", 404), "failed"),
        (Reply("<html>", 200, {"Content-Type": "text/html"}), "failed"),
        (Reply("", 503), "failed"),
    ],
    ids=lambda value: str(getattr(value, "status", value)),
)
async def test_a_service_of_ones_own_is_reached_or_not(reply: Reply, finding: str, tmp_path: Path) -> None:
    async with standing_in(one_after_another(reply)) as service:
        code, found = await checks(tmp_path, {"kind": "http", "url": f"{service.url}/attribute"})
    assert (found["reach"]["finding"], code) == (finding, 0 if finding == "ok" else 1)
    assert [asked.method for asked in service.asked] == ["GET"]


async def test_without_a_service_there_is_nothing_to_fail(tmp_path: Path) -> None:
    code, found = await checks(tmp_path, None)
    assert (code, found["service"]["finding"]) == (0, "unknown")
