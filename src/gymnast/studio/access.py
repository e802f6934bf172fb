"""Who may use the studio: requests for this machine's name, from its own pages, with its token.

A public name can be pointed at this machine (DNS rebinding), and any page that is open in the browser can send requests
here: both get nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from gymnast.wire.cookies import parse_cookie_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_PORT: Final = re.compile(r":[0-9]{1,5}\Z")
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_POLICY: Final = (
    *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "connect-src 'self'"),
    *("font-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
    "require-trusted-types-for 'script'",
)
SECURITY_HEADERS: Final = (
    (b"content-security-policy", "; ".join(_POLICY).encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


class Access:
    """Checks requests. The token is made for one start of the studio."""

    def __init__(self, token: str | None = None, hosts: Iterable[str] = ()) -> None:
        """`hosts`: further names under which a tunnel or proxy reaches this machine."""
        self.token = token or secrets.token_urlsafe(24)
        # Cookies do not tell ports apart: several studios on one machine need names of their own.
        self.cookie = f"gymnast_studio_{hashlib.sha256(self.token.encode()).hexdigest()[:12]}"
        self._hosts = _LOOPBACK | {host.lower().rstrip(".") for host in hosts}

    def refuse(self, headers: Mapping[str, str], *, is_api: bool) -> str | None:
        """Why a request is refused whatever its token, or None."""
        host = headers.get("host", "").lower()
        if not self._is_own(host):
            return "this address is not one of the studio's: open the URL that gymnast view printed"
        origin = headers.get("origin")
        if origin is not None and not self._is_own_origin(origin, host):
            return "the request comes from another site"
        if is_api and headers.get("sec-fetch-site", "none") not in _OWN_SITES:
            return "the request comes from another site"
        return None

    def _is_own(self, host: str) -> bool:
        return _PORT.sub("", host).rstrip(".") in self._hosts

    def _is_own_origin(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and parts.netloc.lower() == host

    def is_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(errors="replace"), self.token.encode())

    def has_token(self, headers: Mapping[str, str]) -> bool:
        """Whether a request has the token, in its cookie or in a header."""
        cookies = parse_cookie_header(headers["cookie"]) if "cookie" in headers else {}
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else cookies.get(self.cookie, "")
        return self.is_token(given)

    def set_cookie(self) -> bytes:
        """The header that gives the token to a browser: hidden from scripts, and from requests of other sites."""
        return f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Lax".encode()
