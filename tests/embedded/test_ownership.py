"""Who may run servers in a state directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workers.embedded.ownership import owned
from workers.embedded.server import EmbeddedServerError

HOLD = """
import subprocess, sys, time
from pathlib import Path
from workers.embedded.ownership import owned

with owned(Path(sys.argv[1])):
    subprocess.Popen(["sleep", "30"], stdout=subprocess.DEVNULL)
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_process_is_told_who_has_the_state_directory(tmp_path: Path) -> None:
    ours = rf"pid {os.getpid()}\)"
    with owned(tmp_path / "state"), pytest.raises(EmbeddedServerError, match=ours), owned(tmp_path / "state"):
        pass


def test_a_state_directory_is_free_again_when_its_owner_is_done(tmp_path: Path) -> None:
    for _ in range(2):
        with owned(tmp_path / "state"):
            pass


def test_a_killed_owner_leaves_it_free_although_what_it_started_lives_on(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, start_new_session=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"held\n"
        with pytest.raises(EmbeddedServerError, match=f"pid {owner.pid}"), owned(tmp_path):
            pass
        owner.kill()
    with owned(tmp_path):
        pass
    os.killpg(owner.pid, 15)
