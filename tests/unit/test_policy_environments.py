"""The graded environments of the embedded policy: their generators, tools and verifiers."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.builtin.graded_tasks import Generator, last_answer, last_number, level_range, rows, write_tasks
from gymnast.builtin.resources_servers.arithmetic import tasks as arithmetic
from gymnast.builtin.resources_servers.arithmetic.app import Arithmetic
from gymnast.builtin.resources_servers.number_hunt import tasks as number_hunt
from gymnast.builtin.resources_servers.number_hunt.app import NumberHunt
from gymnast.builtin.resources_servers.shop_lookup import tasks as shop_lookup
from gymnast.builtin.resources_servers.shop_lookup.app import ShopLookup
from gymnast.builtin.resources_servers.word_tasks import tasks as word_tasks
from gymnast.builtin.resources_servers.word_tasks.app import WordTasks
from gymnast.data.validate import InputFile, validate
from gymnast.wire.calls import Scope
from tests.helpers.environments import host_environment, response, said
from tests.helpers.jsonl import write_jsonl

GENERATORS = [module.GENERATOR for module in (arithmetic, word_tasks, shop_lookup, number_hunt)]
by_name = pytest.mark.parametrize("generator", GENERATORS, ids=lambda generator: generator.name)


@by_name
def test_rows_pass_validation_and_follow_from_the_seed(generator: Generator, tmp_path: Path) -> None:
    levels = list(range(1, generator.levels + 1))
    made = list(rows(generator, count=60, seed=3, levels=levels))
    assert made == list(rows(generator, count=90, seed=3, levels=levels))[:60]
    assert made != list(rows(generator, count=60, seed=4, levels=levels))
    assert [row["level"] for row in made[: len(levels)]] == levels
    path = write_jsonl(tmp_path / "tasks.jsonl", made)
    assert not validate([InputFile("tasks.jsonl", path)], None).problems.total


@by_name
def test_the_command_writes_rows(generator: Generator, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--count", "4", "--seed", "1", "--level"]
    write_tasks(generator, [*arguments, "2-3"])
    assert [json.loads(line)["level"] for line in capsys.readouterr().out.splitlines()] == [2, 3, 2, 3]
    with pytest.raises(SystemExit) as refused:
        write_tasks(generator, [*arguments, "0-3"])
    assert refused.value.code == 2
    assert "--level 0-3" in capsys.readouterr().err


@given(st.integers(), st.integers(1, 6))
def test_terms_are_written_as_python_reads_them(seed: int, level: int) -> None:
    term = arithmetic.make_term(random.Random(seed), level)
    assert eval(arithmetic.text_of(term)) == arithmetic.value_of(term) >= 0


@pytest.mark.parametrize(
    ("text", "answer", "number"),
    [
        ("Answer: 12", "12", 12),
        ("answer : 1,234.", "1,234", 1234),
        ("Answer: 1\nno\n**Answer: -2**", "-2", -2),
        ("Answer: 'abc'", "abc", None),
        ("Answer: ١٢", "١٢", None),  # digits of another script
        ("Answer:", None, None),
        ("12", None, None),
    ],
)
def test_answers_are_found(text: str, answer: str | None, number: int | None) -> None:
    assert (last_answer(text), last_number(text)) == (answer, number)


@pytest.mark.parametrize(("text", "levels"), [("2", [2]), ("1-3", [1, 2, 3]), ("3-1", []), ("0", []), ("x", [])])
def test_ranges_of_levels(text: str, levels: list[int]) -> None:
    assert level_range(text, 6) == levels


@pytest.mark.parametrize(
    ("server_class", "row", "right"),
    [
        (Arithmetic, arithmetic.make_row(arithmetic.Operation(47, "+", 85), 2), "4+8+1=13\nAnswer: 132"),
        (WordTasks, word_tasks.make_row(word_tasks.Question("reverse", "plum"), 3), "Answer: Mulp"),
    ],
)
async def test_single_answers_are_scored(server_class: Any, row: dict[str, Any], right: str) -> None:
    _, calls = host_environment(server_class)
    for text, reward in ((right, 1.0), (right + "1", 0.0), ("no idea", 0.0)):
        verdict = (await calls.call("env", "/verify", {**row, "response": response(said(text))})).body
        assert verdict["reward"] == reward
        assert verdict["level"] == row["level"]


async def test_the_shop_answers_and_scores() -> None:
    _, calls = host_environment(ShopLookup)
    shop = shop_lookup.Shop({"apple": 7, "pear": 9}, {"apple": 2, "pear": 0})
    order = shop_lookup.Order("in_stock", (("apple", 3), ("pear", 2)))
    row, scope = shop_lookup.make_row(order, shop, 3), Scope()
    assert row["expected_answer"] == 14
    await calls.call("env", "/seed_session", row, scope)
    assert (await calls.call("env", "/get_price", {"item": "apple"}, scope)).text() == "7"
    assert (await calls.call("env", "/get_stock", {"item": "pear"}, scope)).text() == "0"
    missing = await calls.call("env", "/get_price", {"item": "moon"}, scope)
    assert (missing.status, missing.body) == (400, {"error": "no moon here"})
    verdict = await calls.call("env", "/verify", {**row, "response": response(said("2*7=14\nAnswer: 14"))}, scope)
    assert verdict.body["reward"] == 1.0


async def test_a_binary_search_finds_the_number_and_a_budget_ends() -> None:
    _, calls = host_environment(NumberHunt)
    row = number_hunt.make_row(hidden=6, highest=10, budget=3, level=1)
    for guesses, reward in (((5, 8, 6), 1.0), ((5, 8, 7, 6), 0.0)):
        scope = Scope()
        await calls.call("env", "/seed_session", row, scope)
        told = [(await calls.call("env", "/guess", {"number": number}, scope)).text() for number in guesses]
        assert told[:2] == ["higher", "lower"]
        assert told[2:] == (["correct"] if reward else ["wrong, no guesses left", "no guesses left"])
        verdict = (await calls.call("env", "/verify", {**row, "response": response(said("done"))}, scope)).body
        assert (verdict["reward"], verdict["guesses"]) == (reward, 3)


@pytest.mark.parametrize(("module", "server_class"), [(shop_lookup, ShopLookup), (number_hunt, NumberHunt)])
def test_tools_in_rows_are_the_servers_own(module: Any, server_class: Any) -> None:
    server, _ = host_environment(server_class)
    assert [found.declaration() for found in server.tools.values()] == list(module.TOOLS)
