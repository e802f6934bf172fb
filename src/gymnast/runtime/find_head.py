"""Finds head servers and their tokens: named by an option or the configuration, or registered on this host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gymnast.config.load import DEFAULT_HEAD_PORT, DEFAULT_HOST
from gymnast.config.urls import BadUrl, parse_url
from gymnast.errors import UserError
from gymnast.runtime.registry import NO_SERVE, Registry

if TYPE_CHECKING:
    from gymnast.config import Config, Environ


class Head(NamedTuple):
    """The address of a head server, and the token that it asks for."""

    url: str
    token: str | None = None


def find_head(head: str | None, config: Config | None, environ: Environ) -> Head:
    """The head server to use. Raises if it is ambiguous."""
    named = _named_head(head, config, environ)
    if named is not None:
        return named
    registry = Registry(environ.runtime_dir)
    entry = registry.find(cwd=str(Path.cwd()), default_head=f"http://{DEFAULT_HOST}:{DEFAULT_HEAD_PORT}")
    return Head(entry.head_url, environ.token or entry.token)


def find_heads(head: str | None, config: Config | None, environ: Environ) -> list[Head]:
    """The head servers to look at: the named one, or all registered ones nearby."""
    named = _named_head(head, config, environ)
    if named is not None:
        return [named]
    entries = Registry(environ.runtime_dir).nearby(str(Path.cwd()))
    if not entries:
        raise NO_SERVE
    return [Head(entry.head_url, environ.token or entry.token) for entry in entries]


def _named_head(head: str | None, config: Config | None, environ: Environ) -> Head | None:
    """The head server named by an option or the configuration. Its token may be in the registry."""
    configured = config.values.get("head_server") if config is not None else None
    if head is None and configured:
        head = f"http://{configured.get('host') or DEFAULT_HOST}:{configured.get('port') or DEFAULT_HEAD_PORT}"
    if head is None:
        return None
    head = parse_head_url(head)
    known = next((entry for entry in Registry(environ.runtime_dir).entries() if entry.head_url == head), None)
    return Head(head, environ.token or (known.token if known else None))


def parse_head_url(text: str) -> str:
    """The URL of a head server, from what a person wrote. Raises UserError."""
    try:
        return parse_url(text)
    except BadUrl as error:
        raise UserError(f"the head server's address: {error}", next="pass its URL: http://HOST:PORT") from error
