"""Command-line overrides in Hydra's grammar (`+a=1`, `++a.b=[x,y]`, `a='quoted, text'`, `~a`) as changes to a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from gymnast.config import tree
from gymnast.config.secrets import MASK, is_secret_key
from gymnast.config.tree import Node, Origin
from gymnast.errors import ConfigError, Problem, suggest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Override as HydraOverride


_STRUCTURED: Final = "[{\"'$\\"
"""What a value that is more than plain text begins with."""


@dataclass(frozen=True, slots=True)
class Override:
    """One change: set `path` (creating it if `may_create`), or delete it."""

    action: Literal["set", "delete"]
    path: tree.Path
    value: Any
    may_create: bool
    text: str

    @property
    def shown(self) -> str:
        """Its text, without a secret."""
        secret = any(is_secret_key(str(step)) for step in self.path)
        return f"{self.text.partition('=')[0]}={MASK}" if secret else self.text

    @property
    def origin(self) -> Origin:
        return Origin(f"override '{self.shown}'")


def parse_overrides(texts: Sequence[str]) -> list[Override]:
    """The overrides, in order. One error lists all mistakes."""
    if not texts:
        return []
    # Hydra's grammar takes 0.2 s to import (antlr), which commands without overrides save.
    from hydra.core.override_parser.overrides_parser import OverridesParser  # noqa: PLC0415
    from hydra.errors import HydraException  # noqa: PLC0415

    parser = OverridesParser.create()
    parsed: list[Override] = []
    problems: list[Problem] = []
    for text in texts:
        if "=" not in text and not text.startswith("~"):
            problems.append(Problem("expected an override, KEY=VALUE", where=text, next=_syntax_hint(text)))
            continue
        try:
            override = _parse(parser, text)
            if override.is_sweep_override():
                problems.append(Problem("sweeps are not supported", where=text, next=f"quote it: {_quote(text)}"))
                continue
            parsed.append(_convert(override, text))
        except HydraException as error:
            first = str(error).strip().splitlines()[0]
            problems.append(Problem(f"not a valid override: {first}", where=text, next=_syntax_hint(text)))
    if problems:
        raise ConfigError(problems)
    return parsed


def _parse(parser: OverridesParser, text: str) -> HydraOverride:
    """Hydra's grammar knows no letters beyond ASCII outside of quotes; a plain value with some is read as if quoted."""
    key, equals, value = text.partition("=")
    if equals and not value.isascii() and value[0] not in _STRUCTURED and "'" not in value and value[-1] != "\\":
        text = f"{key}='{value}'"
    return parser.parse_override(text)


def additions(overrides: Sequence[Override]) -> Node:
    """What the overrides set, as a separate tree (to read `config_paths` before files are known)."""
    root = Node({}, Origin("overrides"))
    for override in overrides:
        if override.action == "set":
            root = tree.assign(root, override.path, tree.node_from(override.value, override.origin))
    return root


def apply_sets(root: Node, overrides: Sequence[Override], problems: list[Problem], known: Collection[str] = ()) -> Node:
    """`root` with everything that the overrides set. `known` keys exist, with defaults, even if nothing sets them."""
    for override in overrides:
        if override.action != "set":
            continue
        may_create = override.may_create or (bool(override.path) and override.path[0] in known)
        if not may_create and tree.select(root, override.path) is None:
            problems.append(_missing_key(root, override, known))
            continue
        try:
            root = tree.assign(root, override.path, tree.node_from(override.value, override.origin))
        except KeyError as error:
            problems.append(Problem(f"no list element {error}", where=f"override '{override.text}'"))
    return root


def apply_deletes(root: Node, overrides: Sequence[Override], problems: list[Problem]) -> Node:
    """`root` without what the overrides delete."""
    for override in overrides:
        if override.action != "delete":
            continue
        try:
            root = tree.remove(root, override.path)
        except KeyError:
            problems.append(_missing_key(root, override))
    return root


def _convert(override: Any, text: str) -> Override:
    key = override.key_or_group + (f"@{override.package}" if override.package else "")
    return Override(
        action="delete" if override.is_delete() else "set",
        path=tree.parse_path(key),
        value=None if override.is_delete() else override.value(),
        may_create=override.is_add() or override.is_force_add(),
        text=text,
    )


def _missing_key(root: Node, override: Override, known: Collection[str] = ()) -> Problem:
    """A problem that offers to add the key where something could read it: not at a top level whose keys are known."""
    parent = override.path[:-1]
    names = [*tree.known_keys(tree.select(root, parent))] if parent else [*tree.known_keys(root), *known]
    may_add = override.action == "set" and (not known or str(override.path[0]) in tree.known_keys(root))
    advice = f"write '+{override.shown}' to add it" if may_add else None
    hint = suggest(str(override.path[-1]), names)
    return Problem(
        f"no '{tree.show_path(override.path)}' in the configuration",
        where=f"override '{override.shown}'",
        next=", or ".join(part for part in (advice, hint) if part) or None,
    )


def _quote(text: str) -> str:
    key, _, value = text.partition("=")
    return f"{key}='{value}'"


def _syntax_hint(text: str) -> str | None:
    if text.startswith("--"):
        return "options come before overrides; overrides look like +key=value"
    if "=" not in text:
        return "overrides look like +key=value"
    key, _, value = text.partition("=")
    if key != key.rstrip() and value.strip().isalnum():
        return f"write it without spaces: {key.strip()}={value.strip()}"
    unclosed = [f"{left} without {right}" for left, right in ("[]", "{}") if text.count(left) > text.count(right)]
    if unclosed:
        return f"close the bracket: {unclosed[0]}"
    return f'quote values with special characters: "{_quote(text)}"'
