"""A transcript for the terminal: the same items as on the page, as safe plain text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from gymnast.errors import NotFoundError
from gymnast.report.records import find_record
from gymnast.report.safe_text import make_visible
from gymnast.report.token_text import TokenTexts
from gymnast.report.token_view import view_tokens
from gymnast.report.transcript_items import (
    Limits,
    as_text,
    decode_record,
    explain_incomplete,
    extract_facts,
    prompt_items,
    reply_items,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.store.paths import RunPaths
    from gymnast.types.json import JsonObject
    from gymnast.types.task import RolloutKey


def transcript_lines(paths: RunPaths, key: RolloutKey) -> Iterator[str]:
    """The transcript of one rollout."""
    line = find_record(paths, key)
    if line is None:
        raise NotFoundError(f"rollout {key} has no recorded result or failure", where=str(paths.output))
    record = decode_record(line) or {}
    limits = Limits(text=1 << 30, items=1 << 30, total=1 << 40, fact=1 << 30, image=0)
    failure = record.get("failure")
    yield f"task {key.task}, rollout {key.rollout}: " + (
        f"failed ({make_visible(as_text(failure.get('kind')))})"
        if isinstance(failure, dict)
        else f"reward {make_visible(as_text(record.get('reward')))}"
    )
    if isinstance(failure, dict):
        yield from _section("failure", "\n".join(f"{name}: {as_text(value)}" for name, value in failure.items()))
    for item in [*prompt_items(record, limits), *reply_items(record, limits)]:
        yield from _item_lines(item)
    if note := explain_incomplete(record):
        yield from _section("the response did not complete", note)
    fields = (f"{name}: {as_text(value)}" for name, value in extract_facts(record, limits).items())
    yield from _section("fields of the record", "\n".join(fields))
    if tokens := view_tokens(record, TokenTexts(None)):
        yield from _section("tokens", "\n".join(_token_lines(tokens)))


def _token_lines(tokens: JsonObject) -> Iterator[str]:
    """Counts and sources of each model call's tokens; the ids are in the record."""
    if "note" in tokens:
        yield tokens["note"]
    for call in tokens["calls"]:
        parts = ", ".join(f"{part['count']:,} {part['source']}" for part in call["parts"] if part["count"])
        masked = next((part["masked"] for part in call["parts"] if part.get("masked")), None)
        kept = f"{call['keep']:,} kept, " if call["keep"] else ""
        yield f"call {call['call']} ({call['reason']}): {kept}{parts}" + (f"; masked: {masked}" if masked else "")


def _item_lines(item: JsonObject) -> Iterator[str]:
    kind = item["kind"]
    if kind == "call":
        yield from _section(f"call {item['name']}", item["text"])
        if "result" in item:
            yield from _section("result", item["result"]["text"])
    else:
        yield from _section(item.get("role") or item.get("name") or kind, item.get("text", ""))


def _section(title: Any, text: str) -> Iterator[str]:
    yield ""
    yield f"── {make_visible(str(title))} ──"
    yield textwrap.indent(make_visible(text.replace("\r\n", "\n")), "  ")
