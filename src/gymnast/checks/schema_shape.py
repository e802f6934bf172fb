"""The shape of a JSON Schema: which references lead back to themselves, how deep its values are nested."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from gymnast.data.tool_schema import schema_nodes

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

_LEVEL: Final = re.compile(r"\.(?:properties\.|items\b|additionalProperties\b)")


def cyclic_refs(root: JsonObject) -> set[str]:
    """The references of a schema that lead, through others or not, back to themselves."""
    leads: dict[str, set[str]] = {}
    waiting = _refs_in(root)
    while waiting:
        ref = waiting.pop()
        if ref not in leads:
            leads[ref] = _refs_in(_target(ref, root))
            waiting |= leads[ref]
    return {ref for ref in leads if ref in _reached(ref, leads) or ref == "#"}


def _reached(start: str, leads: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = set(leads[start])
    while waiting:
        ref = waiting.pop()
        if ref not in seen:
            seen.add(ref)
            waiting |= leads.get(ref, set())
    return seen


def _refs_in(schema: Any) -> set[str]:
    """Not those inside definitions: a definition counts where it is referred to."""
    if not isinstance(schema, dict):
        return set()
    body = {name: value for name, value in schema.items() if name not in {"$defs", "definitions"}}
    nodes = (node for _, node in schema_nodes(body) if isinstance(node, dict))
    return {node["$ref"] for node in nodes if isinstance(node.get("$ref"), str) and node["$ref"].startswith("#")}


def _target(ref: str, root: JsonObject) -> Any:
    found: Any = root
    for step in ref[2:].split("/") if len(ref) > 1 else ():
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


def depth(root: JsonObject) -> int:
    """How many levels of objects and lists the values have."""
    places = (where for where, schema in schema_nodes(root) if isinstance(schema, dict))
    return max((len(_LEVEL.findall(where)) for where in places), default=0)
