"""An environment that returns what a model made it parse: in this process, in workers, and in a server of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.commands import DEMO_POLICY, run_command
from tests.helpers.jsonl import read_jsonl, write_jsonl

ENVIRONMENT = """
from typing import Any

from gymnast.kit import Environment, Task, Verdict


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


VALUES = {
    "plain": 1, "big": 2**64, "huge": 10**5000, "surrogate": "a\\ud800b", "key": {"\\udfff": 1}, "deep": nested(300),
    "deeper": nested(5000), "quotes": {'a"b\\x00': 1}, "nan": float("nan"), "object": object(),
}


class OddTask(Task):
    case: str
    where: str


class OddVerdict(Verdict):
    answer: Any


class Odd(Environment[OddTask, None]):
    async def verify(self, attempt):
        value = VALUES[attempt.task.case]
        if attempt.task.where == "raise":
            raise ValueError(value)
        return OddVerdict(reward=0.5, answer=value)
"""
CONFIG = """
odd:
  resources_servers:
    odd: {entrypoint: app.py, domain: other%s}
odd_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: odd}
      model_server: {type: responses_api_models, name: policy_model}
"""
CASES = ["plain", "big", "huge", "surrogate", "key", "deep", "deeper", "quotes", "nan", "object"]


@pytest.mark.parametrize(
    ("setting", "options"),
    [("", ()), ("", ("--workers", "2")), (", runs_in: child", ())],
    ids=["in process", "in workers", "in a process of its own"],
)
def test_nothing_about_one_rollout_ends_a_run(tmp_path: Path, setting: str, options: tuple[str, ...]) -> None:
    folder = tmp_path / "resources_servers" / "odd"
    (folder / "configs").mkdir(parents=True)
    (folder / "app.py").write_text(ENVIRONMENT)
    (folder / "configs" / "odd.yaml").write_text(CONFIG % setting)
    tasks = [(where, case) for where in ("verdict", "raise") for case in CASES]
    params = {"responses_create_params": {"input": "q"}}
    write_jsonl(tmp_path / "in.jsonl", [{**params, "where": where, "case": case} for where, case in tasks])
    names = ("-e", "odd", "-c", DEMO_POLICY, "-i", "in.jsonl", "-o", "x.jsonl", "--max-attempts", "1")
    done = run_command(tmp_path, "gymnast", "collect", *names, *options)
    assert done.code == 1, done.err
    assert "9 of 20 rollouts were scored" in done.err
    scored = {tasks[record["_ng_task_index"]]: record for record in read_jsonl(tmp_path / "x.jsonl")}
    assert set(scored) == {("verdict", case) for case in CASES if case != "object"}
    assert {record["reward"] for record in scored.values()} == {0.5}
    failures = {tasks[record["_ng_task_index"]]: record for record in read_jsonl(tmp_path / "x_failures.jsonl")}
    assert len(failures) == 11
    assert {record["failure"]["kind"] for record in failures.values()} == {"verifier_error"}
    for command in (
        ("report", "x.jsonl"),
        ("profile", "x.jsonl", "--allow-partial"),
        ("compare", "x.jsonl", "x.jsonl"),
    ):
        assert run_command(tmp_path, "gymnast", *command).code == 0
