"""The preflight of `gymnast collect`: what fails every rollout ends a run early, and nothing else does."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import gymnast
from gymnast.rollouts.exit_status import OUT_OF_BUDGET
from tests.doctor.lab import LAB_CONFIG, RIGHT, Answer, Policy, endpoint
from tests.helpers.command_functions import invoke_command
from tests.helpers.commands import DEMO_POLICY
from tests.helpers.jsonl import write_jsonl
from tests.helpers.preflight_setups import (
    FAULTY,
    HEALTHY,
    LATER_FAULTY,
    LATER_HEALTHY,
    NO_KEY,
    ROWS,
    Faulty,
    Healthy,
    Setup,
    after,
    always,
    openai_error,
)
from tests.helpers.small_disk import small_disk

REJECTED = openai_error(400, "this request is not to our liking", "invalid_request_error")
PATHS = frozenset({"/v1/models", "/v1/chat/completions"})
JUDGE = """
judge_model:
  responses_api_models:
    vllm_model: {{entrypoint: app.py, base_url: "{url}", api_key: k, model: judge-of-labs}}
"""
BY_JUDGE = "++equivalence_llm_judge.resources_servers.equivalence_llm_judge.judge_model_server.name=judge_model"
WITH_JUDGE = """
from gymnast.kit import Attempt, Environment, EnvironmentSettings, ModelRef, Task


class LabSettings(EnvironmentSettings):
    judge_model_server: ModelRef | None = None


class Lab(Environment[Task, None]):
    settings: LabSettings

    async def verify(self, attempt: Attempt) -> float:
        return 1.0
