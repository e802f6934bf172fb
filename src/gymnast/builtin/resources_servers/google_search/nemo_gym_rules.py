r"""The option in an answer as NeMo Gym reads it: the first box in the printed form of the last message. Pure.

Printing escapes backslashes, quotes and line breaks, so `\boxed{\text{C}}` yields `\\text{C`. A last item that is not a
message of the assistant has no option, nor has a message without a box.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gymnast.kit import JsonObject

_BOX: Final = "\\boxed{"


class _Bytes:
    """The bytes of a token, which are printed as what reads them."""

    def __repr__(self) -> str:
        return "ValidatorIterator(index=0, schema=Some(Int(IntValidator { strict: false })))"


def find_option(output: Sequence[JsonObject]) -> str | None:
    """The text of the first box, or None."""
    last = output[-1] if output else {}
    if last.get("type", "message") != "message" or last.get("role") != "assistant":
        return None
    content = last.get("content")
    return first_box(content if isinstance(content, str) else _format_parts(content or []))


def first_box(text: str) -> str | None:
    """From the first box that is closed on its line to the first closing brace; in linear time."""
    start = text.find(_BOX)
    while start >= 0:
        begin = start + len(_BOX)
        end, line_end = text.find("}", begin), text.find("\n", begin)
        if end < 0:
            return None
        if line_end < 0 or end < line_end:
            return text[begin:end]
        start = text.find(_BOX, line_end)
    return None


def _format_parts(parts: Sequence[JsonObject]) -> str:
    return f"[{', '.join(map(_format_part, parts))}]"


def _format_part(part: JsonObject) -> str:
    if part.get("type") == "refusal":
        return f"NeMoGymResponseOutputRefusal(refusal={part.get('refusal')!r}, type='refusal')"
    if part.get("type") != "output_text":
        return repr(_sort_keys(part))
    annotations, logprobs = _sort_keys(part.get("annotations") or []), _hide_bytes(_sort_keys(part.get("logprobs")))
    text = part.get("text")
    return f"NeMoGymResponseOutputText(annotations={annotations!r}, text={text!r}, type='output_text', {logprobs=!r})"


def _sort_keys(value: Any) -> Any:
    """With keys in the order in which they are declared: alphabetical, except for the token of a log probability."""
    if isinstance(value, dict):
        return {key: _sort_keys(value[key]) for key in sorted(value, key=lambda key: (key != "token", key))}
    return [_sort_keys(child) for child in value] if isinstance(value, list) else value


def _hide_bytes(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _Bytes() if key == "bytes" and isinstance(child, list) else _hide_bytes(child)
            for key, child in value.items()
        }
    return [_hide_bytes(child) for child in value] if isinstance(value, list) else value
