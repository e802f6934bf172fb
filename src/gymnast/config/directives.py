"""The inheritance directives: `_inherit_from`, `_copy`, `_delete_key` and `${inherit_from:…}`, `${copy:…}`,
`${swap_key:…}`. Inheriting moves the source; copying leaves it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from gymnast.config import tree
from gymnast.config.tree import Node, Origin
from gymnast.errors import Problem, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable

_VALUE_DIRECTIVE = re.compile(r"^\s*\$\{(inherit_from|swap_key|copy):([^${}]+)\}\s*$")
_BLOCK_DIRECTIVES = {"_inherit_from": True, "_copy": False}


def apply_directives(root: Node) -> tuple[Node, list[Problem]]:
    """The tree with every directive applied, and the problems."""
    expansion = _Expansion(root)
    expanded = expansion.expand(root, ())
    for path in sorted(expansion.moved, key=len, reverse=True):
        try:
            expanded = tree.remove(expanded, path)
        except KeyError:
            continue  # an ancestor was moved as well
    return expanded, expansion.problems


class _Expansion:
    """One pass over a tree. Sources are read from the unchanged `root`, so the sequence does not matter."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.moved: set[tree.Path] = set()
        self.problems: list[Problem] = []

    def expand(self, node: Node, active: tuple[tree.Path, ...]) -> Node:
        if isinstance(node.value, dict):
            return self._expand_block(node, active)
        if isinstance(node.value, list):
            return replace(node, value=[self.expand(child, active) for child in node.value])
        match = _VALUE_DIRECTIVE.match(node.value) if isinstance(node.value, str) else None
        if match is None:
            return node
        source = self._source(match[2], node.origin, active, move=match[1] != "copy")
        return replace(source, replaced=node.replaced) if source is not None else node

    def _expand_block(self, node: Node, active: tuple[tree.Path, ...]) -> Node:
        own = dict(node.value)
        to_delete = set(_names(own.pop("_delete_key", None)))
        for name in to_delete & own.keys():
            del own[name]
        # Only what is inherited must exist: a file may delete a key that another file may or may not set.
        to_delete = to_delete - node.value.keys() if own.keys() & _BLOCK_DIRECTIVES.keys() else set()
        block = Node({}, node.origin, node.replaced)
        for directive, moves in _BLOCK_DIRECTIVES.items():
            if directive not in own:
                continue
            pointer = own.pop(directive)
            for path in _names(pointer):
                source = self._source(path, pointer.origin, active, move=moves)
                if source is not None:
                    block = tree.merge(block, source)
        block = tree.merge(block, replace(node, value={key: self.expand(child, active) for key, child in own.items()}))
        return self._delete(block, to_delete, node.origin)

    def _source(self, text: str, origin: Origin, active: tuple[tree.Path, ...], *, move: bool) -> Node | None:
        path = tree.parse_path(text.strip())
        source = tree.select(self.root, path) if path else None
        if source is None:
            self.problems.append(
                Problem(f"inherits from '{text}', which does not exist", where=str(origin), next=self._suggest(path))
            )
            return None
        if path in active:
            cycle = " -> ".join(tree.show_path(step) for step in (*active, path))
            self.problems.append(Problem(f"circular inheritance: {cycle}", where=str(origin)))
            return None
        if move:
            self.moved.add(path)
        return _add_via(self.expand(source, (*active, path)), f"taken from '{text}' at {origin}")

    def _delete(self, block: Node, names: Iterable[str], origin: Origin) -> Node:
        for name in sorted(names):
            if name in block.value:
                block = tree.remove(block, (name,))
            else:
                hint = suggest(name, block.value)
                self.problems.append(
                    Problem(f"_delete_key names '{name}', which does not exist", where=str(origin), next=hint)
                )
        return block

    def _suggest(self, path: tree.Path) -> str | None:
        known = (tree.show_path(other) for other, node in tree.walk(self.root) if other and node.is_dict)
        return suggest(tree.show_path(path), [name for name in known if name.count(".") < 4])


def _names(node: Node | None) -> list[str]:
    """The names in a comma-separated text or a list of texts."""
    if node is None:
        return []
    if isinstance(node.value, list):
        return [str(child.value) for child in node.value]
    return [part.strip() for part in str(node.value).split(",") if part.strip()]


def _add_via(node: Node, via: str) -> Node:
    if isinstance(node.value, dict):
        value: object = {key: _add_via(child, via) for key, child in node.value.items()}
    elif isinstance(node.value, list):
        value = [_add_via(child, via) for child in node.value]
    else:
        value = node.value
    return Node(value, replace(node.origin, via=node.origin.via or via), node.replaced)
