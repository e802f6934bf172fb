"""`gymnast check tools` against the real libraries that vLLM brings: what they refuse, the rules refuse."""

from __future__ import annotations

import json
import subprocess

import pytest

from gymnast.checks.schema_rules import backend_problems
from tests.helpers.tool_schemas import FINE, REFUSED
from tests.vllm.conftest import VENV

PYTHON = VENV / "bin" / "python"
_ASK = """
import json, sys
import xgrammar
from outlines_core import json_schema
from llguidance import LLMatcher

def outlines(text): json_schema.build_regex_from_schema(text)
def guidance(text):
    said = LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(text))
    if said: raise ValueError(said)

asked = {"xgrammar": xgrammar.Grammar.from_json_schema, "outlines": outlines, "guidance": guidance}
told = {}
for name, schema in json.load(sys.stdin).items():
    told[name] = []
    for backend, ask in asked.items():
        try:
            ask(json.dumps(schema))
        except Exception:
            told[name].append(backend)
json.dump(told, sys.stdout)
"""


@pytest.fixture(scope="module")
def refusals() -> dict[str, list[str]]:
    """Which of the installed libraries refuse each schema."""
    schemas = {**FINE, **{name: schema for name, (schema, _) in REFUSED.items()}}
    done = subprocess.run(
        [str(PYTHON), "-c", _ASK], input=json.dumps(schemas), capture_output=True, text=True, check=True
    )
    data: dict[str, list[str]] = json.loads(done.stdout)
    return data


def test_nothing_that_is_refused_passes_the_check(refusals: dict[str, list[str]]) -> None:
    for name, (schema, _) in REFUSED.items():
        said = {one.backend for one in backend_problems(schema) if one.effect == "refused"}
        if "any" not in said:
            assert set(refusals[name]) <= said, name


def test_what_is_fine_is_taken_by_all(refusals: dict[str, list[str]]) -> None:
    assert {name: refusals[name] for name in FINE} == {name: [] for name in FINE}


def test_every_rule_has_a_library_that_refuses_or_a_pattern_that_some_version_did(
    refusals: dict[str, list[str]],
) -> None:
    harmless = {name for name in REFUSED if not refusals[name]}
    # vLLM checks patterns before Outlines does; no API takes parameters that are no object
    assert harmless <= {"an array at the top"}
