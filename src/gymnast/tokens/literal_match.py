"""Matches literal tokens in text: one regular expression for any number of literals, longest match first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

_Trie: TypeAlias = "dict[str, _Trie]"


def build_literal_pattern(literals: Iterable[str]) -> str:
    """A pattern for the longest literal at a position; thousands of literals are as fast as a few.

    A plain alternation tries every literal at every position, and some vocabularies have six thousand with the same
    prefix.
    """
    root: _Trie = {}
    for literal in literals:
        node = root
        for character in literal:
            node = node.setdefault(character, {})
        node[""] = {}
    return _branch(root) if root else r"(?!)"


def _branch(node: _Trie) -> str:
    """The rest of all literals below a node. An empty key marks the end of a literal."""
    endings = []
    for character, child in sorted(node.items()):
        if not character:
            continue
        tail, current = re.escape(character), child
        while len(current) == 1 and "" not in current:
            following, current = next(iter(current.items()))
            tail += re.escape(following)
        endings.append(tail + (_branch(current) if current != {"": {}} else ""))
    if not endings:
        return ""
    return f"(?:{'|'.join(endings)}){'?' if '' in node else ''}"


def compile_literals(literals: Iterable[str]) -> re.Pattern[str]:
    """Compile a pattern for the longest literal at a position."""
    return re.compile(build_literal_pattern(literals), re.DOTALL)
