"""Conversations with a simulated user: turns, endings, limits, and failures of the user that are never the policy's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymnast.benchmarks.scores import score_tasks
from gymnast.config.roots import BUILTIN
from gymnast.profile.pass_at_k import worst_values
from gymnast.types.failure import KINDS, FailureKind
from tests.helpers.command_functions import invoke_command
from tests.helpers.commands import Outcome
from tests.helpers.jsonl import read_jsonl, write_jsonl

AGENT = "++tau2_retail_agent.responses_api_agents.simulated_user_agent"
CANCEL = {"name": "cancel_pending_order", "arguments": {"order_id": "#W1", "reason": "no longer needed"}}
POLICY: list[Any] = ["May I cancel #W1?", {"tool_calls": [CANCEL]}, "It is cancelled."]
USER: list[Any] = ["Cancel #W1, please. I am Ann Lee.", "Yes.", "Thanks! ###STOP###"]


def talk(folder: Path, user: list[Any], *words: str, policy: list[Any] = POLICY, **options: Any) -> Outcome:
    """Collect one task with a scripted policy and a scripted user."""

    def scripted(replies: list[Any]) -> dict[str, Any]:
        server = {"entrypoint": "app.py", "replies": replies, "prices": {"input": 1.0, "output": 2.0}}
        return {"responses_api_models": {"scripted_model": server}}

    models = {"policy_model": scripted(policy), "user_model": scripted(user)}
    (folder / "models.yaml").write_text(json.dumps(models))
    row = read_jsonl(BUILTIN / "resources_servers" / "tau2" / "data" / "retail.jsonl")[0]
    write_jsonl(folder / "tasks.jsonl", [row | options.get("row", {})])
    return invoke_command(
        folder,
        "gymnast",
        "collect",
        *("-e", "tau2/tau2_retail", "-c", "models.yaml", "-i", "tasks.jsonl", "-o", "out.jsonl"),
        f"{AGENT}.user_model_server.name=user_model",
        *words,
    )


def spoken(record: dict[str, Any]) -> list[tuple[str, str]]:
    items = record["response"]["output"]
    texts = {
        "message": lambda item: item["content"] if isinstance(item["content"], str) else item["content"][0]["text"]
    }
    return [(item["role"], texts["message"](item)) for item in items if item["type"] == "message"]


# A scripted model counts its own turns, and both the greeting and each answer are turns of the policy.
AFTER_GREETING: list[Any] = ["unused", *POLICY]


def test_both_sides_speak_in_turn_until_the_user_is_done(tmp_path: Path) -> None:
    done = talk(tmp_path, USER, policy=AFTER_GREETING)
    assert done.code == 0, done.err
    (record,) = read_jsonl(tmp_path / "out.jsonl")
    assert record["reward"] == 1.0
    assert [role for role, _ in spoken(record)] == ["assistant", "user"] * 3
    assert spoken(record)[1] == ("user", USER[0])
    assert record["conversation"] == {"ended_by": "###STOP###", "user_turns": 3}
    usage = record["_ng_model_usage"]
    assert usage["judge"]["calls"] == 3, "what the user used is counted apart"
    assert usage["calls"] == 6


def test_a_user_whose_model_fails_is_never_a_reward(tmp_path: Path) -> None:
    failures: list[tuple[list[Any], str]] = [
        ([{"status": 503}], "user_failed"),
        (["###STOP###"], "user_failed"),
        ([{"text": ""}], "user_failed"),
        ([{"text": "Cancel my", "finish": "length"}], "user_failed"),
        (["Hello", "###OUT-OF-SCOPE###"], "user_failed"),
        ([{"status": 401}], "model_auth"),
    ]
    for number, (user, kind) in enumerate(failures):
        folder = tmp_path / str(number)
        folder.mkdir()
        words = ("--max-attempts", "1", f"{AGENT}.user_max_tries=2", f"{AGENT}.out_of_scope=fail", "--no-preflight")
        done = talk(folder, user, *words)
        assert done.code != 0
        assert not (folder / "out.jsonl").exists() or not read_jsonl(folder / "out.jsonl"), user
        (failure,) = read_jsonl(folder / "out_failures.jsonl")
        assert failure["failure"]["kind"] == kind, (user, failure)


def test_a_failed_user_is_retried_and_the_rollout_is_scored(tmp_path: Path) -> None:
    assert KINDS[FailureKind.USER_FAILED].retryable
    done = talk(tmp_path, ["", *USER], f"{AGENT}.user_max_tries=1", "--max-attempts", "2")
    assert done.code != 0, "an empty message twice"
    assert len(read_jsonl(tmp_path / "out_failures.jsonl")) == 2


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("max_turns=2", "max_turns"),
        ("max_rollout_tokens=400", "max_rollout_tokens"),
        ("max_rollout_cost=0.0005", "max_rollout_cost"),
    ],
)
def test_limits_truncate_a_conversation(tmp_path: Path, setting: str, reason: str) -> None:
    done = talk(tmp_path, ["Go on."], f"{AGENT}.{setting}", policy=["What else?"])
    assert done.code == 0, done.err
    (record,) = read_jsonl(tmp_path / "out.jsonl")
    assert record["conversation"]["ended_by"] == reason
    assert record["response"]["incomplete_details"] == {"reason": reason}
    assert record["reward"] == 0.0


def test_a_row_may_start_with_the_users_message(tmp_path: Path) -> None:
    first = [{"role": "system", "content": "Help."}, {"role": "user", "content": "Cancel #W1, please."}]
    row = {"responses_create_params": {"input": first}}
    done = talk(tmp_path, ["unused", "Yes.", "###STOP###"], f"{AGENT}.greeting=null", row=row)
    assert done.code == 0, done.err
    (record,) = read_jsonl(tmp_path / "out.jsonl")
    assert spoken(record)[0][0] == "assistant"
    assert record["reward"] == 1.0


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        ({"persona": "x"}, "no 'user.goal'"),
        ({"goal": " "}, "'user.goal': String should have at least 1 character"),
        ({"goal": "x", "personna": "y"}, "unknown field 'user.personna'"),
        ("cancel it", "'user': expected an object, got a text"),
    ],
)
def test_a_row_without_a_goal_is_refused_before_the_first_call(tmp_path: Path, user: Any, reason: str) -> None:
    done = talk(tmp_path, USER, row={"user": user})
    assert done.code != 0
    assert f"the row does not fit 'tau2_retail_agent': {reason}" in done.err
    assert not (tmp_path / "out_failures.jsonl").exists()


def test_pass_hat_k_is_the_probability_that_all_succeed() -> None:
    tasks = [[1.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [1.0] * 4]
    assert worst_values(tasks, [2, 4]) == {2: [0.5, 0.0, 1.0], 4: [0.0, 0.0, 1.0]}
    table = score_tasks(tasks, None, repeats=4, ks=[1, 2, 4], pass_hat=True)
    values = {metric.name: metric.estimate.value for metric in table.metrics}
    assert values["pass^2"] == pytest.approx(0.5)
    assert values["pass^4"] == pytest.approx(1 / 3)
    assert "pass^2" not in {metric.name for metric in score_tasks(tasks, None, repeats=4, ks=[2]).metrics}


def test_an_evaluation_prints_pass_hat_k(tmp_path: Path) -> None:
    from tests.helpers.benchmark_rows import REPOSITORIES

    for name, content in REPOSITORIES["tau2_retail"]().items():
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(content)
    scripted = {"entrypoint": "app.py", "replies": ["Anything else?"]}
    user = {"entrypoint": "app.py", "replies": ["Hello.", "###STOP###"]}
    models = {"policy_model": scripted, "user_model": user}
    config = {name: {"responses_api_models": {"scripted_model": server}} for name, server in models.items()}
    (tmp_path / "models.yaml").write_text(json.dumps(config))
    words = ("tau2_retail", "--from", "copy", "-c", "models.yaml", "--limit", "3", "--json")
    done = invoke_command(
        tmp_path, "gymnast", "eval", *words, "--override", f"{AGENT}.user_model_server.name=user_model"
    )
    assert done.code == 0, done.err
    (result,) = done.json()
    values = {metric["name"]: metric["estimate"]["value"] for metric in result["scores"]["tables"][0]["metrics"]}
    assert values == {"pass@1[avg-of-4]": 1.0, "pass@2": 1.0, "pass@4": 1.0, "pass^2": 1.0, "pass^4": 1.0}
