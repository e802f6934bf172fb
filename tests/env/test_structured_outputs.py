"""structured_outputs: five formats, read strictly; hostile documents; tool calls; schemas that are wrong.

What scoring as NeMo Gym does says of documents is in scoring_cases/structured_outputs.jsonl.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.builtin.resources_servers.structured_outputs.app import StructuredOutputs, StructuredOutputsSettings
from gymnast.builtin.resources_servers.structured_outputs.checking import check
from gymnast.builtin.resources_servers.structured_outputs.strict_rules import close_objects
from tests.helpers.environments import called, check_cases, collect_examples, response, said, started, thought
from tests.helpers.jsonl import example_rows
from tests.helpers.waiting import looks_during

POINT: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "label": {"type": "string"}},
    "required": ["x"],
}


def outcome(schema: Any, kind: str, text: str, **options: Any) -> str | None:
    options = {"scoring": "strict", "strict_schema": False, "xml_coerce_types": True, **options}
    found = check(schema if isinstance(schema, str) else json.dumps(schema), kind, text, options)
    return f"row: {found['row_error']}" if "row_error" in found else found["error_type"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"x": 1}', None),
        ('  {"x": 1, "label": "\\u00e9"}\n', None),
        ('{"x": 1.0}', None),  # JSON Schema: a number without a fraction is an integer
        ('{"x": "1"}', "validation_error"),
        ('{"label": "a"}', "validation_error"),
        ("{x: 1}", "parse_error"),
        ("{'x': 1}", "parse_error"),
        ('{"x": 1,}', "parse_error"),
        ('{"x": 1} // done', "parse_error"),
        ('{"x": 1}{"x": 1}', "parse_error"),
        ('{"x": 1, "x": 2}', "parse_error"),
        ('{"x": NaN}', "parse_error"),
        ('{"x": 1e999}', "parse_error"),
        ('{"x": ' + "9" * 5000 + "}", "parse_error"),
        ('```json\n{"x": 1}\n```', "parse_error"),
        ("", "empty_response"),
        ('{"x": ' + "[" * 100_000, "too_deep"),
        ('{"x": 1, "y": ' + "[" * 500 + "]" * 500 + "}", None),
    ],
)
def test_json(text: str, problem: str | None) -> None:
    assert outcome(POINT, "json", text) == problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('```json\n{"x": 1}\n```', None),
        ('```\n{"x": 1}```', None),
        ('{"x": 1}', None),
        ('Sure:\n```json\n{"x": 1}\n```', "parse_error"),
        ('```json\n{"x": 1}\n```\nDone.', "parse_error"),
        ('```json\n{"x": 1}\n```\n```json\n{"x": 1}\n```', "parse_error"),
    ],
)
def test_a_code_fence_where_it_is_allowed(text: str, problem: str | None) -> None:
    assert outcome(POINT, "json", text, allow_code_fence=True) == problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x: 1\nlabel: a", None),
        ("{x: 1}", None),
        ("x: 1\nlabel: 2024-05-01", None),  # a date stays a text
        ("x: 1\nlabel: no", "validation_error"),  # a boolean, as PyYAML reads it
        ("x: '1'", "validation_error"),
        ("x: 1\nx: 2", "parse_error"),
        ("x: 1\n? [a]\n: 2", "parse_error"),
        ("x: 1\n2: two", "parse_error"),
        ("x: .nan", "parse_error"),
        ("x: 1\n---\nx: 2", "parse_error"),
        ("Sure! Here it is", "validation_error"),
        ("x: !!python/object/apply:os.system ['true']", "parse_error"),
        ("a: &a [1]\nx: *a", "parse_error"),
        ("x: !!set {a, b}", "parse_error"),
        ("x: " + "[" * 300 + "]" * 300, "too_deep"),
        ("x: " + "{a: " * 100_000, "too_deep"),
    ],
)
def test_yaml(text: str, problem: str | None) -> None:
    found = outcome(POINT, "yaml", text)
    assert found == problem or (problem == "too_deep" and found == "parse_error")  # the parser's own limit


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('x = 1\nlabel = "a"', None),
        ("x = 1\nlabel = 2024-05-01", None),
        ("x = 1\nx = 2", "parse_error"),
        ("x = inf", "parse_error"),
        ("x: 1", "parse_error"),
        ("x = 1.5", "validation_error"),
        ("x = " + "[" * 50_000, "too_deep"),
    ],
)
def test_toml(text: str, problem: str | None) -> None:
    assert outcome(POINT, "toml", text) == problem


CATALOGUE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "open": {"type": "boolean"},
        "size": {"enum": [1, 2.5, "large"]},
        "note": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "extra": {"type": "object", "additionalProperties": False},
    },
    "required": ["id"],
    "additionalProperties": False,
    "$defs": {
        "line": {
            "type": "object",
            "properties": {"product": {"type": "string"}, "price": {"type": "number"}},
            "required": ["product", "price"],
            "additionalProperties": False,
        }
    },
}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<c><id>1</id></c>", None),
        ("<?xml version='1.0' encoding='UTF-16'?>\n<c xmlns='urn:x' id='1'/>", None),
        ("<c><id> 1 </id><open>true</open><size>2.5</size><note/></c>", None),
        ("<c><id>1</id><size>large</size><note>hm</note><extra/></c>", None),
        ("<c><id>1</id><tags><tag>a</tag><tag>b</tag></tags></c>", None),
        ("<c><id>1</id><tags>a</tags><tags>b</tags></c>", None),
        ("<c><id>1</id><tags>a</tags></c>", None),
        ("<c><id>1</id><tags/><lines/></c>", None),
        ("<c><id>1</id><lines><product>p</product><price>1</price></lines></c>", None),
        ("<c><id>1</id><lines><line><product>p</product><price>1e2</price></line></lines></c>", None),
        ("<c><id>1</id><lines product='p' price='1'/><lines product='q' price='2'/></c>", None),
        ("<c><id>one</id></c>", "validation_error"),
        ("<c><id>1</id><id>2</id></c>", "validation_error"),
        ("<c><id>1</id><open>yes</open></c>", "validation_error"),
        ("<c><id>1</id><colour>red</colour></c>", "validation_error"),
        ("<c colour='red'><id>1</id></c>", "validation_error"),
        ("<c>text<id>1</id></c>", "validation_error"),
        ("<c><id>1</id><lines><product>p</product></lines></c>", "validation_error"),
        ("<c><id>1</id>", "parse_error"),
        ("<c><id>1</c></id>", "parse_error"),
        ("<c><id>1</id></c><c/>", "parse_error"),
        ("<c><id>&one;</id></c>", "parse_error"),
        ('<!DOCTYPE c [<!ENTITY e SYSTEM "file:///etc/passwd">]><c><id>&e;</id></c>', "parse_error"),
        ('<!DOCTYPE c SYSTEM "http://127.0.0.1:9/x.dtd"><c><id>1</id></c>', "parse_error"),
        ("<a>" * 100_000, "too_deep"),
    ],
)
def test_xml(text: str, problem: str | None) -> None:
    assert outcome(CATALOGUE, "xml", text) == problem


def test_xml_whose_root_is_the_only_field_and_xml_without_types() -> None:
    schema = {"type": "object", "properties": {"point": POINT}, "required": ["point"]}
    assert outcome(schema, "xml", "<point><x>1</x></point>") is None
    assert outcome(schema, "xml", "<doc><point><x>1</x></point></doc>") is None
    assert outcome(POINT, "xml", "<p><x>1</x></p>", xml_coerce_types=False) == "validation_error"
    assert outcome({"type": "array", "items": {"type": "integer"}}, "xml", "<l><i>1</i><i>2</i></l>") is None


def test_schemas_of_rows_are_used_strictly_or_refused() -> None:
    assert outcome({"$ref": "#/$defs/p", "$defs": {"p": POINT}}, "json", '{"x": 1}') is None
    assert outcome("type: object\nrequired: [x]", "json", "{}") == "validation_error"
    for broken in ('{"type": "thing"}', "[1]", "{", '{"$ref": "#/nowhere"}', '{"pattern": "("}'):
        assert str(outcome(broken, "json", '"x"')).startswith("row: "), broken
    assert str(outcome({"$ref": "http://127.0.0.1:9/schema.json"}, "json", "1")).startswith("row: ")


def test_a_closed_schema_requires_every_property_and_allows_no_other() -> None:
    nested = {"type": ["object", "null"], "properties": {"default": POINT}}
    assert outcome(POINT, "json", '{"x": 1, "y": 2}') is None
    assert outcome(POINT, "json", '{"x": 1}', strict_schema=True) == "validation_error"
    assert outcome(POINT, "json", '{"x": 1, "label": "", "y": 2}', strict_schema=True) == "validation_error"
    assert close_objects(nested)["properties"]["default"]["additionalProperties"] is False


TABLE: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "nights": {"type": "integer"},
            "paid": {"type": ["boolean", "null"]},
        },
    },
}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("city,nights,paid\nPorto,3,true\n\nRome,1,\n", None),
        ('city,nights,paid\r\n"Porto, old\ntown",3,false\r\n', None),
        ("city,nights,paid", None),
        ("city,nights,paid\nPorto,three,true", "validation_error"),
        ("city,nights,paid\nPorto,3,1", "validation_error"),
        ("city,nights,paid\nPorto,3", "parse_error"),
        ("city,nights,paid\nPorto,3,true,", "parse_error"),
        ("city,nights,nights\nPorto,3,3", "parse_error"),
        ('city,nights,paid\n"Porto"!,3,true', "parse_error"),
        ('city,nights,paid\n"Porto,3,true', "parse_error"),
        ("city,nights,paid\n" + "x" * 200_000 + ",3,true", "parse_error"),
        ("Here it is:\ncity,nights,paid\nPorto,3,true", "parse_error"),
        ("city,nights,paid\n```", "parse_error"),
        ("", "empty_response"),
    ],
)
def test_csv(text: str, problem: str | None) -> None:
    assert outcome(TABLE, "csv", text) == problem


@pytest.mark.parametrize("scoring", ["nemo_gym", "strict"])
@given(text=st.text(max_size=60), kind=st.sampled_from(["json", "yaml", "toml", "xml", "csv"]))
def test_any_text_is_judged(scoring: str, text: str, kind: str) -> None:
    found = outcome(CATALOGUE, kind, text, scoring=scoring)
    assert found in {"parse_error", "validation_error", "empty_response", None}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("json", "[" * 100_000),
        ("yaml", "[" * 2000),
        ("yaml", "a: !!python/object/apply:os.system ['true']"),
        ("xml", '<!DOCTYPE c [<!ENTITY e SYSTEM "file:///etc/passwd">]><c>&e;</c>'),
        ("xml", '<!DOCTYPE c [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><c>&b;</c>'),
        ("toml", "x = " + "[" * 50_000),
        ("json", "\ud800"),
        ("xml", "<c>\ud800</c>"),
    ],
)
def test_a_hostile_document_scores_nothing_under_either_scoring(kind: str, text: str) -> None:
    for scoring in ("nemo_gym", "strict"):
        assert outcome({"type": "array"}, kind, text, scoring=scoring) is not None


async def test_an_unusable_schema_is_refused_and_a_broken_one_fails_the_document() -> None:
    row = example_rows("structured_outputs")[0]
    async with started(StructuredOutputs, StructuredOutputsSettings()) as subject:
        unusable = {**row, "schema_str": '{"properties": 5}', "response": response(said("{}"))}
        assert (await subject.calls.call("env", "/verify", unusable)).status == 422
        verdict = await subject.verify({**row, "schema_str": '{"$ref": "http://127.0.0.1:9/schema.json"}'}, "{}")
        assert (verdict["reward"], verdict["error_type"]) == (0.0, "validation_error")


async def test_a_response_with_an_error_is_named_so_where_a_call_is_required() -> None:
    row = {**example_rows("structured_outputs")[4]}
    broken = {**response(), "error": {"message": "it's down", "code": "server_error"}}
    async with started(StructuredOutputs, StructuredOutputsSettings()) as subject:
        verdict = (await subject.calls.call("env", "/verify", {**row, "response": broken})).body
    assert verdict["error_type"] == "api_error"
    assert verdict["error_message"] == "ResponseError(code='server_error', message=\"it's down\")"


async def test_verifier_cases() -> None:
    async with started(StructuredOutputs, StructuredOutputsSettings()) as subject:
        await check_cases(subject, "structured_outputs")


async def test_tool_calls_are_judged_by_name_number_and_payload() -> None:
    row = example_rows("structured_outputs")[4]
    good = {"record": {"name": "A", "age": 3, "email": "a@b"}}
    right = called("response_tool_2", good)
    async with started(StructuredOutputs, StructuredOutputsSettings(scoring="strict")) as subject:
        for output, problem in [
            ([right], None),
            ([thought("…"), said("I call it."), right], None),
            ([right, right], "multiple_tool_calls"),
            ([said("no")], "missing_tool_call"),
            ([called("response_tool_3", good)], "wrong_tool_name"),
            ([called("response_tool_2", {"other": good})], "missing_tool_payload_key"),
            ([called("response_tool_2", good["record"])], "missing_tool_payload_key"),
            ([called("response_tool_2", "[]")], "tool_arguments_parse_error"),
            ([called("response_tool_2", '{"record": 1, "record": 2}')], "tool_arguments_parse_error"),
            ([called("response_tool_2", {"record": 10**30})], "validation_error"),
        ]:
            verdict = await subject.verify(row, *output)
            assert (verdict["error_type"], verdict["reward"]) == (problem, float(problem is None))
            assert bool(verdict["error_message"]) is bool(problem)
        bare = {**row, "tool_payload_key": None, "response_mode": "tool"}
        assert (await subject.verify(bare, called("response_tool_2", good["record"])))["reward"] == 1.0
        yaml_text = {**row, "schema_type": "YAML"}
        text = "name: A\nage: 3\nemail: a@b"
        verdict = await subject.verify(yaml_text, called("response_tool_2", {"record": text}))
        assert (verdict["reward"], verdict["schema_type"], verdict["tool_name"]) == (1.0, "yaml", "response_tool_2")


async def test_documents_that_are_slow_or_large_hold_nobody_up() -> None:
    slow = {"type": "string", "pattern": "^(a+)+$"}
    row = {**example_rows("structured_outputs")[0], "schema_str": json.dumps(slow)}
    settings = StructuredOutputsSettings(scoring="strict", verify_timeout_s=0.5, max_document_chars=1000)
    async with started(StructuredOutputs, settings) as subject:
        assert (await subject.verify(row, '"aa"'))["reward"] == 1.0
        scoring = asyncio.create_task(subject.verify(row, '"' + "a" * 50 + 'b"'))
        assert await looks_during(scoring) > 3
        assert ((await scoring)["error_type"], (await scoring)["reward"]) == ("timeout", 0.0)
        assert (await subject.verify(row, '"' + "a" * 1000 + '"'))["error_type"] == "too_large"
    settings = StructuredOutputsSettings(verify_timeout_s=0.5)
    async with started(StructuredOutputs, settings) as subject:  # a document that is not checked has no reward
        reply = await subject.calls.call("env", "/verify", {**row, "response": response(said('"' + "a" * 50 + 'b"'))})
        assert reply.status == 500


@pytest.mark.parametrize("change", [{"schema_type": "ini"}, {"response_mode": "voice"}, {"schema_str": None}])
async def test_rows_that_cannot_be_used_are_refused(change: dict[str, Any]) -> None:
    async with started(StructuredOutputs, StructuredOutputsSettings(scoring="strict")) as subject:
        row = {**example_rows("structured_outputs")[0], **change}
        assert next(iter(change)) in await subject.refusal(row, "/verify")


async def test_a_run_over_the_example_rows(tmp_path: Path) -> None:
    record = {"name": "Ada Lim", "age": None, "email": "ada@lim.example"}
    replies = [
        '{"title": "The Trial", "year": 1925, "tags": ["law"]}',
        "city: Porto\nnights: three\nbreakfast: true",
        'name = "atlas"\nport = 8080\n[limits]\ncpu = 2.5\nhosts = []',
        "<order><id>17</id><paid>yes</paid><lines/></order>",
        {"tool_calls": [{"name": "response_tool_2", "arguments": {"record": record}}]},
    ]
    records = await collect_examples(tmp_path, "structured_outputs", replies)
    assert [record["reward"] for record in records] == [1.0, 0.0, 1.0, 0.0, 1.0]
    assert records[1]["error_message"].startswith("ValidationError: 'three' is not of type 'integer'")
