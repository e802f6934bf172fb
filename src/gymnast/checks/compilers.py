"""Compiling tool schemas for real, with the constrained-decoding libraries that happen to be installed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.checks.tool_backends import MOST_BYTES, MOST_OPTIONAL, Backend, Complaint
from gymnast.data.tool_schema import schema_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MOST_NODES: Final = 2000
"""Larger schemas are not compiled: some libraries take minutes or run out of stack."""


def installed_compilers() -> dict[Backend, Callable[[str], None]]:
    """The libraries found here. Each takes a schema as text and raises where it refuses it."""
    found: dict[Backend, Callable[[str], None]] = {}
    makers: tuple[tuple[Backend, Callable[[], Callable[[str], None]]], ...] = (
        ("xgrammar", _xgrammar),
        ("outlines", _outlines),
        ("guidance", _guidance),
    )
    for backend, make in makers:
        try:
            found[backend] = make()
        except ImportError:
            continue
    return found


def compile_complaints(schema: Any, compilers: dict[Backend, Callable[[str], None]]) -> Iterator[Complaint]:
    """What the installed libraries say to a schema."""
    text = orjson.dumps(schema)
    if len(text) > MOST_BYTES or not _is_small(schema):
        return
    for backend, compile_schema in compilers.items():
        try:
            compile_schema(text.decode())
        except Exception as error:  # noqa: BLE001 - whatever a library raises is its refusal
            said = " ".join(str(error).split())[:200]
            yield Complaint(backend, "compiled", "refused", "parameters", f"compiling it here: {said}", "see its rules")


def _is_small(schema: Any) -> bool:
    for nodes, (_, node) in enumerate(schema_nodes(schema), 1):
        properties = node.get("properties") if isinstance(node, dict) else None
        if nodes > _MOST_NODES or (isinstance(properties, dict) and len(properties) > MOST_OPTIONAL):
            return False
    return True


def _xgrammar() -> Callable[[str], None]:
    library = importlib.import_module("xgrammar")

    def compile_schema(text: str) -> None:
        library.Grammar.from_json_schema(text)

    return compile_schema


def _outlines() -> Callable[[str], None]:
    library = importlib.import_module("outlines_core.json_schema")

    def compile_schema(text: str) -> None:
        library.build_regex_from_schema(text)

    return compile_schema


def _guidance() -> Callable[[str], None]:
    library = importlib.import_module("llguidance")

    def compile_schema(text: str) -> None:
        said = library.LLMatcher.validate_grammar(library.LLMatcher.grammar_from_json_schema(text))
        if said:
            raise ValueError(said)

    return compile_schema
