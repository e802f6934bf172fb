"""`data validate`: what is found in rows, ids, tools and licenses, with file and line."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.config.datasets import LICENSES
from gymnast.data.problems import MAX_SHOWN, FileProblem, Problems
from gymnast.data.row import BadRow, read_row
from gymnast.data.tool_schema import schema_problems, tool_problems
from gymnast.data.validate import KINDS, InputFile, ValidationResult, validate
from tests.helpers.datasets import AGENT, row
from tests.helpers.jsonl import example_rows, write_jsonl


def checked(tmp_path: Path, *files: list[Any], allow: tuple[str, ...] = (), agents: Any = None) -> ValidationResult:
    paths = [write_jsonl(tmp_path / f"{index}.jsonl", rows) for index, rows in enumerate(files)]
    return validate([InputFile(path.name, path) for path in paths], agents, allow=allow)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def said(found: ValidationResult, kind: str) -> list[str]:
    return [str(problem) for problem in found.problems.first[kind]]


@pytest.mark.parametrize(
    ("bad", "kind", "text"),
    [
        ([], "json", "the row is not a JSON object"),
        (row(deep=nested(300)), "json", "nested deeper than 254 levels"),
        ({}, "schema", "the row has no 'responses_create_params'"),
        ({"responses_create_params": 1}, "schema", "'responses_create_params' is not an object"),
        ({"responses_create_params": {"input": "x", "temprature": 1}}, "schema", "temprature"),
        (row(""), "empty", "the prompt is empty"),
        ({"responses_create_params": {"input": []}}, "empty", "the prompt is empty"),
        (
            {"responses_create_params": {"input": [{"role": "system", "content": "Be good."}]}},
            "empty",
            "the prompt is empty",
        ),
        (
            {
                "responses_create_params": {
                    "input": [{"role": "user", "content": [{"type": "input_text", "text": " "}]}],
                }
            },
            "empty",
            "the prompt is empty",
        ),
        (row(expected_answer=" "), "empty", "'expected_answer' is empty"),
        (row(expected_answer=None), "empty", "'expected_answer' is empty"),
        (row(question=""), "empty", "'question' is empty"),
        (row(agent_ref={"name": "mcqa_agent"}), "agent", "did you mean 'mcqa_simple_agent'"),
        (row(agent_ref="mcqa"), "agent", "'agent_ref' must be an object with a name"),
    ],
)
def test_each_kind_of_bad_row_is_found_with_its_line(tmp_path: Path, bad: Any, kind: str, text: str) -> None:
    found = checked(tmp_path, [row("fine"), bad], agents=[AGENT])
    assert found.rows == 2
    assert list(found.problems.counts.items()) == [(kind, 1)]
    assert text in said(found, kind)[0]
    assert said(found, kind)[0].startswith("0.jsonl line 2: ")
    assert kind in KINDS
    assert not checked(tmp_path, [row("fine"), bad], agents=[AGENT], allow=(kind,)).problems


@pytest.mark.parametrize(
    "good",
    [
        row(answer=None, expected_answer=0),
        row(deep=nested(250)),
        row(agent_ref={"name": AGENT}),
        {
            "responses_create_params": {
                "input": [
                    {
                        "role": "user",
                        "content": [{"type": "input_image", "image_url": "data:image/png;base64,x"}],
                    }
                ]
            }
        },
        {"responses_create_params": {"input": [], "prompt": {"id": "p"}}},
    ],
)
def test_rows_that_only_look_odd_are_valid(tmp_path: Path, good: Any) -> None:
    assert not checked(tmp_path, [good], agents=[AGENT]).problems


def test_duplicate_rows_are_found_across_files_whatever_the_order_of_keys(tmp_path: Path) -> None:
    twin = {"n": 1, "responses_create_params": {"input": "a"}, "_ng_task_index": 7}
    found = checked(tmp_path, [row("a", n=1), row("b")], [row("c"), twin, row("a", n=1, agent_ref={"name": "x"})])
    assert said(found, "duplicate_row") == ["1.jsonl line 2: duplicate of 0.jsonl line 1"]
    assert found.problems.total == 1


def test_an_id_is_for_one_row_of_a_file(tmp_path: Path) -> None:
    rows = [row("a", id=1), row("b", id=1), row("c", id="1"), row("a", id=1, agent_ref={"name": "x"}), row("d", uuid=1)]
    found = checked(tmp_path, rows, [row("e", id=1)])
    assert said(found, "duplicate_id") == ["0.jsonl line 2: same 'id' as line 1, but a different row"]
    assert list(found.problems.counts) == ["duplicate_id"]


def test_the_first_duplicates_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    found = checked(tmp_path, [row("same", id=7)] * 50)
    assert found.problems.counts == {"duplicate_row": 49}
    assert [problem.line for problem in found.problems.first["duplicate_row"]] == list(range(2, 2 + MAX_SHOWN))


@given(st.lists(st.integers(0, 30), max_size=60))
def test_what_came_first_is_shown_first_however_it_was_found(lines: list[int]) -> None:
    problems = Problems()
    found = [FileProblem("f", line, "x") for line in lines]
    problems.add_unordered("k", found[::2])
    problems.add_unordered("k", found[1::2])
    assert problems.first["k"] == sorted(found)[:MAX_SHOWN]
    assert problems.counts["k"] == len(lines)


def test_a_license_must_be_known(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [row()])
    assert not validate([InputFile("a", path, license=LICENSES[0])], None).problems
    result = validate([InputFile("a", path, license="Apache 2")], None)
    assert said(result, "license") == ["a: unknown license 'Apache 2'; did you mean 'Apache 2.0'?"]


def test_an_empty_file_is_a_problem(tmp_path: Path) -> None:
    assert said(checked(tmp_path, []), "json") == ["0.jsonl: the file has no rows"]


@pytest.mark.parametrize("name", ["mcqa", "example_multi_step", "example_session_state_mgmt"])
def test_the_shipped_examples_are_valid(tmp_path: Path, name: str) -> None:
    assert not checked(tmp_path, example_rows(name)).problems


@given(st.binary(max_size=60))
def test_any_line_is_a_row_or_a_bad_row(line: bytes) -> None:
    with suppress(BadRow):
        read_row(line)


# --- tools -----------------------------------------------------------------------------------------------------------


def function(name: str = "f", **schema: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object", **schema}, "strict": True}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"properties": []}, "parameters.properties must be an object, not []"),
        ({"properties": {"a": {"type": "str"}}}, 'parameters.properties.a.type "str" is not a JSON type'),
        ({"properties": {"a": {"type": ["string", 1]}}}, "parameters.properties.a.type 1 is not a JSON type"),
        ({"properties": {"a": "string"}}, 'parameters.properties.a is not a schema but "string"'),
        ({"properties": {}, "required": ["b"]}, "parameters.required names 'b', which is not a property"),
        ({"required": "b"}, 'parameters.required must be a list of names, not "b"'),
        (
            {"properties": {"a": {"type": "array", "items": {"enum": []}}}},
            "parameters.properties.a.items.enum must be a list of values, not []",
        ),
        ({"properties": {"a": {"anyOf": []}}}, "parameters.properties.a.anyOf must be a list of schemas, not []"),
        ({"properties": {"a": {"anyOf": [{"type": 1}]}}}, "parameters.properties.a.anyOf[0].type 1 is not a JSON type"),
        ({"properties": {"a": {"$ref": "#/$defs/A"}}}, 'parameters.properties.a.$ref "#/$defs/A" cannot be resolved'),
        ({"properties": {"a": {"pattern": "("}}}, "is not a regular expression"),
        ({"properties": {"a": {"minimum": "0"}}}, 'parameters.properties.a.minimum must be a number, not "0"'),
        ({"properties": {"a": {"maxItems": -1}}}, "must be a non-negative integer, not -1"),
        ({"type": "array"}, "parameters must be of type object, not 'array'"),
    ],
)
def test_a_bad_tool_schema_is_named_with_its_place(schema: dict[str, Any], text: str) -> None:
    found = list(tool_problems([function(**schema)]))
    assert len(found) == 1
    assert found[0].startswith("tool 'f': ")
    assert text in found[0]


def test_good_tools_have_no_problems() -> None:
    nested: dict[str, Any] = {
        "properties": {
            "a": {"$ref": "#/$defs/A"},
            "b": {"type": ["string", "null"], "enum": ["x", None], "maxLength": 3, "pattern": "^x"},
            "c": {"type": "array", "items": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]}},
            "type": {"type": "string"},
            "required": {"type": "boolean"},
        },
        "required": ["a", "type"],
        "additionalProperties": False,
        "$defs": {"A": {"type": "object", "properties": {}}},
    }
    hosted = {"type": "web_search"}
    assert list(tool_problems([function(**nested), {**function("g"), "parameters": None}, hosted, function("h")])) == []


def test_tool_names_must_be_callable_and_different() -> None:
    found = list(tool_problems([function("no spaces"), function("a"), function("a")]))
    assert found == [
        "tool 'no spaces': a name must be 1 to 64 characters of A-Z a-z 0-9 _ -",
        "tool 'a' is defined twice",
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "required", "items", "anyOf", "$ref", "enum", "pattern", "minimum", "minItems"]
            ),
            inner,
            max_size=4,
        )
    ),
)


@given(st.dictionaries(st.sampled_from(["type", "properties", "$defs", "items", "not", "if"]), JSON))
def test_any_object_can_be_checked_as_a_schema(schema: dict[str, Any]) -> None:
    assert all(isinstance(problem, str) for problem in schema_problems(schema))


def test_a_schema_nested_deeper_than_the_stack_is_checked() -> None:
    schema: dict[str, Any] = {"type": "wrong"}
    for _ in range(20_000):
        schema = {"items": schema}
    assert len(list(schema_problems(schema))) == 1
