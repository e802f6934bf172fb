"""Addresses as people write them, made into URLs: `localhost:8000` is http, and what cannot be one is refused.

Everything that takes a URL (options, `base_url` of models, `url` of instances) goes through here, so that a mistake is
reported before anything starts.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

PUBLISHED: Final = "addresses://"
"""A folder in which policy servers publish their URLs; see `wire.addresses`."""
_SCHEMES: Final = ("http", "https")
_OPERATIONS: Final = ("/chat/completions", "/completions", "/responses", "/messages", "/models")
"""What clients add to a base URL."""
_ALMOST_SCHEME: Final = re.compile(r"^(https?)(?::/?|//)(?=[^/])", re.IGNORECASE)


class BadUrl(ValueError):  # noqa: N818 - becomes a Problem or a UserError, which say where
    """A text that is not a usable URL."""


def parse_url(text: str) -> str:
    """The URL of a server: http is assumed, a trailing slash removed. Raises BadUrl."""
    url = text.strip()
    if not url:
        raise BadUrl("the URL is empty")
    if "," in url:
        raise BadUrl(f"expected one URL, got '{url}'; several are a list in the configuration: ++…base_url=[URL,URL]")
    if any(character.isspace() for character in url):
        raise BadUrl(f"a URL has no spaces, got '{url}'")
    if "://" not in url:
        _refuse_almost(url)
        url = f"http://{url}"
    _check(_split(url), url)
    return url.rstrip("/")


def parse_base_url(text: str) -> str:
    """The base URL of an OpenAI-compatible endpoint: without the operation, and `HOST:PORT` with /v1. Raises BadUrl."""
    if text.startswith(PUBLISHED):
        return text
    url = parse_url(text)
    parts = _split(url)
    if parts.query or parts.fragment:
        raise BadUrl(f"a base URL has no '{'?' if parts.query else '#'}', got '{url}'")
    for operation in _OPERATIONS:
        if parts.path.endswith(operation):
            return url.removesuffix(operation)
    return url if "://" in text or parts.path else f"{url}/v1"


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadUrl(f"not a valid URL: '{url}' ({error})") from error
    if port == 0:
        raise BadUrl(f"not a valid URL: '{url}' (port 0)")
    return parts


def _check(parts: SplitResult, url: str) -> None:
    if parts.scheme not in _SCHEMES:
        raise BadUrl(f"a URL starts with http:// or https://, got '{url}'")
    if not parts.hostname:
        raise BadUrl(f"the URL has no host: '{url}'")
    if parts.netloc.count(":") > 1 and "[" not in parts.netloc and "@" not in parts.netloc:
        raise BadUrl(f"an IPv6 address needs brackets: 'http://[{parts.netloc}]:PORT', got '{url}'")


def _refuse_almost(url: str) -> None:
    match = _ALMOST_SCHEME.match(url)
    if match is not None and not url[match.end() :].isdigit():
        raise BadUrl(f"a URL starts with {match[1].lower()}://, got '{url}'")
    host, colon, rest = url.partition(":")
    if not host and not rest.startswith(":"):
        raise BadUrl(f"the URL has no host: '{url}'")
    if colon and url.count(":") > 1 and not url.startswith("["):
        raise BadUrl(f"an IPv6 address needs brackets: 'http://[{url}]:PORT', got '{url}'")
