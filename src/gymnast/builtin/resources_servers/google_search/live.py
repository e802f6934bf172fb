"""Google's search API and web pages. Requests block, so they run in threads."""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
import json
import socket
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from gymnast.kit import UserError

_MAX_WORDS: Final = 10_000
_SHOWN_CHARS: Final = 5_000
"""Shown of each end of a longer page."""
_MAX_BYTES: Final = 8 << 20


class WebError(Exception):
    """A request failed. The message has no key in it."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The search service and the credentials to use."""

    url: str
    key: str
    engine: str


class LiveWeb:
    """Searches and reads pages over the network."""

    def __init__(self, api: ApiKey, timeout_s: float, *, threads: int, allow_private: bool) -> None:
        if find_spec("trafilatura") is None:
            raise UserError(
                "google_search needs the package 'trafilatura' for pages that are not recorded",
                next="pip install 'gymnast[google_search]', or set backend: replay",
            )
        self._trafilatura: Any = importlib.import_module("trafilatura")
        self._api, self._timeout_s, self._allow_private = api, timeout_s, allow_private
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="google-search")

    async def search(self, query: str) -> str:
        """Google's reply to a query, as JSON text."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._search, query)

    async def browse(self, url: str) -> str:
        """The text of a page, or what is wrong with it."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._browse, url)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _search(self, query: str) -> str:
        api = self._api
        url = f"{api.url}?{urlencode({'key': api.key, 'cx': api.engine, 'q': query})}"
        try:
            with urllib.request.urlopen(url, timeout=self._timeout_s) as reply:  # noqa: S310 - the configured address
                return json.dumps(json.loads(reply.read(_MAX_BYTES)))
        except urllib.error.HTTPError as error:
            raise WebError(f"{error.code} {error.reason} for url: {api.url}") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise WebError(f"{reason} for url: {api.url}".replace(api.key, "…")) from error

    def _browse(self, url: str) -> str:
        if not self._allow_private:
            refuse_private(url)
        try:
            html = self._trafilatura.fetch_url(url)
            text = self._trafilatura.extract(html) if html else None
        except Exception as error:
            raise WebError(str(error)) from error
        if not html:
            return "No HTML found"
        return shorten_page(text) if text else "No text found"


def shorten_page(text: str) -> str:
    """A long page: its start and its end."""
    if len(text.split()) <= _MAX_WORDS:
        return text
    return f"{text[:_SHOWN_CHARS]}...{text[-_SHOWN_CHARS:]}"


def refuse_private(url: str) -> None:
    """Raise WebError for an address in a network that is not public. A redirect to one is not seen."""
    try:
        host = urlsplit(url).hostname or ""
        addresses = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except (OSError, ValueError):
        return  # only a proxy can tell, or nothing
    if not all(ipaddress.ip_address(str(address).partition("%")[0]).is_global for address in addresses):
        raise WebError(f"{host} is not a public address")
