"""The real nvrx-attrsvc on this host, from tests/install_attrsvc.sh, and a language model for its older release."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.docs.blocks import REPOSITORY
from tests.opinions.parts import Asked, Reply
from tests.stores.servers import NoStore, cached, free_port, wait_until_it_answers

RELEASES = ("0.7", "0.6")


@dataclass(frozen=True)
class RunningService:
    """A service that answers."""

    release: str
    url: str
    root: Path
    """Its ALLOWED_ROOT."""


@contextmanager
def running_attrsvc(
    release: str, directory: Path, *, model_url: str = "", drain_s: float = 40.0
) -> Iterator[RunningService]:
    """Run the service while the context is open; its root is below `directory`. It waits at most `drain_s` for a log's
    last lines. Raises `NoStore`."""
    place = cached(f"attrsvc/{release}", REPOSITORY / "requirements" / f"attrsvc-{release}.lock")
    if not (place / "installed").exists():
        raise NoStore(f"nvrx-attrsvc {release} is not installed on this machine (tests/install_attrsvc.sh)")
    root, port = directory / "root", free_port()
    root.mkdir()
    told = {
        "ALLOWED_ROOT": root,
        "HOST": "127.0.0.1",
        "PORT": port,
        "ANALYSIS_BACKEND": "lib",
        "RESTART_AGENT_ENRICHMENT_ENABLED": "false",
        "RESTART_AGENT_LOG_MAX_WAIT_SECONDS": drain_s,
        "LLM_BASE_URL": model_url or "http://127.0.0.1:1",
        "RATE_LIMIT_ANALYZE": "600/minute",
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment |= {f"NVRX_ATTRSVC_{name}": str(value) for name, value in told.items()} | {"LLM_API_KEY": "none"}
    log = directory / "attrsvc.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [place / "bin" / "python", "-m", "nvidia_resiliency_ext.services.attrsvc"],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_it_answers(f"{url}/healthz", process, log)
        yield RunningService(release, url, root)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def language_model(asked: Asked) -> Reply:
    """Answer a chat of OpenAI's API: each line is an error, and the program is to be stopped."""
    only = "Return only" in json.dumps(json.loads(asked.body)["messages"])[-600:]
    words = "yes" if only else "STOP - DONT RESTART IMMEDIATE"
    message = {"role": "assistant", "content": words}
    return Reply(
        json.dumps(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "none",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        )
    )