"""


@dataclass
class Counts:
    """The requests to an endpoint."""

    requests: int = 0
    answers: int = 0
    """Those that got a completion."""

    def watch(self, policy: Policy) -> Policy:
        def answer(number: int, body: dict[str, Any]) -> Answer:
            reply = policy(number, body)
            self.requests += 1
            self.answers += b'"choices"' in reply.body
            return reply

        return answer


def make_rows(setup: Setup) -> list[dict[str, Any]]:
    """The rows of a setup; those of one environment fit the others."""
    tools = setup.rows.get("tools")
    rows = []
    for number in range(ROWS):
        more = setup.vary(number)
        params = {"input": [{"role": "user", "content": f"Question {number}"}], **({"tools": tools} if tools else {})}
        params |= setup.rows.get("responses_create_params", {}) | more.get("params", {})
        options = [{letter: letter} for letter in "ABCD"]
        row = {"responses_create_params": params, "options": options, "expected_answer": "A", "question": "Which?"}
        rows.append(row)
    return rows


@contextmanager
def served(setup: Setup, folder: Path, policy: Counts) -> Iterator[list[str]]:
    """The endpoints of a setup; the arguments of `collect`."""
    write_jsonl(folder / "tasks.jsonl", make_rows(setup))
    with ExitStack() as stack:
        url = stack.enter_context(endpoint(policy.watch(setup.policy), setup.models, paths=PATHS))
        arguments = ["-i", "tasks.jsonl", "-o", "x.jsonl", "--concurrency", "16", *setup.more]
        arguments += ["--model-type", setup.model_type, "-m", "lab", "--model-url", setup.url(url)]
        arguments += ["++policy_api_key=k", "++model_endpoint_readiness_timeout_seconds=2"]
        if setup.judge is None:
            yield ["-e", setup.environment, *arguments]
            return
        judge_url = stack.enter_context(endpoint(setup.judge, setup.judge_models))
        (folder / "judge.yaml").write_text(JUDGE.format(url=judge_url))
        if setup.environment == "lab_with_judge":
            install_with_judge(folder)
            yield ["-c", "judge.yaml", "-e", "lab", *arguments]
        else:
            yield ["-c", "judge.yaml", "-e", "equivalence_llm_judge", BY_JUDGE, *arguments]


def install_with_judge(folder: Path) -> None:
    """An environment that names a judge and does not call it."""
    home = folder / "resources_servers" / "lab"
    (home / "configs").mkdir(parents=True)
    (home / "app.py").write_text(WITH_JUDGE)
    judge = "domain: other, judge_model_server: {type: responses_api_models, name: judge_model}"
    (home / "configs" / "lab.yaml").write_text(LAB_CONFIG.replace("domain: other", judge))


def count_lines(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


@pytest.mark.parametrize("name", FAULTY | LATER_FAULTY)
def test_a_faulty_setup_ends_early(name: str, tmp_path: Path) -> None:
    setup: Faulty = (FAULTY | LATER_FAULTY)[name]
    policy = Counts()
    with served(setup, tmp_path, policy) as arguments:
        done = invoke_command(tmp_path, "gymnast", "collect", *arguments)
    assert done.code != 0, done.err
    assert re.search(setup.says, done.err, re.IGNORECASE | re.DOTALL), done.err
    assert policy.answers <= setup.max_answers
    assert count_lines(tmp_path / "x_failures.jsonl") + count_lines(tmp_path / "x.jsonl") <= setup.max_attempts


@pytest.mark.parametrize("name", HEALTHY | LATER_HEALTHY)
def test_a_healthy_setup_is_collected(name: str, tmp_path: Path) -> None:
    setup: Healthy = (HEALTHY | LATER_HEALTHY)[name]
    policy = Counts()
    with served(setup, tmp_path, policy) as arguments:
        done = invoke_command(tmp_path, "gymnast", "collect", *arguments, "--max-failed", str(setup.missing))
    assert done.code == 0, done.err
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == ROWS - setup.missing, done.err
    assert "preflight" not in done.err or setup.warns is not None, done.err
    assert setup.warns is None or re.search(f"warning: .*{setup.warns}", done.err), done.err
    assert policy.requests >= ROWS
    assert policy.answers <= ROWS - setup.missing + setup.judge_failures  # the policy gets no requests of its own


def test_a_resume_with_scored_rollouts_has_no_preflight(tmp_path: Path) -> None:
    with served(Healthy(policy=after(10, RIGHT, REJECTED)), tmp_path, Counts()) as arguments:
        done = invoke_command(tmp_path, "gymnast", "collect", *arguments)
    assert done.code == 1, done.err
    with served(Healthy(policy=always(NO_KEY)), tmp_path, Counts()) as arguments:
        done = invoke_command(tmp_path, "gymnast", "collect", *arguments, "--resume", "--retry-failed")
    assert done.code == 1
    assert "preflight" not in done.err


def test_a_run_that_ended_early_is_finished_by_a_resume(tmp_path: Path) -> None:
    with served(Healthy(policy=always(NO_KEY)), tmp_path, Counts()) as arguments:
        done = invoke_command(tmp_path, "gymnast", "collect", *arguments)
    assert "--resume --retry-failed" in done.err
    with served(Healthy(), tmp_path, Counts()) as arguments:
        done = invoke_command(tmp_path, "gymnast", "collect", *arguments, "--resume", "--retry-failed")
    assert done.code == 0, done.err
    assert count_lines(tmp_path / "x.jsonl") == ROWS


def test_without_a_preflight_refused_rollouts_are_many(tmp_path: Path) -> None:
    setup = Healthy(policy=always(NO_KEY), more=("--no-preflight",))
    with served(setup, tmp_path, Counts()) as arguments:
        done = invoke_command(tmp_path, "gymnast", "collect", *arguments)
    assert done.code == 1
    assert "preflight" not in done.err
    assert count_lines(tmp_path / "x_failures.jsonl") > 6


def test_several_endpoints_have_no_preflight(tmp_path: Path) -> None:
    with served(Healthy(policy=always(NO_KEY)), tmp_path, Counts()) as arguments, endpoint(always(NO_KEY)) as other:
        url = arguments[arguments.index("--model-url") + 1]
        both = f"++policy_model.responses_api_models.vllm_model.base_url=[{url},{other}]"
        done = invoke_command(tmp_path, "gymnast", "collect", *arguments, both)
    assert done.code == 1
    assert "preflight" not in done.err, done.err


@pytest.mark.parametrize(("more", "is_early"), [((), True), (("+no_preflight=true",), False)])
def test_the_commands_of_nemo_gym_have_it_too(more: tuple[str, ...], *, is_early: bool, tmp_path: Path) -> None:
    with served(Healthy(policy=always(NO_KEY)), tmp_path, Counts()) as arguments:
        url = arguments[arguments.index("--model-url") + 1]
        configs = "resources_servers/mcqa/configs/mcqa.yaml,responses_api_models/vllm_model/configs/vllm_model.yaml"
        fields = ["+input_jsonl_fpath=tasks.jsonl", "+output_jsonl_fpath=x.jsonl", "+num_samples_in_parallel=16"]
        fields += ["++policy_api_key=k", f"++policy_base_url={url}", "++policy_model_name=lab", *more]
        done = invoke_command(tmp_path, "gymnast", "gym", "eval", "run", f"+config_paths=[{configs}]", *fields)
    assert done.code == 1, done.err
    assert (count_lines(tmp_path / "x_failures.jsonl") <= 6) is is_early


def test_scripted_policies_need_no_endpoint(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "tasks.jsonl", make_rows(Healthy()))
    arguments = ["-e", "mcqa", "-c", DEMO_POLICY, "-i", "tasks.jsonl", "-o", "x.jsonl"]
    done = invoke_command(tmp_path, "gymnast", "collect", *arguments)
    assert done.code == 0, done.err


def test_a_budget_still_ends_a_run(tmp_path: Path) -> None:
    with served(Healthy(more=("--max-tokens", "60")), tmp_path, Counts()) as arguments:
        assert invoke_command(tmp_path, "gymnast", "collect", *arguments).code == OUT_OF_BUDGET


def test_a_full_disk_ends_a_run_before_it_starts(tmp_path: Path) -> None:
    policy = Counts()
    with small_disk(tmp_path / "disk", 400) as disk, served(Healthy(), tmp_path, policy) as arguments:
        disk.leave(48)
        done = invoke_command(tmp_path, "gymnast", "collect", *arguments, "-o", "disk/x.jsonl")
    assert done.code == 2
    assert "the disk is full" in done.err
    assert policy.requests == 0


async def collect_rows(collector: gymnast.Collector) -> int:
    """How many rows were scored until the collector ended."""
    scored = 0
    with contextlib.suppress(gymnast.MissingRolloutsError):
        async for _, record in collector.run(make_rows(Healthy()), concurrency=16):
            scored += record.is_scored
    return scored


async def test_a_collector_tries_its_first_rows_once_and_ends_early() -> None:
    policy = Counts()
    replies = [NO_KEY]
    with endpoint(policy.watch(lambda _, __: replies[-1])) as url:
        key = ["++policy_api_key=k"]
        async with gymnast.Collector(
            environments=["mcqa"], model_type="vllm_model", model="lab", model_url=url, overrides=key
        ) as collector:
            assert await collect_rows(collector) == 0
            assert policy.requests <= 6
            replies.append(RIGHT)
            assert await collect_rows(collector) == ROWS
            replies.append(NO_KEY)
            policy.requests = 0
            assert await collect_rows(collector) == 0
    assert policy.requests >= 16
