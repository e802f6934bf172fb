"""The shape of a JSON Schema: its recursive references and its nesting depth."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from gymnast.data.tool_schema import resolve_ref, schema_nodes

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

_LEVEL: Final = re.compile(r"\.(?:properties\.|items\b|additionalProperties\b)")


def cyclic_refs(root: JsonObject) -> set[str]:
    """The references of a schema that lead back to themselves, directly or through others."""
    targets: dict[str, set[str]] = {}
    pending = _refs_in(root)
    while pending:
        ref = pending.pop()
        if ref not in targets:
            targets[ref] = _refs_in(_resolve(ref, root))
            pending |= targets[ref]
    return {ref for ref in targets if ref in _reachable(ref, targets) or ref == "#"}


def _reachable(start: str, targets: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    pending = set(targets[start])
    while pending:
        ref = pending.pop()
        if ref not in seen:
            seen.add(ref)
            pending |= targets.get(ref, set())
    return seen


def _refs_in(schema: Any) -> set[str]:
    """The local references in a schema, except in definitions: those count where they are referenced."""
    if not isinstance(schema, dict):
        return set()
    body = {name: value for name, value in schema.items() if name not in {"$defs", "definitions"}}
    nodes = (node for _, node in schema_nodes(body) if isinstance(node, dict))
    return {node["$ref"] for node in nodes if isinstance(node.get("$ref"), str) and node["$ref"].startswith("#")}


def _resolve(ref: str, root: JsonObject) -> Any:
    try:
        return resolve_ref(ref, root)
    except LookupError:
        return None


def depth(root: JsonObject) -> int:
    """How many levels of objects and lists the values nest."""
    paths = (where for where, schema in schema_nodes(root) if isinstance(schema, dict))
    return max((len(_LEVEL.findall(where)) for where in paths), default=0)
