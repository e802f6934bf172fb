"""Removes secrets from what leaves the machine: known ones, and whatever looks like one.

Errs on the side of masking: readers of a bundle do not need long random texts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.config.secrets import MASK, is_secret_key, mask_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.config.secrets import Scrubber

_NAME: Final = (  # anchored at a word's start: long words would otherwise cost their length squared
    r"(?<![\w.-])[\w.-]*"
    r"(?:api[_-]?key|apikey|access[_-]?key|token|secret|passw(?:or)?d|credential|authorization|cookie)[\w-]*"
)
_BARE: Final = re.compile(
    rf"""(?ix) (?P<name>{_NAME}) (?P<between>[\\"']*\s*[:=]\s*)
    (?P<value>(?:(?:basic|bearer|token)\s+)?[^\s"',;}}\]\\]+)"""
)
_QUOTED: Final = re.compile(  # in JSON, in JSON inside a text, in reprs of dicts and header pairs
    rf"""(?ix) (?P<name>{_NAME}) (?P<between>[\\"']*\s*[:=,]\s*b?\\*["']) (?P<value>[^"'\r\n\\]+) (?=\\*["'])"""
)
_LISTED: Final = re.compile(rf"""(?ix) (?P<name>{_NAME}) (?P<between>[\\"']*\s*[:=]\s*[\[(]) (?P<value>[^\])\r\n]+)""")
_FLAG: Final = re.compile(rf"""(?ix) (?P<name>{_NAME}) (?P<between>["',]*\s+["']?) (?P<value>(?!-)[^\s"',;]+)""")
_IN_PROSE: Final = re.compile(  # in prose; a word without a digit is not a secret
    r"(?i)(?P<prefix>\b(?:api|access|secret)[ _-]?(?:keys?|tokens?)\b[^\n\w]{0,3}(?:provided|given|is|was)?[\s:='\"]+)"
    r"(?=[\w*.-]*\d)[\w*.-]{8,}"
)
_COOKIE_LINE: Final = re.compile(r"(?im)((?:set-)?cookie\s*[:=]\s*)[^\r\n]+")
_TOKENS: Final = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{8,}|hf_[A-Za-z0-9]{8,}|nvapi-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{16,}|glpat-[\w-]{12,}"
    r"|xox[abprs]-[\w-]{8,}|AKIA[0-9A-Z]{12,}|AIza[\w-]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?|wandb_v1_\w{8,})"
)
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_QUERY: Final = re.compile(r"(?i)([?&](?:sig|signature|x-amz-[a-z-]+|key|code)=)[^&\s\"']+")
_HARMLESS: Final = re.compile(
    r"(?i)tokenizer|_tokens\b|tokens?_(?:used|per|count|ids?)|token_form|max_token|key_metrics"
)
_NUMBER: Final = re.compile(r"[-+]?\d{0,8}(?:\.\d{0,8})?(?:[eE][-+]?\d{1,3})?[.]?")  # not a secret; a longer one may be
_PLAIN: Final = frozenset({"true", "false", "null", "none", "****", "{", "[", "${"})
_MIN_LENGTH: Final = 4


class Redactor:
    """Masks secrets in texts and JSON values, and applies `replacements`, e.g. of the home folder."""

    def __init__(self, scrubber: Scrubber, *, replacements: Mapping[str, str] | None = None) -> None:
        self._scrubber = scrubber
        self._replacements = sorted((replacements or {}).items(), key=lambda pair: -len(pair[0]))

    def text(self, text: str) -> str:
        """A text without secrets."""
        text = self._scrubber.scrub(text)
        text = _PRIVATE_KEY.sub(MASK, text)
        text = _COOKIE_LINE.sub(rf"\g<1>{MASK}", text)
        text = _BARE.sub(_mask, _QUOTED.sub(_mask, _LISTED.sub(_mask_list, text)))
        text = _FLAG.sub(_mask_flag, text)
        text = _IN_PROSE.sub(rf"\g<prefix>{MASK}", text)
        text = _QUERY.sub(rf"\g<1>{MASK}", text)
        text = _TOKENS.sub(MASK, text)
        for old, new in self._replacements:
            text = text.replace(old, new)
        return text

    def value(self, value: Any) -> Any:
        """A JSON value without secrets: by key, all headers, then in every text."""
        return self._redact_texts(mask_secrets(_mask_headers(value)))

    def json(self, value: Any) -> bytes:
        """The same as a JSON document."""
        return (
            orjson.dumps(self.value(value), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str) + b"\n"
        )

    def _redact_texts(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.text(str(name)): self._redact_texts(child) for name, child in value.items()}
        if isinstance(value, list):
            return [self._redact_texts(child) for child in value]
        return self.text(value) if isinstance(value, str) else value


def header_values(value: Any) -> list[str]:
    """The values of all headers in a configuration: any of them may be a key."""
    if isinstance(value, list):
        return [text for child in value for text in header_values(child)]
    if not isinstance(value, dict):
        return []
    own = [str(text) for name, child in value.items() if _are_headers(name, child) for text in child.values()]
    return own + [text for child in value.values() for text in header_values(child)]


def _mask_headers(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: dict.fromkeys(child, MASK) if _are_headers(name, child) else _mask_headers(child)
            for name, child in value.items()
        }
    return [_mask_headers(child) for child in value] if isinstance(value, list) else value


def _are_headers(name: Any, value: Any) -> bool:
    return str(name).lower().endswith("headers") and isinstance(value, dict)


def _mask_list(match: re.Match[str]) -> str:
    """Mask a whole list: there is no telling which of its texts are secret."""
    return _mask(match) if re.search("[\"']", match["value"]) else match[0]


def _mask_flag(match: re.Match[str]) -> str:
    """Mask what follows a flag. In prose any word may follow a name, so only flags count."""
    return _mask(match) if match["name"].startswith("-") else match[0]


def _mask(match: re.Match[str]) -> str:
    name, between, value = match["name"], match["between"], match["value"]
    harmless = _HARMLESS.search(name) or value.lower() in _PLAIN or _NUMBER.fullmatch(value)
    if harmless or len(value) < _MIN_LENGTH or not is_secret_key(name):
        return match[0]
    return f"{name}{between}{MASK}"
