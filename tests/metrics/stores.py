"""Prometheus and VictoriaMetrics on this host, and an exporter that replays series and that they scrape."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from activities.metrics.settings import PrometheusSettings
from tests.stores.servers import free_port

KINDS = ("prometheus", "victoria-metrics")
START_TIMEOUT_S = 60.0
SCRAPE_S = 1


@dataclass
class Exporter:
    """Shows its lines to whoever scrapes it, until they are replaced."""

    port: int
    lines: Sequence[str] = ()

    def show(self, *lines: str) -> None:
        """From now on show these series and no others."""
        self.lines = lines


@contextmanager
def running_exporter() -> Iterator[Exporter]:
    """An exporter while the context is open."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = "".join(f"{line}\n" for line in exporter.lines).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(BrokenPipeError):  # it was too slow for the scraper
                self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    exporter = Exporter(server.server_address[1])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield exporter
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class MetricStore:
    """A store that scrapes one exporter every second."""

    kind: str
    port: int
    directory: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def settings(self, **changes: object) -> PrometheusSettings:
        """Return settings for the store."""
        return PrometheusSettings.model_validate({"kind": "prometheus", "url": self.url, **changes})

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory
            )
        self._wait()

    def kill(self) -> None:
        """End it at once, as a lost host does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)

    def _command(self) -> list[str]:
        config, data = self.directory / "scrape.yml", self.directory / "data"
        if self.kind == "prometheus":
            return [
                *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}"),
                *(f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"),
            ]
        return [
            *("victoria-metrics", f"-promscrape.config={config}", f"-storageDataPath={data}"),
            *(f"-httpListenAddr=127.0.0.1:{self.port}", "-loggerLevel=ERROR", "-memory.allowedBytes=64MB"),
        ]

    def _wait(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        ready = f"{self.url}/{'-/ready' if self.kind == 'prometheus' else 'health'}"
        while time.monotonic() < deadline and self.process is not None and self.process.poll() is None:
            try:
                if httpx.get(ready, timeout=5).is_success:
                    return
            except httpx.HTTPError:
                time.sleep(0.1)
        raise AssertionError(f"{self.kind} does not answer: {(self.directory / 'log').read_text()[-2_000:]}")


@contextmanager
def running_store(kind: str, exporter: Exporter) -> Iterator[MetricStore]:
    """Run a store of `kind` that scrapes `exporter` while the context is open; skip the test where there is none."""
    if shutil.which(kind) is None:
        pytest.skip(f"{kind} is not installed (tests/install_packages.sh)")
    directory = Path(tempfile.mkdtemp(prefix=f"relight-{kind}-"))
    (directory / "scrape.yml").write_text(
        f"""global: {{scrape_interval: {SCRAPE_S}s, scrape_timeout: {SCRAPE_S}s}}
scrape_configs:
  - job_name: dcgm
    honor_labels: true
    static_configs: [{{targets: ["127.0.0.1:{exporter.port}"]}}]
"""
    )
    store = MetricStore(kind, free_port(), directory)
    try:
        store.start()
        yield store
    finally:
        store.kill()
        shutil.rmtree(directory, ignore_errors=True)
