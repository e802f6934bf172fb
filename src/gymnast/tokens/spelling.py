"""Finding spelled tokens in text: one expression for any number of literals, the longest match first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

_Trie: TypeAlias = "dict[str, _Trie]"


def literal_pattern(literals: Iterable[str]) -> str:
    """An expression that matches the longest literal at a place; thousands of literals cost no more than a few.

    A plain alternation tries every literal at every place: some vocabularies have six thousand that begin alike.
    """
    root: _Trie = {}
    for literal in literals:
        node = root
        for character in literal:
            node = node.setdefault(character, {})
        node[""] = {}
    return _branch(root) if root else r"(?!)"


def _branch(node: _Trie) -> str:
    """The rest of all literals below a node. An empty key marks that a literal may end here."""
    endings = []
    for character, below in sorted(node.items()):
        if not character:
            continue
        tail, current = re.escape(character), below
        while len(current) == 1 and "" not in current:
            following, current = next(iter(current.items()))
            tail += re.escape(following)
        endings.append(tail + (_branch(current) if current != {"": {}} else ""))
    if not endings:
        return ""
    return f"(?:{'|'.join(endings)}){'?' if '' in node else ''}"


def compiled(literals: Iterable[str]) -> re.Pattern[str]:
    """The longest of the literals at a place."""
    return re.compile(literal_pattern(literals), re.DOTALL)
