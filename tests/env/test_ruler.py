"""ruler: generated tasks, copies of the context, and a run over the example rows."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from gymnast.builtin.graded_tasks import rows
from gymnast.builtin.resources_servers.ruler.app import SUBSETS, Ruler, RulerSettings
from gymnast.builtin.resources_servers.ruler.strict_rules import last_words, read_prompt
from gymnast.builtin.resources_servers.ruler.tasks import GENERATOR, KINDS
from tests.helpers.environments import check_cases, collect_examples, started
from tests.helpers.jsonl import example_rows


def prompt_of(row: dict[str, Any]) -> str:
    text: str = row["responses_create_params"]["input"][0]["content"]
    return text


async def test_verifier_cases() -> None:
    async with started(Ruler, RulerSettings()) as subject:
        await check_cases(subject, "ruler")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", [1, 3])
def test_a_task_contains_what_it_asks_for_once_and_is_as_long_as_its_level(kind: str, level: int) -> None:
    row = KINDS[kind](random.Random(f"{kind}/{level}"), level)
    text = prompt_of(row)
    assert row["subset"] == kind
    assert kind in SUBSETS
    assert all(output in text for output in row["outputs"])
    assert len(set(row["outputs"])) == len(row["outputs"])
    asked = read_prompt(row["responses_create_params"]).asked
    assert kind in {"cwe", "fwe"} or not asked & {output.lower() for output in row["outputs"]}
    assert row["length"] == len(text.split())
    assert 0.5 < row["length"] / (500 * 2 ** (level - 1)) < 1.3


@pytest.mark.parametrize("kind", ["cwe", "fwe"])
def test_the_words_asked_for_are_the_most_frequent(kind: str) -> None:
    row = KINDS[kind](random.Random(kind), 2)
    words = prompt_of(row).split("\n")[1].split()
    counts = {word: words.count(word) for word in words if word.isalpha()}
    most = sorted(counts, key=lambda word: counts[word], reverse=True)[: len(row["outputs"])]
    assert sorted(most) == sorted(row["outputs"])


def test_the_same_seed_gives_the_same_tasks() -> None:
    once, again = (json.dumps([*rows(GENERATOR, count=6, seed=3, levels=[1, 2])]) for _ in range(2))
    assert once == again


async def test_a_copy_of_the_context_is_not_recall_under_strict_scoring() -> None:
    tasks = [kind(random.Random(name), 2) for name, kind in KINDS.items()]
    async with started(Ruler, RulerSettings()) as lenient, started(Ruler, RulerSettings(scoring="strict")) as strict:
        for row in tasks:
            context = prompt_of(row).split("\n")[1]
            assert (await lenient.verify(row, context))["reward"] == 1.0
            reward = (await strict.verify(row, context))["reward"]
            alone = row["subset"] in {"niah_single_1", "niah_single_3", "niah_multivalue"}  # no wrong candidates in it
            assert alone or reward < 0.7, row["subset"]
            assert (await strict.verify(row, ", ".join(row["outputs"])))["reward"] == 1.0


async def test_the_strings_of_the_question_are_not_wrong_candidates() -> None:
    keys = ["1" * 8 + "-aaaa-4aaa-8aaa-" + digit * 12 for digit in "012"]
    row = {
        "responses_create_params": {
            "input": f"{'Filler. ' * 30}{' '.join(keys)}\nWhat is the magic uuid for {keys[1]}?"
        },
        "outputs": [keys[2]],
        "length": 8,
        "subset": "niah_multikey_3",
    }
    async with started(Ruler, RulerSettings(scoring="strict")) as subject:
        assert (await subject.verify(row, f"The magic uuid for {keys[1]} is {keys[2]}."))["reward"] == 1.0
        assert (await subject.verify(row, f"{keys[0]}, {keys[2]}"))["reward"] == 0.5


def test_the_end_of_an_answer_by_words() -> None:
    assert last_words("a b  c d", 2) == "c d"
    assert last_words("a b", 2) == "a b"
    assert last_words("", 2) == ""


async def test_a_run_over_the_examples(tmp_path: Path) -> None:
    replies = [", ".join(row["outputs"]) for row in example_rows("ruler")]
    replies[0] = "no idea"
    records = await collect_examples(tmp_path, "ruler", replies)
    assert [record["reward"] for record in records] == [0.0, *[1.0] * (len(replies) - 1)]
    assert records[3]["niah_multivalue"] == 1.0
    assert records[3]["vt"] is None
