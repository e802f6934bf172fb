"""The HTTP client over TLS, with a certificate made by openssl."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from gymnast.wire.http_client import HttpClient, parse_target
from gymnast.wire.http_connection import TransportError
from tests.helpers.parts import needs
from tests.helpers.tcp_server import OK, answering, listening

pytestmark = needs("openssl")


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for localhost that no client trusts, and its key."""
    key, chain = tmp_path / "key.pem", tmp_path / "cert.pem"
    options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    files = ["-keyout", str(key), "-out", str(chain)]
    subprocess.run(["openssl", "req", *options.split(), "-addext", names, *files], check=True, capture_output=True)
    return chain, key


async def test_tls_is_verified(certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    async with listening(answering(OK), tls=context) as server:
        url = f"https://localhost:{server.port}/"
        async with HttpClient() as http:
            with pytest.raises(TransportError, match=r"(?i)certificate.verify.failed"):
                await http.request("GET", parse_target(url))
        async with HttpClient() as http:
            http._tls = ssl.create_default_context(cafile=str(certificate[0]))
            assert (await http.request("GET", parse_target(url))).body == b"hi"
