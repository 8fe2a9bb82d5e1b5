"""Whatever a store answers, or does not: a state with a message that names it and the remedy, never an error."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from structlog.testing import capture_logs

from activities.metrics.names import UnreadableNames, known_names
from activities.metrics.prometheus import PrometheusMetrics
from activities.metrics.protocol import MetricsAnswer, MetricsState
from activities.metrics.queries import samples_of
from activities.metrics.settings import PrometheusSettings
from tests.logs.test_store_errors import answer
from tests.metrics.asking import asked


def success(*series: object) -> bytes:
    body = {"status": "success", "data": {"resultType": "matrix", "result": series}}
    return answer(200, json.dumps(body).encode(), "Content-Type: application/json")


@asynccontextmanager
async def answering(said: bytes, asked_of: list[str], tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that says the same to everybody; nothing at all: it keeps them waiting. Yields its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
        )
        asked_of.append((head + await reader.readexactly(length)).decode())
        if not said:
            await reader.read()
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def signed_by_itself(directory: Path) -> None:
    """Write ``cert`` and ``key`` for 127.0.0.1, which no authority knows."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (directory / "cert").write_bytes(certificate.public_bytes(Encoding.PEM))
    (directory / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def source_at(url: str, **changes: Any) -> PrometheusMetrics:
    settings = {"kind": "prometheus", "name": "alpha-metrics", "url": url, "timeout_s": 2, **changes}
    return PrometheusMetrics(PrometheusSettings.model_validate(settings), known_names())


async def told(said: bytes, asked_of: list[str] | None = None, **changes: Any) -> MetricsAnswer:
    async with answering(said, [] if asked_of is None else asked_of) as url:
        source = source_at(url, **changes)
        try:
            return await asked(source)
        finally:
            source.close()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (answer(401, b"no credentials"), ["HTTP 401", "no credentials", "`access`"]),
        (answer(403), ["HTTP 403", "`headers`"]),
        (answer(404, b"404 page not found"), ["HTTP 404", "`url`"]),
        (answer(400, b"parse error"), ["HTTP 400", "parse error", "`matchers`"]),
        (answer(302, b"", "Location: https://sso.example.org"), ["HTTP 302", "`url`"]),
        (answer(413), ["HTTP 413", "`window_s`"]),
        (answer(422, b"query processing would load too many samples"), ["too many samples", "`window_s`"]),
        (answer(429, b"slow down", "Retry-After: 30"), ["HTTP 429", "limits"]),
        (answer(503, b"shutting down"), ["HTTP 503", "own log"]),
        (answer(200, b"<html>Sign in</html>", "Content-Type: text/html"), ["HTML", "login page", "`url`"]),
        (answer(502, b"<html>Bad gateway</html>", "Content-Type: text/html"), ["HTTP 502", "own log"]),
        (answer(200, b'{"status":"success","data":{"resu', "Content-Type: application/json"), ["half an answer"]),
        (answer(200, b'{"status":"success"', length=4_000), ["no answer"]),
        (answer(200, b"[]", "Content-Type: application/json"), ["none of its API", "`url`"]),
        (answer(200, b'{"data": {"result": {}}}', "Content-Type: application/json"), ["no list of series", "`url`"]),
        (b"SSH-2.0-OpenSSH_9.2\r\n", ["no answer", "`url`"]),
        (b"", ["no answer within 2 s"]),
    ],
    ids=lambda value: value.decode()[:40] if isinstance(value, bytes) else "",
)
async def test_what_is_no_answer_is_told_with_the_stores_name_and_the_remedy(said: bytes, words: list[str]) -> None:
    found = await told(said)
    assert (found.state, found.samples) == (MetricsState.UNREADABLE, ())
    assert found.reason.startswith("alpha-metrics at http://127.0.0.1:")
    assert [word for word in words if word not in found.reason] == []


async def test_an_answer_that_never_ends_or_drips_is_cut_off() -> None:
    head = answer(200, b"", "Content-Type: application/json", length=1 << 30)
    endless = await told(head + b"[" * (33 << 20))
    assert ("more than 32 MiB" in endless.reason, endless.state) == (True, MetricsState.UNREADABLE)

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.2)

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    source = source_at(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_s=1)
    assert "no answer within 1 s" in (await asked(source)).reason
    source.close()
    server.close()


