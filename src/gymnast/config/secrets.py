"""Keeps secrets out of what is printed, served or logged: masks configurations and scrubs texts."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus, unquote

if TYPE_CHECKING:
    from collections.abc import Iterable

MASK = "****"

_SECRET_KEY = re.compile(r"token|key|secret|passw|credential|auth(?!or)|authorization|cookie", re.IGNORECASE)
_HARMLESS_KEY = re.compile(r"tokenizer|_tokens$|_key_name$|^key_metrics$", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)[^/@\s\"'<>]+(?=@)")
"""A user's name may be a token as well."""
_PARAMETER = re.compile(r"(?i)(?<=[?&])((?:[\w.-]*(?:token|key|secret|passw|auth|sig)[\w.-]*)=)([^&\s\"'<>#]+)")
_BEARER = re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{4,}")
_SERVER_KINDS = frozenset({"responses_api_models", "responses_api_agents", "resources_servers"})
_DISTINCTIVE = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[^\s<>|\"]{8,}|[^\s<>|\"]{24,}")
"""Long, or letters and digits without spaces: nothing that occurs in a text by chance."""
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
        return MASK if secret and not value.startswith("${") else mask_urls(value)
    return value


def mask_urls(text: str) -> str:
    """A text without what URLs in it tell: users, passwords, and parameters that suggest a secret."""
    if "://" not in text:
        return text
    return _PARAMETER.sub(rf"\1{MASK}", _USERINFO.sub(_mask_user, text))


def _mask_user(match: re.Match[str]) -> str:
    user, colon, _ = match[0].partition(":")
    return f"{user}:{MASK}" if colon else MASK


def is_secret_key(key: str) -> bool:
    """Whether a key suggests that its value is a secret."""
    return bool(_SECRET_KEY.search(key)) and not _HARMLESS_KEY.search(key)


class Scrubber:
    """Masks the known secrets of a configuration in any text."""

    def __init__(self, config: Any = None, secrets: Iterable[str] = ()) -> None:
        """`secrets` are masked under any key."""
        known = {*_secret_values(config, ""), *secrets}
        self._pattern = _alternatives(known)
        distinctive = [word for value in known for word in value.split() if _DISTINCTIVE.fullmatch(word)]
        self._line_pattern = _alternatives(distinctive)
        self._line_forms = [form.encode() for value in distinctive for form in _forms_of(value)]

    def scrub(self, text: str) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
        return _BEARER.sub(rf"\g<1>{MASK}", mask_urls(text))

    def scrub_line(self, line: bytes) -> bytes:
        """A record without the known secrets that cannot be ordinary text: `secret` or `not-needed` as a key stays,
        because masking it would damage what models wrote."""
        if self._line_pattern is None or not any(form in line for form in self._line_forms):
            return line
        return self._line_pattern.sub(MASK, line.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def scrub_tree(value: Any, scrubber: Scrubber) -> Any:
    """A copy with every text scrubbed."""
    if isinstance(value, dict):
        return {name: scrub_tree(child, scrubber) for name, child in value.items()}
    if isinstance(value, list):
        return [scrub_tree(child, scrubber) for child in value]
    return scrubber.scrub(value) if isinstance(value, str) else value


def _holds_blocks(value: dict[Any, Any]) -> bool:
    """A mapping with server blocks is an instance, not a secret, whatever its name suggests."""
    return any(isinstance(child, dict) and name in _SERVER_KINDS for name, child in value.items())


def _secret_values(value: Any, key: str, *, inside_secret: bool = False, in_headers: bool = False) -> list[str]:
    secret = inside_secret or is_secret_key(key)
    if isinstance(value, dict):
        secret, in_headers = secret and not _holds_blocks(value), key.lower().endswith("headers")
        return [
            text
            for name, child in value.items()
            for text in _secret_values(child, str(name), inside_secret=secret, in_headers=in_headers)
        ]
    if isinstance(value, list):
        return [text for child in value for text in _secret_values(child, key, inside_secret=secret)]
    if not isinstance(value, str) or "${" in value:
        return []
    texts = [value] if secret or (in_headers and _DISTINCTIVE.fullmatch(value)) else _url_secrets(value)
    return [text for text in texts if len(text) >= _MIN_SCRUBBED]


def _url_secrets(text: str) -> list[str]:
    """The secrets in URLs: passwords, names of users without one (tokens), parameters; as written and decoded."""
    if "://" not in text:
        return []
    parts = [user.rpartition(":")[2] for user in _USERINFO.findall(text)]
    parts += [value for _, value in _PARAMETER.findall(text)]
    return [form for part in parts for form in {part, unquote(part)}]


def _alternatives(secrets: Iterable[str]) -> re.Pattern[str] | None:
    """Matches every form of these secrets, longer ones first."""
    forms = sorted({form for secret in secrets for form in _forms_of(secret)}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, forms))) if forms else None


def _forms_of(secret: str) -> set[str]:
    """The forms in which a secret may appear in files and messages."""
    data = secret.encode("utf-8", "replace")
    encoded = base64.b64encode(data).decode().rstrip("=")
    # What is encoded together with something before it (Basic authentication) is aligned differently.
    shifted = [base64.b64encode(b"\0" * shift + data).decode()[4:].rstrip("=")[:-2] for shift in (1, 2)]
    forms = {secret, quote(secret), quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1], encoded}
    return {form for form in (*forms, *shifted) if len(form) >= _MIN_SCRUBBED}
