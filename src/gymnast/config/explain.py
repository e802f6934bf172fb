"""Explains where values come from: every leaf under a key with its origin and what it replaced, secrets masked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnast.config import tree
from gymnast.config.secrets import mask_secrets, scrub_tree
from gymnast.errors import NotFoundError, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.config.load import Config
    from gymnast.types.json import JsonObject


def explain_key(config: Config, key: str, defaults: Mapping[str, Any] | None = None) -> list[JsonObject]:
    """One entry for each value under `key`: value, text if interpolated, origin, what it replaced.

    `defaults` are values that the configuration does not set, by full key.
    """
    path = tree.parse_path(key)
    node = tree.select(config.root, path)
    unset = [_default(name, value) for name, value in (defaults or {}).items() if f"{name}.".startswith(f"{key}.")]
    if node is None and unset:
        return unset
    if node is None:
        parent = tree.select(config.root, path[:-1])
        known = [tree.show_path((*path[:-1], child)) for child in tree.known_keys(parent)]
        raise NotFoundError(f"no '{key}' in the configuration", next=suggest(key, known or config.values))
    entries = []
    for leaf_path, leaf in tree.walk(node, path):
        if leaf.is_dict or (leaf.is_list and leaf.value):
            continue
        name = str(leaf_path[-1]) if leaf_path else ""
        name = str(leaf_path[-2]) if name.isdigit() and len(leaf_path) > 1 else name
        value = _value_at(config, leaf_path)
        interpolated = isinstance(leaf.value, str) and "${" in leaf.value
        entries.append(
            {
                "key": tree.show_path(leaf_path),
                "value": scrub_tree(mask_secrets(value, name), config.scrubber),
                "written": leaf.value if interpolated else None,
                "origin": str(leaf.origin),
                "replaced": [
                    {"origin": str(origin), "value": mask_secrets(older, name)}
                    for origin, older in reversed(leaf.replaced)
                ],
            }
        )
    return entries + unset


def _default(key: str, value: Any) -> JsonObject:
    masked = mask_secrets(value, key.rsplit(".", 1)[-1])
    return {"key": key, "value": masked, "written": None, "origin": "default", "replaced": []}


def _value_at(config: Config, path: tree.Path) -> Any:
    value: Any = config.values
    for step in path:
        try:
            value = value[int(step)] if isinstance(value, list) else value[str(step)]
        except (KeyError, IndexError, TypeError):
            return None  # an interpolation that could not be resolved
    return value
