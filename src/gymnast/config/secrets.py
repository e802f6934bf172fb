"""Keeping secrets out of what is printed, served or logged: masking of a configuration, scrubbing of text."""

from __future__ import annotations

import re
from typing import Any

MASK = "****"

_SECRET_KEY = re.compile(r"token|key|secret|passw|credential|authorization|cookie", re.IGNORECASE)
_HARMLESS_KEY = re.compile(r"tokenizer|_tokens$|_key_name$|^key_metrics$", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)([^/@\s:]+):([^/@\s]+)(?=@)")
_BEARER = re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{4,}")
_SHORTEST_SCRUBBED = 6  # shorter values ("key", "none") would blank out ordinary text


def masked(value: Any, key: str = "", *, inside_secret: bool = False) -> Any:
    """A copy in which every text under a secret-sounding key is masked, and passwords in URLs too."""
    secret = inside_secret or is_secret_key(key)
    if isinstance(value, dict):
        return {
            name: masked(child, str(name), inside_secret=secret and not _holds_blocks(value))
            for name, child in value.items()
        }
    if isinstance(value, list):
        return [masked(child, key, inside_secret=secret) for child in value]
    if isinstance(value, str) and value:
        return MASK if secret and not value.startswith("${") else _USERINFO.sub(rf"\1:{MASK}", value)
    return value


def is_secret_key(key: str) -> bool:
    """Whether a key sounds like it holds a secret."""
    return bool(_SECRET_KEY.search(key)) and not _HARMLESS_KEY.search(key)


class Scrubber:
    """Blanks the known secrets of a configuration out of any text."""

    def __init__(self, config: Any = None) -> None:
        values = sorted(set(_secret_values(config, "")), key=len, reverse=True)
        self._pattern = re.compile("|".join(re.escape(value) for value in values)) if values else None

    def scrub(self, text: str) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
        text = _USERINFO.sub(rf"\1:{MASK}", text)
        return _BEARER.sub(rf"\g<1>{MASK}", text)


def _holds_blocks(value: dict[Any, Any]) -> bool:
    """A mapping under a secret-sounding name that holds server blocks is an instance, not a secret."""
    return any(isinstance(child, dict) for child in value.values())


def _secret_values(value: Any, key: str) -> list[str]:
    if isinstance(value, dict):
        return [found for name, child in value.items() for found in _secret_values(child, str(name))]
    if isinstance(value, list):
        return [found for child in value for found in _secret_values(child, key)]
    if isinstance(value, str) and len(value) >= _SHORTEST_SCRUBBED and is_secret_key(key) and "${" not in value:
        return [value]
    return []
