"""Puts images and videos with the segments whose prompts contain them. The record has them, the ledger their order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.tokens.export import BadLedger
from gymnast.tokens.media import media_of_items
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.tokens.media import Media
    from gymnast.train.samples import Segment
    from gymnast.types.tokens import TokenCall

_MARKS: Final = (b'"input_image"', b'"input_video"')
_ANY: Final = msgspec.json.Decoder()


def add_media(
    segments: tuple[Segment, ...], calls: Sequence[TokenCall], fields: Mapping[str, msgspec.Raw]
) -> tuple[Segment, ...]:
    """The segments with their images and videos. `fields` are the record's. Raises BadLedger if one is not in it.

    Calls whose ledger does not say have those of the task: their server may not know of ledgers.
    """
    if not any(call.media for call in calls) and not _has_media(fields.get(PARAMS)):
        return segments
    task = list(media_of_items(_member(fields.get(PARAMS), "input")))
    known = {one.digest: one for one in (*task, *media_of_items(_member(fields.get("response"), "output")))}
    by_call = [task if call.media is None else _find(number, call.media, known) for number, call in enumerate(calls)]
    return tuple(_with_media(segment, by_call) for segment in segments)


def _has_media(params: msgspec.Raw | None) -> bool:
    content = b"" if params is None else bytes(params)
    return any(mark in content for mark in _MARKS)


def _member(raw: msgspec.Raw | None, name: str) -> Any:
    value = None if raw is None else _ANY.decode(raw)
    return value.get(name) if isinstance(value, dict) else None


def _find(number: int, digests: Sequence[str], known: Mapping[str, Media]) -> list[Media]:
    missing = next((digest for digest in digests if digest not in known), None)
    if missing is not None:
        raise BadLedger(f"call {number} has {missing} in its prompt, which is not in the record")
    return [known[digest] for digest in digests]


def _with_media(segment: Segment, by_call: Sequence[list[Media]]) -> Segment:
    if not any(by_call[number] for number in segment.calls):
        return segment
    added: list[tuple[Media, ...]] = []
    before: list[Media] = []
    for number in segment.calls:
        media = by_call[number]
        if media[: len(before)] != before:
            raise BadLedger(f"call {number} extends a prompt, but not its images and videos")
        added.append(tuple(media[len(before) :]))
        before = media
    return replace(segment, new_media=tuple(added))
