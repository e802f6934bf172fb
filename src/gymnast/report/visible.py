"""Texts that came out of a model, made harmless for a terminal and a page: nothing in them acts, everything is seen.

Control characters, terminal escapes, direction overrides and half surrogates become visible signs.
"""

from __future__ import annotations

import re
from typing import Final

_ACTING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\ufff9-\ufffb]"
)
_DELETE: Final = 0x7F
_PICTURES: Final = 0x2400
"""Where Unicode has pictures of the first 32 control characters."""
_DELETE_PICTURE: Final = "\u2421"


def visible(text: str) -> str:
    """The text with signs in place of characters that would act. Tabs and line ends stay."""
    return _ACTING.sub(lambda found: _sign(found[0]), text)


def one_line(text: str, limit: int) -> str:
    """The text as a single line of at most `limit` characters, fit to be printed anywhere."""
    head = " ".join(text[: limit * 8].split())
    line = visible(head)
    is_whole = len(line) <= limit and len(text) <= limit * 8
    return line if is_whole else line[: limit - 1].rstrip() + "…"


def _sign(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(_PICTURES + code)
    return _DELETE_PICTURE if code == _DELETE else f"‹U+{code:04X}›"
