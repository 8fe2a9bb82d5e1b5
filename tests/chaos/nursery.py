"""``python -m tests.chaos.nursery CONFIG [MUTANT]``: has all of relight loaded, and on each line of its input forks a
process that is `relight` from its command line on. So a worker that was killed is back in half a second."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
from typing import NoReturn

import pytest
from temporalio.worker._worker import load_default_build_id

from recovery.signatures.catalogue import packaged_catalogue
from tests.mutants.planted import MUTANTS
from workers.cli.main import main as relight

LOADED = (
    *("workers.worker", "workers.watchdog", "workers.connection", "workers.logs"),
    *("temporalio.worker", "temporalio.contrib.pydantic", "temporalio.envconfig", "asyncpg"),
)
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Read orders (JSON: ``log``, ``words``), answer each with the process id."""
    config, *mutant = sys.argv[1:]
    for name in LOADED:
        importlib.import_module(name)
    packaged_catalogue()
    load_default_build_id()  # a hash over all code that is loaded: half of what a worker's start costs
    if mutant:
        MUTANTS[mutant[0]].plant(pytest.MonkeyPatch())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _be_relight(config, order["words"], order["log"])
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def _be_relight(config: str, words: list[str], log: str) -> NoReturn:
    code = 1
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(number, target)
        sys.argv = ["relight", "--config", config, *words]
        relight()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
