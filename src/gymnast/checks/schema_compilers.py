"""Compiles tool schemas with the constrained-decoding libraries that are installed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.checks.schema_rules import MAX_BYTES, MAX_OPTIONAL, Backend, BackendProblem
from gymnast.data.tool_schema import schema_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAX_NODES: Final = 2000
"""Larger schemas are not compiled: some libraries take minutes or overflow the stack."""


def installed_compilers() -> dict[Backend, Callable[[str], None]]:
    """The installed libraries, each as a function that takes a schema as text and raises if it rejects it."""
    compilers: dict[Backend, Callable[[str], None]] = {}
    makers: tuple[tuple[Backend, Callable[[], Callable[[str], None]]], ...] = (
        ("xgrammar", _xgrammar),
        ("outlines", _outlines),
        ("guidance", _guidance),
    )
    for backend, make in makers:
        try:
            compilers[backend] = make()
        except ImportError:
            continue
    return compilers


def compile_problems(schema: Any, compilers: dict[Backend, Callable[[str], None]]) -> Iterator[BackendProblem]:
    """The schema's problems according to the installed libraries."""
    text = orjson.dumps(schema)
    if len(text) > MAX_BYTES or not _is_small(schema):
        return
    for backend, compile_schema in compilers.items():
        try:
            compile_schema(text.decode())
        except Exception as error:  # noqa: BLE001 - anything a library raises is a rejection
            what = "it fails to compile: " + " ".join(str(error).split())[:200]
            yield BackendProblem(backend, "compiled", "refused", "parameters", what, "see the library's documentation")


def _is_small(schema: Any) -> bool:
    for nodes, (_, node) in enumerate(schema_nodes(schema), 1):
        properties = node.get("properties") if isinstance(node, dict) else None
        if nodes > _MAX_NODES or (isinstance(properties, dict) and len(properties) > MAX_OPTIONAL):
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
        message = library.LLMatcher.validate_grammar(library.LLMatcher.grammar_from_json_schema(text))
        if message:
            raise ValueError(message)

    return compile_schema
