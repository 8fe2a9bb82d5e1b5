"""TLS: the server must be vouched for, and may want to know us by a certificate."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from activities.scheduler.protocol import SchedulerUnavailable
from activities.scheduler.rest import SlurmRest
from activities.scheduler.rest_api import RestApi
from activities.scheduler.rest_client import RestClient, RestServer
from tests.rest.server import said, scripted

NO_JOBS = said({"jobs": [], "errors": []})


@dataclass(frozen=True)
class Signed:
    """A certificate with its key, as files."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority of the test's own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("the test's authority")
        own = self._signed(self._name, self._key, x509.BasicConstraints(ca=True, path_length=0))
        self.cert = directory / "ca.pem"
        self.cert.write_bytes(own.public_bytes(Encoding.PEM))

    def sign(self, name: str) -> Signed:
        key = ec.generate_private_key(ec.SECP256R1())
        cert = self._signed(_named(name), key, x509.BasicConstraints(ca=False, path_length=None))
        files = Signed(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        files.cert.write_bytes(cert.public_bytes(Encoding.PEM))
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, constraints: x509.BasicConstraints
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(constraints, critical=True)
            .add_extension(here, critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls_of(server: Signed, *, clients_of: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.cert, server.key)
    if clients_of:
        context.load_verify_locations(clients_of)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def read_jobs_of(server: RestServer) -> None:
    client = RestClient(server, None)
    try:
        await SlurmRest(RestApi(client)).jobs()
    finally:
        await client.close()


async def test_a_server_that_the_ca_file_vouches_for_is_spoken_to(authority: Authority) -> None:
    async with scripted(NO_JOBS, tls=tls_of(authority.sign("server"))) as server:
        await read_jobs_of(RestServer(f"https://127.0.0.1:{server.port}", ca_file=authority.cert))
    assert len(server.asked) == 1


async def test_a_server_that_nobody_vouches_for_is_not_and_ca_file_is_named(authority: Authority) -> None:
    async with scripted(NO_JOBS, tls=tls_of(authority.sign("server"))) as server:
        with pytest.raises(SchedulerUnavailable, match=r"https://127.0.0.1:\d+ .*set ca_file to the authority"):
            await read_jobs_of(RestServer(f"https://127.0.0.1:{server.port}"))
    assert not server.asked


async def test_a_server_that_wants_a_certificate_gets_ours(authority: Authority) -> None:
    ours = authority.sign("relight")
    tls = tls_of(authority.sign("server"), clients_of=authority.cert)
    async with scripted(NO_JOBS, tls=tls) as server:
        url = f"https://127.0.0.1:{server.port}"
        await read_jobs_of(
            RestServer(url, ca_file=authority.cert, client_cert_file=ours.cert, client_key_file=ours.key)
        )
        with pytest.raises(SchedulerUnavailable, match="gave no answer"):
            await read_jobs_of(RestServer(url, ca_file=authority.cert))
    assert len(server.asked) == 1


async def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(SchedulerUnavailable, match="ca_file, client_cert_file or client_key_file cannot be read"):
        await read_jobs_of(RestServer("https://127.0.0.1:9", ca_file=tmp_path / "none.pem"))
