"""Calls through a proxy and with certificates of one's own, with asyncio's loop and with uvloop's."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gymnast.compat.nemo_gym import server_utils
from gymnast.config.environ import Network, child_environ, inherited_environ, read_network
from gymnast.endpoints.replicas import Replica
from gymnast.wire.http_client import HttpClient, parse_target
from gymnast.wire.http_connection import TransportError
from tests.helpers.parts import needs
from tests.helpers.proxy_server import ProxyServer
from tests.helpers.tcp_server import OK, answering, listening

pytestmark = needs("openssl")
HOST = "endpoint.test"
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run_once(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(work)

    return run_once


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A file with a key and a self-signed certificate of the endpoint."""
    key, chain = tmp_path / "key.pem", tmp_path / "cert.pem"
    options = f"-x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={HOST} -addext subjectAltName=DNS:{HOST}"
    command = ["openssl", "req", *options.split(), "-keyout", str(key), "-out", str(chain)]
    subprocess.run(command, check=True, capture_output=True)
    return chain


def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    return context


def network(**variables: str) -> Network:
    return read_network(variables)


async def fetch(settings: Network, url: str, *, external: bool = True) -> bytes:
    async with HttpClient(network=settings) as http:
        target = parse_target(url, external=external)
        first = (await http.request("POST", target, (("a", "b"),), b"{}", idempotent=True)).body
        assert (await http.request("POST", target, (("a", "b"),), b"{}", idempotent=True)).body == first
        return first


