"""Cookies as the contract uses them: opaque names and values that a caller echoes, never interpreted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ATTRIBUTES: Final = "; path=/; Max-Age=1209600; httponly; samesite=lax"


def parse_cookie_header(header: str) -> dict[str, str]:
    """Parse `a=1; b=2`."""
    pairs = (part.split("=", 1) for part in header.split(";") if "=" in part)
    return {name.strip(): value.strip() for name, value in pairs}


def cookie_header(cookies: Mapping[str, str]) -> str:
    return "; ".join(f"{name}={value}" for name, value in cookies.items())


def set_cookie_header(name: str, value: str) -> str:
    return f"{name}={value}{_ATTRIBUTES}"


def parse_set_cookies(headers: Iterable[str]) -> dict[str, str]:
    """Parse Set-Cookie headers into raw names and values."""
    return parse_cookie_header(";".join(header.split(";", 1)[0] for header in headers))