async def test_what_is_no_series_in_an_answer_is_passed_over() -> None:
    now_s = time.time()
    good = {"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "Hostname": "gpu01"}, "values": [[now_s, "7"]]}
    good["metric"] |= {"gpu": '0"} 100 #\n'}  # type: ignore[operator]
    nan = {**good, "values": [[now_s, "NaN"], [1e300, "1"], [now_s, "x"]]}
    found = await told(success(7, {}, {"metric": {"__name__": 3}}, {"metric": {}, "values": "x"}, nan, good))
    assert found.state is MetricsState.FRESH
    assert {sample.text for sample in found.samples} == {'DCGM_FI_DEV_GPU_UTIL{Hostname="gpu01",gpu="0\') 100 # "} 7'}


async def test_a_store_in_trouble_is_asked_less_often_and_spoken_of_once() -> None:
    asked_of: list[str] = []
    async with answering(answer(429, b"", "Retry-After: 30"), asked_of) as url:
        source = source_at(url)
        with capture_logs() as logs:
            first = await asked(source)
            questions = len(asked_of)
            assert [(await asked(source)).reason for _ in range(20)] == [first.reason] * 20
        source.close()
    assert len(asked_of) == questions
    assert [entry["event"] for entry in logs] == ["no metrics: verdicts are made without"]


async def test_credentials_headers_and_the_tenants_path_are_sent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    asked_of: list[str] = []
    async with answering(success(), asked_of) as url:
        access = {"bearer_token_file": tmp_path / "token"}
        source = source_at(f"{url}/select/7/prometheus/", access=access, headers={"X-Scope-OrgID": "alpha"})
        await asked(source)
        (tmp_path / "token").write_text("renewed\n")
        await asked(source)
        source.close()
    assert all("POST /select/7/prometheus/api/v1/query HTTP/1.1" in request for request in asked_of)
    assert all("X-Scope-OrgID: alpha" in request for request in asked_of)
    assert ("Bearer s3cret" in asked_of[0], "Bearer renewed" in asked_of[-1]) == (True, True)


async def test_a_certificate_is_checked_against_the_sites_own_authority(tmp_path: Path) -> None:
    signed_by_itself(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    async with answering(success(), [], tls) as url:
        trusting, wary = source_at(url, access={"ca_file": tmp_path / "cert"}), source_at(url)
        assert (await asked(trusting)).state is MetricsState.STALE
        assert "`access.ca_file`" in (await asked(wary)).reason
        trusting.close()
        wary.close()


async def test_values_from_outside_stay_values_in_a_query() -> None:
    asked_of: list[str] = []
    await told(success(), asked_of, matchers={"cluster": '"} or vector(1) #\n\\'})
    queries = [parse_qs(request.partition("\r\n\r\n")[2])["query"][0] for request in asked_of]
    assert all('cluster="\\"} or vector(1) #\\n\\\\"' in query for query in queries)
    query = samples_of(["up"], ["n.1", "n-2"], timedelta(seconds=60), node_label="node", matchers={})
    assert query == '{__name__=~"up",node=~"(n\\\\.1|n\\\\-2)([.][^:]*)?(:[0-9]+)?"}[60s]'


def test_a_site_adds_names_of_its_own_and_a_bad_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "names.yaml"
    file.write_text(
        "- {name: DCGM_FI_DEV_GPU_UTIL, also: [site_gpu_busy], kind: level, group: gpu_activity, from: ours}"
    )
    assert known_names(file).by_series["site_gpu_busy"].name == "DCGM_FI_DEV_GPU_UTIL"
    for bad in ("- {name: x}", "- {name: 'a b', kind: level, group: host, from: x}", "{", "- 7", "\x00"):
        file.write_text(bad)
        with pytest.raises(UnreadableNames, match=r"names\.yaml"):
            known_names(file)
    with pytest.raises(UnreadableNames, match=r"missing\.yaml"):
        known_names(tmp_path / "missing.yaml")
