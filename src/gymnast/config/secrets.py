"""Keeps secrets out of what is printed, served or logged: masks configurations and scrubs texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

MASK = "****"

_SECRET_KEY = re.compile(r"token|key|secret|passw|credential|authorization|cookie", re.IGNORECASE)
_HARMLESS_KEY = re.compile(r"tokenizer|_tokens$|_key_name$|^key_metrics$", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)([^/@\s:]+):([^/@\s]+)(?=@)")
_BEARER = re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{4,}")
_MIN_SCRUBBED = 6  # masking shorter values ("key", "none") would damage ordinary text


def mask_secrets(value: Any, key: str = "", *, inside_secret: bool = False) -> Any:
    """A copy with masked texts under keys that suggest a secret, and masked passwords in URLs."""
    secret = inside_secret or is_secret_key(key)
    if isinstance(value, dict):
        return {
            name: mask_secrets(child, str(name), inside_secret=secret and not _holds_blocks(value))
            for name, child in value.items()
        }
    if isinstance(value, list):
        return [mask_secrets(child, key, inside_secret=secret) for child in value]
    if isinstance(value, str) and value:
        return MASK if secret and not value.startswith("${") else _USERINFO.sub(rf"\1:{MASK}", value)
    return value


def is_secret_key(key: str) -> bool:
    """Whether a key suggests that its value is a secret."""
    return bool(_SECRET_KEY.search(key)) and not _HARMLESS_KEY.search(key)


class Scrubber:
    """Masks the known secrets of a configuration in any text."""

    def __init__(self, config: Any = None, secrets: Iterable[str] = ()) -> None:
        """`secrets` are masked whatever the keys they stand under."""
        values = sorted({*_secret_values(config, ""), *secrets}, key=len, reverse=True)
        self._pattern = re.compile("|".join(re.escape(value) for value in values)) if values else None

    def scrub(self, text: str) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
        text = _USERINFO.sub(rf"\1:{MASK}", text)
        return _BEARER.sub(rf"\g<1>{MASK}", text)


def scrub_tree(value: Any, scrubber: Scrubber) -> Any:
    """A copy with every text scrubbed."""
    if isinstance(value, dict):
        return {name: scrub_tree(child, scrubber) for name, child in value.items()}
    if isinstance(value, list):
        return [scrub_tree(child, scrubber) for child in value]
    return scrubber.scrub(value) if isinstance(value, str) else value


def _holds_blocks(value: dict[Any, Any]) -> bool:
    """A mapping with server blocks is an instance, not a secret, whatever its name suggests."""
    return any(isinstance(child, dict) for child in value.values())


def _secret_values(value: Any, key: str) -> list[str]:
    if isinstance(value, dict):
        return [text for name, child in value.items() for text in _secret_values(child, str(name))]
    if isinstance(value, list):
        return [text for child in value for text in _secret_values(child, key)]
    if isinstance(value, str) and len(value) >= _MIN_SCRUBBED and is_secret_key(key) and "${" not in value:
        return [value]
    return []
