"""Base URLs that servers publish themselves: `addresses:///folder` stands for what the files in a folder say now.

A job's policy servers write `TASK.json` there when they answer and take it away while they do not, so the list is read
again and again. Whoever reads takes what there is; a file that is half there is there the next time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from gymnast.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SCHEME: Final = "addresses://"


def published_urls(folder: Path) -> list[str]:
    """The base URLs, each with its /v1, in the order of the servers' numbers."""
    found: list[str] = []
    try:
        files = sorted(folder.glob("[0-9]*.json"), key=lambda path: (len(path.name), path.name))
    except OSError:
        return []
    for path in files:
        try:
            url = orjson.loads(path.read_bytes())["url"]
        except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
            continue
        found.append(f"{url}/v1")
    return found


def expanded(base_url: str | Sequence[str]) -> list[str]:
    """Base URLs with published ones in place of their folder. Raises NotFoundError if nothing is published."""
    found: list[str] = []
    for url in [base_url] if isinstance(base_url, str) else base_url:
        if not url.startswith(SCHEME):
            found.append(url)
            continue
        there = published_urls(Path(url.removeprefix(SCHEME)))
        if not there:
            raise NotFoundError(
                "no policy server has published its address",
                where=url.removeprefix(SCHEME),
                next="it is written when a server of the job is ready; see the servers' logs in the job's folder",
            )
        found += there
    return found


def refresher(base_url: str | Sequence[str]) -> Callable[[], list[str]] | None:
    """How to learn the base URLs anew; None if they never change. It returns nothing while nobody answers."""
    urls = [base_url] if isinstance(base_url, str) else list(base_url)
    if not any(url.startswith(SCHEME) for url in urls):
        return None

    def read() -> list[str]:
        found: list[str] = []
        for url in urls:
            is_folder = url.startswith(SCHEME)
            found += published_urls(Path(url.removeprefix(SCHEME))) if is_folder else [url]
        return found

    return read
