"""`check tools` with the real libraries: what they refuse when they compile is what the rules said without them.

They are heavy and not part of the installation; the environment of the trainers' tests has them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gymnast.checks.schema_rules import backend_problems
from tests.helpers.tool_schemas import FINE, REFUSED

SOURCE = Path(__file__).parents[2] / "src"
ASK = """
import json, sys
from gymnast.checks.schema_compilers import compile_problems, installed_compilers
found = installed_compilers()
told = {name: [[one.backend, one.what] for one in compile_problems(schema, found)]
        for name, schema in json.load(sys.stdin).items()}
json.dump({"compilers": sorted(found), "told": told}, sys.stdout)
"""
SCHEMAS = {**FINE, **{name: schema for name, (schema, _) in REFUSED.items()}}


@pytest.fixture(scope="module")
def compiled() -> dict[str, dict[str, str]]:
    """Which libraries refuse each schema, and what they say; schemas that are no objects are not compiled."""
    schemas = {name: schema for name, schema in SCHEMAS.items() if isinstance(schema, dict)}
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        input=json.dumps(schemas),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["compilers"] == ["guidance", "outlines", "xgrammar"]
    return {name: dict(said) for name, said in answer["told"].items()}


def test_what_libraries_refuse_the_rules_refuse_too(compiled: dict[str, dict[str, str]]) -> None:
    for name, told in compiled.items():
        rules = {one.backend for one in backend_problems(SCHEMAS[name]) if one.effect == "refused"}
        assert "any" in rules or told.keys() <= rules, (name, told)


def test_a_refusal_says_what_the_library_said(compiled: dict[str, dict[str, str]]) -> None:
    said = [what for told in compiled.values() for what in told.values()]
    assert said, "nothing is refused by the libraries that are installed"
    assert all(what.startswith("it fails to compile: ") and len(what) > 25 for what in said)


def test_what_is_fine_compiles(compiled: dict[str, dict[str, str]]) -> None:
    assert {name: compiled[name] for name in FINE} == {name: {} for name in FINE}
