"""Makes model output safe for terminals and pages.

Control characters, terminal escapes, direction overrides and lone surrogates become visible symbols.
"""

from __future__ import annotations

import re
from typing import Final

_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\ufff9-\ufffb]"
)
_DELETE: Final = 0x7F
_PICTURES: Final = 0x2400
"""The first of Unicode's symbols for the control characters."""
_DELETE_PICTURE: Final = "\u2421"


def make_visible(text: str) -> str:
    """Replace unsafe characters by symbols. Tabs and newlines stay."""
    return _UNSAFE.sub(lambda match: _symbol(match[0]), text)


def to_one_line(text: str, limit: int) -> str:
    """The text as a single, safe line of at most `limit` characters."""
    line = make_visible(" ".join(text[: limit * 8].split()))
    is_complete = len(line) <= limit and len(text) <= limit * 8
    return line if is_complete else line[: limit - 1].rstrip() + "…"


def _symbol(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(_PICTURES + code)
    return _DELETE_PICTURE if code == _DELETE else f"‹U+{code:04X}›"
