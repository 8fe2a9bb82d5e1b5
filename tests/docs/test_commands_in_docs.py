"""Every command that the README shows works as it stands there."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from recovery.policy import PolicySettings
from tests.docs.blocks import REPOSITORY, blocks, commands
from tests.endtoend.conftest import Servers
from tests.endtoend.service import Service
from tests.endtoend.simulated_jobs import submit
from tests.simulator.running import RunningSimulator, running, until
from workers.settings import load_settings

pytestmark = [pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(180)]

ELSEWHERE = {
    "make test": "this is it",
    "make demo": "tests/docs/test_demo.py",
    "relight up": "tests/endtoend/test_up.py",
}
"""Commands that have a test of their own."""


@pytest.fixture
async def place(own_simulator: RunningSimulator, servers: Servers, tmp_path: Path) -> tuple[Path, Service]:
    """A directory as the README's reader has it: relight.yaml for the cluster alpha, a log, and jobs 1 and 2."""
    directory = tmp_path / "alpha"
    directory.mkdir()
    (directory / "tests").symlink_to(REPOSITORY / "tests")
    service = servers.service(directory)
    service.configure({"kind": "simulated", "socket": str(own_simulator.socket)}, poll_interval_s=0.5)
    service.start()
    opted_in = await submit(own_simulator, "train")
    other = await submit(own_simulator, "other", comment="")
    assert (opted_in, other) == ("1", "2")
    await until(own_simulator, other, running)
    await service.wait_for(opted_in, "adopted", lambda state: state.audit_count > 0)
    (directory / "train-1.log").write_text("2: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
    return directory, service


async def test_every_relight_command_of_the_readme_runs(place: tuple[Path, Service]) -> None:
    directory, service = place
    shown = [command for command in commands("README.md") if command not in ELSEWHERE]
    assert len(shown) > 10
    try:
        for command in sorted(shown, key=lambda command: command.startswith("relight stop")):
            program, *words = shlex.split(command)
            assert program == "relight", command
            done = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-m", "workers.cli", *words],
                cwd=directory,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
            await service.wait_for("1", command, lambda state: bool(state.closed) or not state.commands)
    finally:
        service.stop()


def test_the_settings_of_the_readme_are_settings(tmp_path: Path) -> None:
    (shown,) = blocks("README.md", "yaml")
    (tmp_path / "relight.yaml").write_text(shown)
    settings = load_settings(tmp_path / "relight.yaml")
    assert settings.clusters[0].effective_mode.value == "observe"


@pytest.mark.parametrize("document", ["docs/arrays-and-chains.md", "docs/resubmission.md"])
def test_the_policy_that_a_document_shows_is_one(document: str) -> None:
    (shown,) = blocks(document, "yaml")
    policy = PolicySettings.model_validate(yaml.safe_load(shown)["policy"])
    assert policy.model_fields_set


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    for document in (
        "README.md",
        "docs/how-it-works.md",
        "docs/arrays-and-chains.md",
        "docs/attribution-services.md",
        "docs/metrics.md",
        "docs/resubmission.md",
        "CONTRIBUTING.md",
        "deploy/slurm/README.md",
        "deploy/ssh/README.md",
        "deploy/rest/README.md",
    ):
        base = (REPOSITORY / document).parent
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", (REPOSITORY / document).read_text()):
            assert (base / target).exists(), f"{document} links to {target}"