def test_an_https_endpoint_is_reached_through_a_tunnel(
    run: Run, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def work() -> None:
        async with listening(answering(OK), server_tls(certificate)) as endpoint:
            proxy = ProxyServer(endpoint.port, user="me:p@ss word")
            async with listening(proxy) as listener:
                address = f"http://me:p%40ss%20word@127.0.0.1:{listener.port}"
                assert await fetch(network(https_proxy=address), f"https://{HOST}/v1/x") == b"hi"
            assert proxy.asked == [f"CONNECT {HOST}:443 HTTP/1.1"]  # once: the connection is kept

    run(work())


def test_an_http_endpoint_is_passed_on(run: Run) -> None:
    async def work() -> None:
        async with listening(answering(OK)) as endpoint:
            proxy = ProxyServer(endpoint.port, user="me:secret")
            async with listening(proxy) as listener:
                settings = network(HTTP_PROXY=f"http://me:secret@127.0.0.1:{listener.port}")
                assert await fetch(settings, f"http://{HOST}:8000/v1/x?y=1") == b"hi"
            assert proxy.asked == [f"POST http://{HOST}:8000/v1/x?y=1 HTTP/1.1"]

    run(work())


@pytest.mark.parametrize(
    ("refuse", "why"),
    [
        (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", "answered 403"),
        (b"SSH-2.0 hello\r\n\r\n", "is not HTTP"),
        (b"", "closed the connection"),
        (b"x" * 70_000, "is too long"),
    ],
)
def test_a_proxy_that_refuses_is_named(run: Run, refuse: bytes, why: str) -> None:
    async def work() -> None:
        async with listening(ProxyServer(1, refuse=refuse)) as listener:
            settings = network(HTTPS_PROXY=f"http://127.0.0.1:{listener.port}")
            with pytest.raises(TransportError, match=rf"proxy 127\.0\.0\.1:{listener.port}.*{why}"):
                await fetch(settings, f"https://{HOST}/")

    run(work())


def test_wrong_credentials_are_reported_and_not_shown(run: Run) -> None:
    async def work() -> None:
        async with listening(ProxyServer(1, user="me:right")) as listener:
            settings = network(HTTPS_PROXY=f"http://me:hunter2@127.0.0.1:{listener.port}")
            with pytest.raises(TransportError, match=r"407.*check the user and password in HTTPS_PROXY") as failed:
                await fetch(settings, f"https://{HOST}/")
            assert "hunter2" not in str(failed.value)

    run(work())


@pytest.mark.parametrize("value", ["socks5://h:1", "http://", "http://h:port", "http://[::1"])
def test_an_address_that_is_not_a_proxy_is_reported(run: Run, value: str) -> None:
    async def work() -> None:
        with pytest.raises(TransportError, match="HTTPS_PROXY"):
            await fetch(network(HTTPS_PROXY=value), f"https://{HOST}/")

    run(work())


def test_a_proxy_that_is_not_there_is_named(run: Run) -> None:
    async def work() -> None:
        with pytest.raises(TransportError, match=rf"{HOST}:443 through the proxy 127\.0\.0\.1:9: "):
            await fetch(network(HTTPS_PROXY="127.0.0.1:9"), f"https://{HOST}/")

    run(work())


@pytest.mark.parametrize("no_proxy", ["", "*"])
def test_loopback_and_our_own_servers_are_reached_directly(run: Run, no_proxy: str) -> None:
    async def work() -> None:
        async with listening(answering(OK)) as endpoint:
            settings = network(HTTP_PROXY="http://127.0.0.1:9", NO_PROXY=no_proxy)
            for host in ("127.0.0.1", "localhost"):
                assert await fetch(settings, f"http://{host}:{endpoint.port}/x") == b"hi"
        with pytest.raises(TransportError) as failed:
            await fetch(settings, "http://server.invalid/x", external=False)
        assert "proxy" not in str(failed.value)

    run(work())


def test_certificates(run: Run, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with (
            listening(answering(OK), server_tls(certificate)) as endpoint,
            listening(ProxyServer(endpoint.port)) as listener,
        ):
            url, settings = f"https://{HOST}/", network(HTTPS_PROXY=f"http://127.0.0.1:{listener.port}")
            monkeypatch.delenv("SSL_CERT_FILE", raising=False)
            with pytest.raises(TransportError, match=r"verify failed .*self-signed certificate.*set SSL_CERT_FILE"):
                await fetch(settings, url)
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            assert await fetch(settings, url) == b"hi"
            with pytest.raises(TransportError, match=r"certificate verify failed .*mismatch"):
                await fetch(settings, "https://other.test/")
            missing = str(certificate.with_name("none.pem"))
            monkeypatch.setenv("SSL_CERT_FILE", missing)
            both = network(HTTPS_PROXY=f"http://127.0.0.1:{listener.port}", SSL_CERT_FILE=missing)
            with pytest.raises(TransportError, match=r"SSL_CERT_FILE is .*none\.pem, which does not exist"):
                await fetch(both, url)

    run(work())


def test_a_folder_of_certificates(run: Run, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = certificate.with_name("certs")
    folder.mkdir()
    (folder / "a.pem").write_bytes(certificate.read_bytes())
    subprocess.run(["openssl", "rehash", str(folder)], check=True, capture_output=True)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))

    async def work() -> None:
        async with (
            listening(answering(OK), server_tls(certificate)) as endpoint,
            listening(ProxyServer(endpoint.port)) as listener,
        ):
            settings = network(HTTPS_PROXY=f"http://127.0.0.1:{listener.port}")
            assert await fetch(settings, f"https://{HOST}/") == b"hi"

    run(work())


def test_requests_of_hosted_servers_follow_the_same_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with listening(answering(OK)) as endpoint:
            proxy = ProxyServer(endpoint.port)
            async with listening(proxy) as listener:
                monkeypatch.setenv("http_proxy", f"127.0.0.1:{listener.port}")
                reply = await server_utils.request("GET", "http://endpoint.test:81/v1")
                assert await reply.read() == b"hi"
                direct = await server_utils.request("GET", f"http://127.0.0.1:{endpoint.port}/x")
                assert await direct.read() == b"hi"
                assert proxy.asked == ["GET http://endpoint.test:81/v1 HTTP/1.1"]
                await server_utils.get_global_aiohttp_client().close()

    asyncio.run(work())


def test_endpoints_of_models_are_external_and_published_servers_are_not() -> None:
    assert Replica("https://api.example.org/v1").target("/x").origin.external
    assert not Replica("http://node7:8000/v1", is_external=False).target("/x").origin.external


def test_programs_that_we_start_reach_this_machine_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    monkeypatch.setenv("NO_PROXY", "example.org,localhost")
    monkeypatch.delenv("no_proxy", raising=False)
    assert child_environ({})["NO_PROXY"] == "example.org,localhost,127.0.0.1,::1"
    assert inherited_environ(["HTTPS_PROXY"])["no_proxy"] == "localhost,127.0.0.1,::1"
    assert "NO_PROXY" not in inherited_environ(["PATH"])
