"""Where values come from: every leaf under a key with its origin and what it replaced, secrets masked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnast.config import tree
from gymnast.config.secrets import masked
from gymnast.errors import NotFoundError, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.config.load import Config
    from gymnast.types.json import JsonObject


def explain_key(config: Config, key: str, defaults: Mapping[str, Any] | None = None) -> list[JsonObject]:
    """One entry for each value under `key`: value, how it was written if interpolated, origin, what it replaced.

    `defaults` are values that the configuration does not give, by full key.
    """
    path = tree.parse_path(key)
    node = tree.select(config.root, path)
    unset = [_default(name, value) for name, value in (defaults or {}).items() if f"{name}.".startswith(f"{key}.")]
    if node is None and unset:
        return unset
    if node is None:
        parent = tree.select(config.root, path[:-1])
        known = [tree.show_path((*path[:-1], child)) for child in tree.known_keys(parent)]
        raise NotFoundError(f"there is no '{key}' in the configuration", next=suggest(key, known or config.values))
    entries = []
    for found, leaf in tree.walk(node, path):
        if leaf.is_dict or (leaf.is_list and leaf.value):
            continue
        name = str(found[-1]) if found else ""
        name = str(found[-2]) if name.isdigit() and len(found) > 1 else name
        value = _value_at(config, found)
        interpolated = isinstance(leaf.value, str) and "${" in leaf.value
        entries.append(
            {
                "key": tree.show_path(found),
                "value": masked(value, name),
                "written": leaf.value if interpolated else None,
                "origin": str(leaf.origin),
                "replaced": [
                    {"origin": str(origin), "value": masked(older, name)} for origin, older in reversed(leaf.replaced)
                ],
            }
        )
    return entries + unset


def _default(key: str, value: Any) -> JsonObject:
    shown = masked(value, key.rsplit(".", 1)[-1])
    return {"key": key, "value": shown, "written": None, "origin": "default", "replaced": []}


def _value_at(config: Config, path: tree.Path) -> Any:
    value: Any = config.values
    for step in path:
        try:
            value = value[int(step)] if isinstance(value, list) else value[str(step)]
        except (KeyError, IndexError, TypeError):
            return None  # an interpolation that could not be resolved
    return value
