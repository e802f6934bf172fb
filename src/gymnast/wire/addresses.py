"""Base URLs published by servers: `addresses:///folder` stands for the URLs in that folder's files right now.

A job's policy servers write `TASK.json` once they are ready and remove it while they are not, so the folder is polled.
A partly written file is skipped and read the next time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from gymnast.config.urls import PUBLISHED
from gymnast.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SCHEME: Final = PUBLISHED


def read_published_urls(folder: Path) -> list[str]:
    """Read the base URLs, each ending in /v1, in the order of the servers' numbers."""
    urls: list[str] = []
    try:
        files = sorted(folder.glob("[0-9]*.json"), key=lambda path: (len(path.name), path.name))
    except OSError:
        return []
    for path in files:
        try:
            url = orjson.loads(path.read_bytes())["url"]
        except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
            continue
        urls.append(f"{url}/v1")
    return urls


def expand_base_urls(base_url: str | Sequence[str]) -> list[str]:
    """Replace each folder by the URLs published in it. Raises NotFoundError if nothing is published."""
    expanded: list[str] = []
    for url, current in _read(base_url):
        if not current:
            raise NotFoundError(
                "no policy server has published its address",
                where=url.removeprefix(SCHEME),
                next="servers publish it when they are ready; see the servers' logs in the job's folder",
            )
        expanded += current
    return expanded


def are_published(base_url: str | Sequence[str]) -> bool:
    """Whether servers of ours publish these addresses."""
    return any(url.startswith(SCHEME) for url in _as_list(base_url))


def make_url_reader(base_url: str | Sequence[str]) -> Callable[[], list[str]] | None:
    """A function that reads the current base URLs (none while no server is ready), or None if they never change."""
    if not are_published(base_url):
        return None
    return lambda: [url for _, current in _read(base_url) for url in current]


def _read(base_url: str | Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each configured URL, and the base URLs it stands for now."""
    for url in _as_list(base_url):
        is_folder = url.startswith(SCHEME)
        yield url, read_published_urls(Path(url.removeprefix(SCHEME))) if is_folder else [url]


def _as_list(base_url: str | Sequence[str]) -> Sequence[str]:
    return [base_url] if isinstance(base_url, str) else base_url
