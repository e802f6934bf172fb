"""`gymnast check tools`: what constrained decoding would refuse is found offline, once a schema, in flat memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.checks import schema_compilers
from gymnast.checks.schema_rules import MAX_LEVELS, backend_problems
from gymnast.checks.schema_shape import cyclic_refs, depth
from gymnast.checks.tools import check_tools
from tests.helpers.commands import Outcome
from tests.helpers.jsonl import write_jsonl
from tests.helpers.tool_schemas import FINE, REFUSED, YES, parameters


def tool(schema: Any, name: str = "look_up", **more: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": schema, "strict": False, **more}


def row(*tools: Any, **params: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": "hi", "tools": list(tools), **params}}


def refusing(schema: Any) -> set[str]:
    return {one.backend for one in backend_problems(schema) if one.effect == "refused"}


@pytest.mark.parametrize("name", REFUSED)
def test_schemas_that_backends_refuse(name: str) -> None:
    schema, backends = REFUSED[name]
    assert refusing(schema) == set(backends)


@pytest.mark.parametrize("name", FINE)
def test_schemas_that_every_backend_takes(name: str) -> None:
    assert not refusing(FINE[name])


@pytest.mark.parametrize(
    ("schema", "rule"),
    [
        (parameters({"type": "integer", "multipleOf": 5}), "keyword"),
        (parameters({"type": "string", "format": "int32"}), "format"),
        (parameters({"type": "string", "pattern": "^a+$", "maxLength": 3}), "pattern_length"),
    ],
)
def test_what_xgrammar_silently_drops_is_reported(schema: Any, rule: str) -> None:
    found = [one for one in backend_problems(schema) if one.backend == "xgrammar"]
    assert [(one.rule, one.effect) for one in found] == [(rule, "loosened")]


def test_recursion_through_several_definitions_is_found() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/one"}, "b": {"$ref": "#/$defs/leaf"}},
        "$defs": {
            "one": {"type": "object", "properties": {"x": {"$ref": "#/$defs/two"}}},
            "two": {"type": "array", "items": {"$ref": "#/$defs/one"}},
            "leaf": {"type": "string"},
        },
    }
    assert cyclic_refs(schema) == {"#/$defs/one", "#/$defs/two"}
    assert {one.rule for one in backend_problems(schema)} == {"recursion"}


def test_deep_large_and_wide_schemas_are_slow() -> None:
    deep: Any = {"type": "string"}
    for _ in range(MAX_LEVELS + 5):
        deep = parameters(deep)
    assert depth(deep) == MAX_LEVELS + 5
    wide = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(300)}}
    large = parameters({"type": "string", "description": "x" * 130_000})
    values = parameters({"type": "string", "enum": [str(n) for n in range(2000)]})
    for schema in (deep, wide, large, values):
        assert ("size", "slow") in {(one.rule, one.effect) for one in backend_problems(schema)}


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    *("type", "properties", "items", "oneOf", "allOf", "enum", "$ref", "$defs", "format", "pattern"),
                    *("required", "minProperties", "maxProperties", "additionalProperties", "minimum", "maximum", "a"),
                )
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(anything)
def test_no_schema_whatever_breaks_the_check(schema: Any) -> None:
    for one in backend_problems(schema):
        assert one.what
        assert one.next


def test_rows_are_counted_and_equal_tools_looked_at_once(tmp_path: Path) -> None:
    bad = tool({"type": "object", "additionalProperties": False})
    rows = [row(bad), row(tool(parameters({"type": "string"}))), row(bad), {"responses_create_params": {"input": "x"}}]
    report = check_tools(write_jsonl(tmp_path / "rows.jsonl", rows), compile_too=False)
    assert (report.rows, report.rows_with_tools, report.schemas, report.bad_rows) == (4, 3, 2, 2)
    assert report.refused_rows == {"outlines": 2}
    ((key, tally),) = report.tallies.items()
    assert (key.backend, key.rule, tally.rows, len(tally.first)) == ("outlines", "boolean_schema", 2, 1)
    assert tally.first[0]["line"] == 1


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        (row(tool(parameters({"type": "string"})), tool(parameters({"type": "string"}))), "duplicate"),
        (row(tool(parameters({"type": "string"}), name="no spaces please")), "name"),
        (row({"type": "function", "function": {"name": "f", "parameters": {}}}), "form"),
        (row("f"), "form"),
        (row(tool({"type": "array", "items": {"type": "string"}})), "top_level"),
        (row(tool("string")), "not_an_object"),
        (row(tool_choice="required"), "choice"),
        (row(tool(parameters({"type": "string"})), tool_choice={"type": "function", "name": "other"}), "choice"),
        (
            row(
                tool({**parameters({"$ref": "#/$defs/x"}), "$defs": {"x": {"type": "string"}}}, name="one"),
                tool({**parameters({"$ref": "#/$defs/x"}), "$defs": {"x": {"type": "integer"}}}, name="two"),
            ),
            "definitions",
        ),
    ],
)
def test_what_is_wrong_with_the_tools_of_a_row(tmp_path: Path, bad: Any, rule: str) -> None:
    report = check_tools(write_jsonl(tmp_path / "rows.jsonl", [bad]), compile_too=False)
    assert rule in {key.rule for key in report.tallies}
    assert not report.ok


def test_the_command_prints_writes_rows_and_fails(tmp_path: Path, invoke: Callable[..., Outcome]) -> None:
    path = write_jsonl(tmp_path / "rows.jsonl", [row(tool(parameters(YES)))] * 2 + [row()])
    path.write_text(path.read_text() + "{broken\n")
    done = invoke("gymnast", "check", "tools", "rows.jsonl", "--rows", "bad.jsonl", "--no-compile")
    assert done.code == 1
    assert "refused  outlines: boolean_schema (2 rows)" in done.out
    assert "3 rows would be refused" in done.out
    listed = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert [entry["line"] for entry in listed] == [1, 2, 4]
    report = invoke("gymnast", "check", "tools", "rows.jsonl", "--json", "--backend", "xgrammar", "--no-compile").json()
    assert (report["bad_rows"], report["refused_rows"]) == (1, {"any": 1})
    assert invoke("gymnast", "check", "tools", "rows.jsonl", "--backend", "xgramar").code == 2
    assert invoke("gymnast", "check", "tools", "nowhere.jsonl").code == 2


def test_the_shipped_examples_pass() -> None:
    from gymnast.config.roots import BUILTIN

    for path in sorted(BUILTIN.glob("resources_servers/*/data/example.jsonl")):
        assert check_tools(path, backends=("any", "xgrammar"), compile_too=False).ok, path


def test_libraries_that_are_installed_have_the_last_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "xgrammar.py").write_text(
        "class Grammar:\n    @staticmethod\n    def from_json_schema(text):\n"
        "        if 'city' in text: raise RuntimeError('no cities')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "xgrammar", raising=False)
    assert "xgrammar" in schema_compilers.installed_compilers()
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    report = check_tools(write_jsonl(tmp_path / "rows.jsonl", [row(tool(schema))]), backends=("any", "xgrammar"))
    assert report.compiled_with == ["xgrammar"]
    assert [key.rule for key in report.tallies] == ["compiled"]
    monkeypatch.delitem(sys.modules, "xgrammar", raising=False)
