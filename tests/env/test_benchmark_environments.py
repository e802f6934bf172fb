"""Environments of benchmarks: their verifier cases, what they refuse, and rules that the published code has."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from gymnast.builtin.resources_servers.bfcl.app import Bfcl
from gymnast.builtin.resources_servers.bfcl.matching import find_mismatch
from gymnast.builtin.resources_servers.evalplus.app import EvalPlus, EvalPlusSettings, extract_program
from gymnast.builtin.resources_servers.ifbench.app import IFBench, IFBenchSettings
from gymnast.builtin.resources_servers.ifbench.checking import check_all
from gymnast.builtin.resources_servers.spider.app import Spider, SpiderSettings, extract_query
from gymnast.builtin.resources_servers.spider.execution import compare, same_results
from gymnast.builtin.resources_servers.tau2.airline import Airline
from gymnast.builtin.resources_servers.tau2.retail import Retail
from gymnast.builtin.resources_servers.tau2.service import ServiceSettings, compute
from gymnast.config.roots import BUILTIN
from gymnast.errors import UserError
from gymnast.kit import EnvironmentSettings, ToolCall, ToolError
from gymnast.wire.calls import Scope
from tests.helpers.environments import called, response, started
from tests.helpers.jsonl import read_jsonl
from tests.helpers.parts import needs

SERVERS = BUILTIN / "resources_servers"
SHOP = str(SERVERS / "spider" / "data" / "database" / "shop" / "shop.sqlite")


@pytest.mark.parametrize(
    ("server", "settings", "file"),
    [
        (Bfcl, EnvironmentSettings(), "bfcl/data/verifier_cases.jsonl"),
        (Spider, SpiderSettings(), "spider/data/verifier_cases.jsonl"),
        pytest.param(EvalPlus, EvalPlusSettings(), "evalplus/data/verifier_cases.jsonl", marks=needs("bubblewrap")),
        (Retail, ServiceSettings(), "tau2/data/tau2_retail_verifier_cases.jsonl"),
        (Airline, ServiceSettings(), "tau2/data/tau2_airline_verifier_cases.jsonl"),
    ],
)
async def test_verifier_cases(server: Any, settings: Any, file: str) -> None:
    async with started(server, settings) as subject:
        for case in read_jsonl(SERVERS / file):
            reply = await subject.calls.call("env", "/verify", case["request"])
            if "expected_error" in case:
                assert reply.status == 422, case["name"]
            else:
                assert (reply.status, reply.body.get("reward")) == (200, case["expected_reward"]), case["name"]


# --- bfcl ------------------------------------------------------------------------------------------------------------


def parameter(**details: Any) -> list[dict[str, Any]]:
    return [{"name": "f", "parameters": {"type": "dict", "properties": {"x": details}, "required": ["x"]}}]


NUMBERS = {"type": "array", "items": {"type": "integer"}}
OBJECTS = {"type": "array", "items": {"type": "dict"}}


@pytest.mark.parametrize(
    ("details", "accepted", "value", "is_right"),
    [
        ({"type": "string"}, ["April 1, 2024"], "april 1 2024", True),
        ({"type": "string"}, ["it's"], 'it"s', True),
        ({"type": "string"}, ["a"], "b", False),
        ({"type": "integer"}, [5], 5, True),
        ({"type": "integer"}, [5], 5.0, False),
        ({"type": "integer"}, [5], "5", False),
        ({"type": "integer"}, ["n"], "n", True),  # the answer names a variable
        ({"type": "integer"}, [1], True, False),
        ({"type": "boolean"}, [True], True, True),
        ({"type": "float"}, [2.0], 2, True),
        (NUMBERS, [[1, 2]], [1, 2], True),
        (NUMBERS, [[1, 2]], [2, 1], False),
        (NUMBERS, [[1, 2]], ["1", "2"], False),
        ({"type": "array", "items": {"type": "string"}}, [["New York"]], ["new-york"], True),
        ({"type": "dict"}, [{"a": [1, ""], "b": ["x"]}], {"b": "X"}, True),
        ({"type": "dict"}, [{"a": [1], "b": ["x"]}], {"b": "x"}, False),
        ({"type": "dict"}, [{"a": [1]}], {"a": 1, "c": 2}, False),
        (OBJECTS, [[{"a": [1]}, {"a": [2]}]], [{"a": 1}, {"a": 2}], True),
        (OBJECTS, [[{"a": [1]}, {"a": [2]}]], [{"a": 2}, {"a": 1}], False),
        (OBJECTS, [[{"a": [1]}]], [5], False),
    ],
)
def test_values_of_arguments(details: dict[str, Any], accepted: list[Any], value: Any, *, is_right: bool) -> None:
    truth = [{"f": {"x": accepted}}]
    calls = [ToolCall("f", {"x": value}, "c")]
    assert (find_mismatch("simple", parameter(**details), calls, truth) is None) is is_right


# --- spider ----------------------------------------------------------------------------------------------------------


def test_results_are_equal_in_some_order_of_the_columns() -> None:
    left = [(1, "a", None), (2, "b", 2.0)]
    assert same_results(left, [("b", 2.0, 2), ("a", None, 1)], ordered=False)
    assert not same_results(left, [("b", 2.0, 2), ("a", None, 1)], ordered=True)
    assert not same_results(left, [("a", None, 2), ("b", 2.0, 1)], ordered=False)
    assert same_results([(1, 1), (1, 2)], [(1, 1), (2, 1)], ordered=True)
    assert not same_results([(1,), (1,), (2,)], [(1,), (2,), (2,)], ordered=False)
    assert same_results([], [], ordered=True)
    wide = [tuple(range(12))] * 3
    assert same_results(wide, [tuple(reversed(row)) for row in wide], ordered=False)
    assert same_results([(0,) * 15], [(0,) * 15], ordered=False), "equal columns are not tried in all orders"


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        ("SELECT DISTINCT city FROM customer", True),  # DISTINCT is removed from both
        ("SELECT city FROM customer WHERE id > = 1", True),
        ("SELECT name FROM customer", False),
        ("DROP TABLE customer", False),
        ("SELECT city FROM customer; DELETE FROM customer", False),
        ("ATTACH DATABASE '/tmp/x.db' AS x", False),
        ("PRAGMA writable_schema = 1", False),
        ("SELECT load_extension('x')", False),
        ("SELECT zeroblob(900000000)", False),
    ],
)
def test_queries_run_read_only(answer: str, *, match: bool) -> None:
    before = Path(SHOP).read_bytes()
    assert compare(SHOP, "SELECT city FROM customer", answer, keep_distinct=False)["match"] is match
    assert Path(SHOP).read_bytes() == before


async def test_a_query_that_does_not_end_is_wrong() -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    row = read_jsonl(SERVERS / "spider" / "data" / "example.jsonl")[0]
    async with started(Spider, SpiderSettings(query_timeout_s=1.0)) as subject:
        verdict = await subject.verify(row, f"```sql\n{endless}\n```")
    assert verdict["reward"] == 0.0
    assert "more than 1 s" in verdict["detail"]


def test_the_query_in_an_answer() -> None:
    assert extract_query("```sql\nSELECT 1;\n```\nor\n```\nSELECT 2\n```") == "SELECT 2"
    assert extract_query("It is SELECT a FROM b; as asked") == "SELECT a FROM b"
    assert extract_query("no query") is None


# --- evalplus --------------------------------------------------------------------------------------------------------


def test_the_program_in_an_answer() -> None:
    assert extract_program("```python\ndef f(): pass\n```\nUse it:\n```python\nf()\n```", "f") == "def f(): pass"
    assert extract_program("```\nx = 1\n```", "f") == "x = 1"
    assert extract_program("def f():\n    return 1", "f") == "def f():\n    return 1"
    assert extract_program("```bash\nls\n```", "f") is None
    assert extract_program("```python\ndef f():\n    return 1", "f") == "def f():\n    return 1"


@needs("bubblewrap")
async def test_programs_that_would_rather_not_be_tested() -> None:
    row = read_jsonl(SERVERS / "evalplus" / "data" / "example.jsonl")[1]
    attacks = {
        "ends when imported": "import sys\nsys.exit(0)",
        "equals everything": "class E:\n    def __eq__(self, o): return True\ndef mean(xs): return E()",
        "skips the tests": "import os\ndef mean(xs): os.kill(os.getpid(), 9)",
        "runs forever": "def mean(xs):\n    while True: pass",
    }
    async with started(EvalPlus, EvalPlusSettings(test_timeout_s=3.0)) as subject:
        rewards = {
            name: (await subject.verify(row, f"```python\n{code}\n```"))["reward"] for name, code in attacks.items()
        }
    assert rewards == dict.fromkeys(attacks, 0.0)


_LOOP = "inputs = [[3]]\nresults = [4]\nfor i, (inp, exp) in enumerate(zip(inputs, results)):\n"


@needs("bubblewrap")
async def test_names_of_the_program_and_of_its_tests_do_not_meet() -> None:
    """A right program is right whatever else it defines, and defining what the tests use does not skip them."""
    row = {**read_jsonl(SERVERS / "evalplus" / "data" / "example.jsonl")[1], "prefix": ""}
    right = "def f(n): return n + 1"
    cases = {
        "is called check": ("check", "def check(n): return n + 1", 1.0),
        "has a helper called check": ("f", f"{right}\ndef check(x): raise ValueError", 1.0),
        "uses names of the tests": (
            "f",
            "from math import exp\nresults = 1\ndef f(n): return n + results * int(exp(0))",
            1.0,
        ),
        "replaces zip": ("f", "def f(n): return 0\ndef zip(*values): return []", 0.0),
        "replaces exec": ("f", "def f(n): return 0\ndef exec(*values): return None", 0.0),
        "replaces __import__": ("f", "def f(n): return 0\ndef __import__(name): return None", 0.0),
        "does not define the function": ("f", "def g(n): return n + 1", 0.0),
    }
    async with started(EvalPlus, EvalPlusSettings()) as subject:
        for name, (entry_point, code, reward) in cases.items():
            task = {**row, "entry_point": entry_point, "test": f"{_LOOP}    assert {entry_point}(*inp) == exp"}
            verdict = await subject.verify(task, f"```python\n{code}\n```")
            assert verdict["reward"] == reward, (name, verdict)


# --- tau2 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "value"), [("1 + 2 * 3", 7), ("10/4", 2.5), ("-(2-5)", 3), ("2**3", 8), ("7//2", 3)]
)
def test_arithmetic(expression: str, value: float) -> None:
    assert compute(expression) == value


@pytest.mark.parametrize("expression", ["1/0", "9**9**9", "abc", "__import__('os')", "1 +", "", "(" * 400])
def test_what_is_not_arithmetic_is_an_error_for_the_model(expression: str) -> None:
    with pytest.raises(ToolError):
        compute(expression)


async def test_rollouts_do_not_share_a_database() -> None:
    row = read_jsonl(SERVERS / "tau2" / "data" / "retail.jsonl")[0]
    async with started(Retail, ServiceSettings()) as subject:
        scopes = [Scope(), Scope()]
        for scope in scopes:
            await subject.calls.call("env", "/seed_session", row, scope)
        cancel = {"order_id": "#W1", "reason": "no longer needed"}
        done = await subject.calls.call("env", "/cancel_pending_order", cancel, scopes[0])
        assert done.body["status"] == "cancelled"
        other = await subject.calls.call("env", "/get_order_details", {"order_id": "#W1"}, scopes[1])
        assert other.body["status"] == "pending"
        again = await subject.calls.call("env", "/cancel_pending_order", cancel, scopes[0])
        assert (again.status, again.body) == (400, {"error": "Non-pending order cannot be cancelled"})


async def test_a_database_that_does_not_exist_is_the_rows_fault() -> None:
    row = {**read_jsonl(SERVERS / "tau2" / "data" / "retail.jsonl")[0], "database": "/nowhere/db.json"}
    async with started(Retail, ServiceSettings()) as subject:
        assert "cannot read the database" in await subject.refusal(row)


async def test_calls_that_fail_change_nothing_and_a_cut_conversation_is_not_right() -> None:
    row = read_jsonl(SERVERS / "tau2" / "data" / "airline.jsonl")[0]
    add = row["evaluation_criteria"]["actions"][0]
    too_much = {**add["arguments"], "payment_id": "certificate_9"}
    async with started(Airline, ServiceSettings()) as subject:
        good = [called(add["name"], too_much), called("unknown", {}), called(add["name"], add["arguments"])]
        assert (await subject.verify(row, *good, "Done."))["reward"] == 1.0
        body = json.loads(
            json.dumps({**row, "response": {**response(*good), "incomplete_details": {"reason": "max_turns"}}})
        )
        verdict = (await subject.calls.call("env", "/verify", body)).body
    assert (verdict["reward"], verdict["database_match"], verdict["truncated_conversation"]) == (0.0, True, True)


# --- ifbench ---------------------------------------------------------------------------------------------------------


class OneLine:
    """An instruction as IFBench's package has them."""

    def __init__(self, name: str) -> None:
        self.name = name

    def build_description(self, *, word: str = "", prompt: str = "") -> None:
        self.word, self.prompt = word, prompt

    def get_instruction_args(self) -> dict[str, str] | None:
        return {"word": self.word}

    def check_following(self, text: str) -> bool:
        return text == self.word


