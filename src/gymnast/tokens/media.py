"""Images and videos of prompts: ledgers name them by digest, because a record holds each of them already, in its items.

The ids of a prompt contain placeholders for them, in the same order.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gymnast.types.json import JsonObject

_DIGEST_SIZE: Final = 12


class Media(NamedTuple):
    """An image or a video of a prompt."""

    kind: str
    """`image` or `video`."""
    url: str
    """As in the request: a data URL, or an address."""

    @property
    def digest(self) -> str:
        """What a ledger calls it."""
        content = hashlib.blake2b(self.url.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_SIZE)
        return f"{self.kind}:{content.hexdigest()}"


def media_of_messages(messages: Iterable[JsonObject]) -> Iterator[Media]:
    """The images and videos of chat messages, in order."""
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            yield from _media_of_part(part, "image_url", "video_url")


def media_of_items(items: Any) -> Iterator[Media]:
    """The images and videos of items, in order."""
    for item in items if isinstance(items, list) else ():
        content = item.get("content") if isinstance(item, dict) else None
        for part in content if isinstance(content, list) else ():
            yield from _media_of_part(part, "input_image", "input_video")


def _media_of_part(part: Any, image: str, video: str) -> Iterator[Media]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in {image, video}:
        return
    source = part.get("image_url") if kind == image else part.get("video_url") or part.get("video")
    url = source.get("url") if isinstance(source, dict) else source
    if isinstance(url, str):
        yield Media("image" if kind == image else "video", url)
