"""reasoning_gym: every generator of the package, answers that are programs, finding answers, making tasks."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymnast.builtin.resources_servers.reasoning_gym.app import ReasoningGym, ReasoningGymSettings, strict_answer
from gymnast.builtin.resources_servers.reasoning_gym.scoring import EXPRESSIONS, LITERALS_ONLY, is_plain_expression
from tests.helpers.environments import check_cases, collect_examples, started, thought
from tests.helpers.jsonl import example_rows
from tests.helpers.parts import needs
from tests.helpers.waiting import looks_during

SPEC = importlib.util.find_spec("reasoning_gym")
pytestmark = needs("reasoning-gym")


def make(*arguments: str, hash_seed: str = "random") -> list[dict[str, Any]]:
    """What the command that makes tasks writes."""
    done = subprocess.run(
        [sys.executable, "-m", "gymnast.builtin.resources_servers.reasoning_gym.tasks", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>1</answer> <answer> 2\n3 </answer> bye", "2\n3"),
        ("<answer>a<answer>b</answer>", "b"),
        (r"<answer>tag</answer> \boxed{box}", "tag"),
        (r"\boxed{1} then \boxed{\text{two}}", "two"),
        ("<think><answer>no</answer></think>\nyes", "yes"),
        ("first\n\nFinal answer: 42", "42"),
        ("**Answer:** 42", "42"),
        ("just this", "just this"),
        ("<answer>cut off", "<answer>cut off"),
        ("</answer><answer>", "</answer><answer>"),
        ("<answer></answer>", ""),
        (" \n ", None),
        ("<answer>" * 100_000, "<answer>" * 100_000),
    ],
)
def test_answers_are_found(text: str, answer: str | None) -> None:
    assert strict_answer(text, last_line=True) == answer
    if not text.rpartition("</think>")[2].count("</answer>") and "boxed" not in text:
        assert strict_answer(text, last_line=False) is None


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("3*x**2 - x/2 + C", True),
        ("(1 + 2)*3.5e2 - sin(x)*log(2)", True),
        ("__import__('os')", False),
        ("x.diff(x)", False),
        ("(1).__class__", False),
        ("lambda: 1", False),
        ("eval(x)", False),
        ("[1]", False),
        ("'a'", False),
        ("open(x)", False),
        ("1 if x else 2", False),
        ("ｅval(1)", False),  # a full-width letter, which Python reads as e
    ],
)
def test_plain_expressions(text: str, plain: bool) -> None:  # noqa: FBT001 - a case
    assert is_plain_expression(text) is plain


def test_every_scorer_that_evaluates_answers_is_known() -> None:
    """A new version of the package with another scorer that evaluates what models write must not pass unseen."""
    assert SPEC is not None
    assert SPEC.origin is not None
    found = set()
    for path in Path(SPEC.origin).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name == "score_answer":
                text = ast.unparse(node)
                if any(sign in text for sign in ("eval(", "exec(", "parse_expr(", "sympify(", "simplify(answer")):
                    found.add(path.stem)
    assert found == {*LITERALS_ONLY, *EXPRESSIONS}


EXAMPLES: dict[str, Callable[[Any], str]] = {
    "graph_color": lambda metadata: json.dumps(metadata["possible_answer"]),
    "propositional_logic": lambda metadata: metadata["example_answer"],
    "rubiks_cube": lambda metadata: metadata["example_correct_answer"],
}
MANY_RIGHT = {"boxnet", "rush_hour"}
"""Tasks that come without an answer."""


BY_HASH = ("isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "word_ladder")
"""Tasks whose generators go through sets of texts."""


async def test_every_generator_scores_its_own_answer_and_makes_the_same_rows_again() -> None:
    rows = {row["metadata"]["source_dataset"]: row for row in make("--count", "1", "--seed", "7", hash_seed="1")}
    assert len(rows) > 100
    async with started(
        ReasoningGym, ReasoningGymSettings(scoring="strict", verify_timeout_s=60, verify_processes=1)
    ) as subject:
        scores = {}
        for task, row in rows.items():
            answer = row["answer"] if row["answer"] is not None else EXAMPLES.get(task, str)(row["metadata"])
            verdict = await subject.verify(row, f"I see. <answer>{answer}</answer>")
            assert verdict["task_name"] == task
            scores[task] = verdict["reward"]
        assert {task for task, score in scores.items() if score != 1.0} == MANY_RIGHT
        integral = rows["intermediate_integration"]
        unsolved = f"<answer>Integral({integral['metadata']['integrand']}, x)</answer>"
        assert (await subject.verify(integral, unsolved))["reward"] == 0.0
    again = make("--task", ",".join(BY_HASH), "--count", "1", "--seed", "7", hash_seed="2")
    assert again == [rows[task] for task in BY_HASH]


def test_rows_go_through_the_levels_that_the_package_can_make() -> None:
    rows = make("--task", "caesar_cipher,chain_sum,gsm_symbolic", "--count", "2", "--seed", "9", "--level", "2-3")
    assert [(row["metadata"]["source_dataset"], row["level"]) for row in rows] == [
        ("caesar_cipher", 2),
        ("caesar_cipher", 2),  # the settings of its third level are refused
        ("chain_sum", 2),
        ("chain_sum", 3),
        ("gsm_symbolic", None),
        ("gsm_symbolic", None),
    ]


async def test_hostile_rows_and_answers() -> None:
    chain, *_ = rows = example_rows("reasoning_gym")
    bitwise = {"source_dataset": "bitwise_arithmetic", "problem": "__import__('os').getpid()"}
    integral = {"source_dataset": "simple_integration", "variable": "x", "integrand": "open('x')"}
    async with started(ReasoningGym, ReasoningGymSettings(verify_timeout_s=2, verify_processes=1)) as subject:
        await check_cases(subject, "reasoning_gym")
        for metadata in (bitwise, integral):
            assert "plain expression" in await subject.refusal({**chain, "metadata": metadata}, "/verify")
        assert (await subject.verify(chain, thought("<answer>15</answer>"), "no"))["reward"] == 0.0
        assert (await subject.verify(chain, "1" * 200_000))["reward"] == 0.0
        long = "It is 15. " + "So it is. " * 11_000 + "I think."
        assert (await subject.verify(chain, long))["reward"] == len("15") / len(long)
        scoring = asyncio.create_task(subject.verify(rows[2], f"<answer>{'9**' * 8}9</answer>"))
        assert await looks_during(scoring) > 3
        assert (await scoring)["reward"] <= 0.01


async def test_a_run_over_the_example_rows(tmp_path: Path) -> None:
    rows = example_rows("reasoning_gym")
    replies = ["<answer>15</answer>", f"<answer>{rows[1]['answer']}</answer>", "<answer>69</answer>", "zzz", "30"]
    one = "++reasoning_gym.resources_servers.reasoning_gym.verify_processes=1"
    records = await collect_examples(tmp_path, "reasoning_gym", replies, one)
    assert [record["reward"] for record in records] == [1.0, 1.0, 0.05, 0.0, 1.0]
    assert [record["task_name"] for record in records][:2] == ["chain_sum", "knights_knaves"]
    assert records[3]["extracted_answer"] == "zzz"