def test_loose_scoring_forgives_frames_and_asterisks(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = types.ModuleType("ifbench.instructions_registry")
    registry.INSTRUCTION_DICT = {"x:word": OneLine}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ifbench", types.ModuleType("ifbench"))
    monkeypatch.setitem(sys.modules, "ifbench.instructions_registry", registry)

    def check(text: str) -> tuple[list[bool], list[bool]]:
        checked = check_all(text, "p", ["x:word", "x:word"], [{"word": "yes", "other": None}, {"word": "no"}])
        return checked["strict"], checked["loose"]

    assert check("yes") == ([True, False], [True, False])
    for framed in ("Sure:\nyes", "yes\nBye.", "Sure:\n**yes**\nBye."):
        assert check(framed) == ([False, False], [True, False]), framed
    assert check("  ") == ([False, False], [False, False])
    with pytest.raises(ValueError, match="no instruction 'y'"):
        check_all("yes", "p", ["y"], [None])


class NthWord(OneLine):
    """An instruction with a number that is used as an index, as `words:keywords_specific_position` of the package."""

    def build_description(self, *, word: str = "", n: int = 1) -> None:  # type: ignore[override]
        self.word, self.n = word, n

    def check_following(self, text: str) -> bool:
        return text.split()[self.n - 1] == self.word


def test_numbers_that_parquet_made_floats_are_indices_again(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = types.ModuleType("ifbench.instructions_registry")
    registry.INSTRUCTION_DICT = {"x:nth": NthWord}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ifbench", types.ModuleType("ifbench"))
    monkeypatch.setitem(sys.modules, "ifbench.instructions_registry", registry)
    assert check_all("a b c", "p", ["x:nth"], [{"word": "b", "n": 2.0}])["strict"] == [True]


async def test_without_its_package_ifbench_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymnast.builtin.resources_servers.ifbench.app.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"github\.com/allenai/IFBench"):
        async with started(IFBench, IFBenchSettings()):
            pass
