"""`make demo`, as the README tells its readers to type it."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.docs.blocks import REPOSITORY

pytestmark = [pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(200)]


def test_make_demo_ends_as_it_should_within_90_s() -> None:
    # Under `make test` this make would be told that it is a part of that one, and say where it goes.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", "demo"], cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=190
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Temporal Web UI: http://127.0.0.1:" in done.stdout
    assert "FAILED " not in done.stdout
    assert done.stdout.splitlines()[-1].startswith("all as expected in ")
