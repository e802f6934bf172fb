"""A configuration tree in which every value knows its origin and what it replaced.

Owns merging and paths. Knows nothing of files, overrides or servers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written: a file and line, an override, or a name such as 'default'."""

    source: str
    line: int | None = None
    via: str | None = None

    def __str__(self) -> str:
        text = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{text}, {self.via}" if self.via else text


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its origin. `value` is a dict of nodes, a list of nodes, or a scalar."""

    value: Any
    origin: Origin
    replaced: tuple[tuple[Origin, Any], ...] = field(default=(), compare=False)

    @property
    def is_dict(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, list)

    def get(self, key: str) -> Node | None:
        """The child under `key` of a mapping."""
        return self.value.get(key) if isinstance(self.value, dict) else None


def node_from(value: Any, origin: Origin) -> Node:
    """A tree of plain data with a single origin."""
    if isinstance(value, dict):
        return Node({str(key): node_from(child, origin) for key, child in value.items()}, origin)
    if isinstance(value, (list, tuple)):
        return Node([node_from(child, origin) for child in value], origin)
    return Node(value, origin)


def plain(node: Node) -> Any:
    """The tree as plain containers and scalars."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value


def merge(base: Node, over: Node) -> Node:
    """`base` overridden by `over`: mappings merge key by key, everything else is replaced and remembered."""
    if isinstance(base.value, dict) and isinstance(over.value, dict):
        merged = dict(base.value)
        for key, child in over.value.items():
            merged[key] = merge(merged[key], child) if key in merged else child
        return Node(merged, base.origin, base.replaced)
    return replace(over, replaced=(*base.replaced, (base.origin, plain(base)), *over.replaced))


def select(root: Node, path: Path) -> Node | None:
    """The node at `path`, or None."""
    node: Node | None = root
    for step in path:
        if node is None:
            return None
        if isinstance(node.value, list):
            index = _list_index(step, len(node.value))
            node = node.value[index] if index is not None else None
        else:
            node = node.get(str(step))
    return node


def assign(root: Node, path: Path, value: Node) -> Node:
    """A tree in which `value` is merged into `path`; missing mappings on the way are created."""
    if not path:
        return merge(root, value)
    step, rest = path[0], path[1:]
    if isinstance(root.value, list):
        index, children = _existing_index(step, len(root.value)), list(root.value)
        children[index] = assign(children[index], rest, value)
        return replace(root, value=children)
    mapping = dict(root.value) if isinstance(root.value, dict) else {}
    key = str(step)
    child = mapping.get(key)
    if child is None:
        child = value if not rest else assign(Node({}, value.origin), rest, value)
    else:
        child = assign(child, rest, value)
    mapping[key] = child
    node = Node(mapping, root.origin, root.replaced)
    return node if isinstance(root.value, dict) else replace(node, replaced=(*root.replaced, (root.origin, root.value)))


def remove(root: Node, path: Path) -> Node:
    """A tree without `path`. Raises KeyError if it does not exist."""
    step, rest = path[0], path[1:]
    if isinstance(root.value, list):
        index, children = _existing_index(step, len(root.value)), list(root.value)
        if rest:
            children[index] = remove(children[index], rest)
        else:
            del children[index]
        return replace(root, value=children)
    if not isinstance(root.value, dict) or str(step) not in root.value:
        raise KeyError(step)
    mapping = dict(root.value)
    if rest:
        mapping[str(step)] = remove(mapping[str(step)], rest)
    else:
        del mapping[str(step)]
    return replace(root, value=mapping)


def walk(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Every node with its path, parents first."""
    yield path, node
    if isinstance(node.value, dict):
        for key, child in node.value.items():
            yield from walk(child, (*path, key))
    elif isinstance(node.value, list):
        for index, child in enumerate(node.value):
            yield from walk(child, (*path, index))


_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


def parse_path(text: str) -> Path:
    """`a.b[0].c` or `a.b.0.c` as a path."""
    return tuple(
        int(bracketed or plain_) if (bracketed or plain_).isdigit() else (bracketed or plain_)
        for bracketed, plain_ in _STEP.findall(text)
    )


def show_path(path: Path) -> str:
    """A path in the notation of users."""
    return ".".join(str(step) for step in path)


def known_keys(root: Node | None) -> Mapping[str, Node]:
    """The children of a mapping; empty for anything else."""
    return root.value if root is not None and isinstance(root.value, dict) else {}


def _list_index(step: str | int, length: int) -> int | None:
    try:
        index = int(step)
    except ValueError:
        return None
    return index if 0 <= index < length else None


def _existing_index(step: str | int, length: int) -> int:
    if (index := _list_index(step, length)) is None:
        raise KeyError(step)
    return index
