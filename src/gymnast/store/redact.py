"""Taking secrets out of what leaves the machine: those that are known, and whatever looks like one.

Errs on the side of blanking: a bundle is read by people who can do without a long random text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.config.secrets import MASK, is_secret_key, masked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.config.secrets import Scrubber

_NAME: Final = (  # begins where a word does: long words without an end would otherwise cost their length squared
    r"(?<![\w.-])[\w.-]*"
    r"(?:api[_-]?key|apikey|access[_-]?key|token|secret|passw(?:or)?d|credential|authorization|cookie)[\w-]*"
)
_BARE: Final = re.compile(
    rf"""(?ix) (?P<name>{_NAME}) (?P<between>[\\"']*\s*[:=]\s*)
    (?P<value>(?:(?:basic|bearer|token)\s+)?[^\s"',;}}\]\\]+)"""
)
_QUOTED: Final = re.compile(  # in JSON, in JSON inside a text, as Python shows dicts and pairs of headers
    rf"""(?ix) (?P<name>{_NAME}) (?P<between>[\\"']*\s*[:=,]\s*b?\\*["']) (?P<value>[^"'\r\n\\]+) (?=\\*["'])"""
)
_LISTED: Final = re.compile(rf"""(?ix) (?P<name>{_NAME}) (?P<between>[\\"']*\s*[:=]\s*[\[(]) (?P<value>[^\])\r\n]+)""")
_FLAG: Final = re.compile(rf"""(?ix) (?P<name>{_NAME}) (?P<between>["',]*\s+["']?) (?P<value>(?!-)[^\s"',;]+)""")
_SPOKEN: Final = re.compile(  # as people and servers write of one; a word without a digit in it is none
    r"(?i)(?P<said>\b(?:api|access|secret)[ _-]?(?:keys?|tokens?)\b[^\n\w]{0,3}(?:provided|given|is|was)?[\s:='\"]+)"
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
_FIGURE: Final = re.compile(r"[-+]?\d{0,8}(?:\.\d{0,8})?(?:[eE][-+]?\d{1,3})?[.]?")  # no secret; a longer one may be
_PLAIN: Final = frozenset({"true", "false", "null", "none", "****", "{", "[", "${"})
_SHORTEST: Final = 4


class Redactor:
    """Blanks secrets out of texts and JSON values; also hides the user's home folder."""

    def __init__(self, scrubber: Scrubber, *, replacements: Mapping[str, str] | None = None) -> None:
        self._scrubber = scrubber
        self._replacements = sorted((replacements or {}).items(), key=lambda pair: -len(pair[0]))

    def text(self, text: str) -> str:
        """A text without secrets."""
        text = self._scrubber.scrub(text)
        text = _PRIVATE_KEY.sub(MASK, text)
        text = _COOKIE_LINE.sub(rf"\g<1>{MASK}", text)
        text = _BARE.sub(_blanked, _QUOTED.sub(_blanked, _LISTED.sub(_blanked_list, text)))
        text = _FLAG.sub(_blanked_flag, text)
        text = _SPOKEN.sub(rf"\g<said>{MASK}", text)
        text = _QUERY.sub(rf"\g<1>{MASK}", text)
        text = _TOKENS.sub(MASK, text)
        for found, shown in self._replacements:
            text = text.replace(found, shown)
        return text

    def value(self, value: Any) -> Any:
        """A JSON value without secrets: by the names of its keys, headers as a whole, then in every text."""
        return self._texts(masked(_without_headers(value)))

    def json(self, value: Any) -> bytes:
        """The same as a document."""
        return (
            orjson.dumps(self.value(value), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str) + b"\n"
        )

    def _texts(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.text(str(name)): self._texts(child) for name, child in value.items()}
        if isinstance(value, list):
            return [self._texts(child) for child in value]
        return self.text(value) if isinstance(value, str) else value


def header_values(value: Any) -> list[str]:
    """What headers in a configuration say: any of them may be a key."""
    if isinstance(value, list):
        return [found for child in value for found in header_values(child)]
    if not isinstance(value, dict):
        return []
    own = [str(text) for name, child in value.items() if _are_headers(name, child) for text in child.values()]
    return own + [found for child in value.values() for found in header_values(child)]


def _without_headers(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: dict.fromkeys(child, MASK) if _are_headers(name, child) else _without_headers(child)
            for name, child in value.items()
        }
    return [_without_headers(child) for child in value] if isinstance(value, list) else value


def _are_headers(name: Any, value: Any) -> bool:
    return str(name).lower().endswith("headers") and isinstance(value, dict)


def _blanked_list(match: re.Match[str]) -> str:
    """All of a list at once: which of its texts are secret cannot be told."""
    return _blanked(match) if re.search("[\"']", match["value"]) else match[0]


def _blanked_flag(match: re.Match[str]) -> str:
    """What follows a flag. In prose a name is followed by any word, so only flags count."""
    return _blanked(match) if match["name"].startswith("-") else match[0]


def _blanked(match: re.Match[str]) -> str:
    name, between, value = match["name"], match["between"], match["value"]
    harmless = _HARMLESS.search(name) or value.lower() in _PLAIN or _FIGURE.fullmatch(value)
    if harmless or len(value) < _SHORTEST or not is_secret_key(name):
        return match[0]
    return f"{name}{between}{MASK}"
