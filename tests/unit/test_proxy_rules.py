"""Which hosts are reached through a proxy."""

from __future__ import annotations

import pytest

from gymnast.config.environ import read_network
from gymnast.wire.proxy import Proxy, choose_proxy, is_loopback


@pytest.mark.parametrize(
    ("no_proxy", "host", "port", "direct"),
    [
        ("", "api.example.org", 443, False),
        ("*", "api.example.org", 443, True),
        ("example.org", "api.example.org", 443, True),
        (".example.org", "api.example.org", 443, True),
        ("*.example.org", "api.example.org", 443, True),
        (".example.org", "example.org", 443, True),
        ("ample.org", "example.org", 443, False),
        ("EXAMPLE.org", "api.Example.ORG", 443, True),
        ("other.org, example.org", "example.org", 443, True),
        ("other.org example.org", "example.org", 443, True),
        ("example.org:443", "example.org", 443, True),
        ("example.org:8443", "example.org", 443, False),
        ("10.0.0.0/8", "10.1.2.3", 443, True),
        ("10.0.0.0/8", "11.1.2.3", 443, False),
        ("10.1.2.3", "10.1.2.3", 443, True),
        ("10.1.2.3:443", "10.1.2.3", 443, True),
        ("fd00::/8", "fd00::1", 443, True),
        ("[fd00::1]:443", "fd00::1", 443, True),
        ("10.0.0.0/8", "fd00::1", 443, False),
        ("not a network/99, ,,", "10.1.2.3", 443, False),
        (".", "example.org", 443, False),
    ],
)
def test_no_proxy(no_proxy: str, host: str, port: int, *, direct: bool) -> None:
    network = read_network({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": no_proxy})
    assert choose_proxy(network, host, port, tls=True) == (None if direct else Proxy("proxy", 3128, tls=False))


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "x.localhost", "127.0.0.1", "127.9.9.9", "::1", "0.0.0.0"])
def test_loopback_is_never_proxied(host: str) -> None:
    assert is_loopback(host)
    assert choose_proxy(read_network({"HTTP_PROXY": "http://proxy:1"}), host, 80, tls=False) is None


def test_each_scheme_has_its_variable_and_lower_case_comes_first() -> None:
    network = read_network({"http_proxy": "plain:1", "HTTP_PROXY": "other:2", "HTTPS_PROXY": "https://secure"})
    assert choose_proxy(network, "h", 80, tls=False) == Proxy("plain", 1, tls=False)
    assert choose_proxy(network, "h", 443, tls=True) == Proxy("secure", 443, tls=True)
    everything = read_network({"ALL_PROXY": "http://all:7"})
    assert choose_proxy(everything, "h", 443, tls=True) == choose_proxy(everything, "h", 80, tls=False)
    assert choose_proxy(read_network({}), "h", 443, tls=True) is None


def test_credentials_are_not_in_its_text() -> None:
    proxy = choose_proxy(read_network({"HTTPS_PROXY": "http://me:secret@proxy:1"}), "h", 443, tls=True)
    assert proxy is not None
    assert str(proxy) == "proxy:1"
    assert proxy.authorization == "Basic bWU6c2VjcmV0"
