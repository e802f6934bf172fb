"""genrm_compare: what the judge is shown, cohorts that miss members, judges that fail, and whole runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gymnast.builtin.resources_servers.genrm_compare.app import GenRMCompare
from gymnast.builtin.resources_servers.genrm_compare.scores import Scores, find_objects, read_exact_scores, read_scores
from gymnast.builtin.resources_servers.genrm_compare.settings import GenRMCompareSettings
from gymnast.builtin.resources_servers.genrm_compare.texts import NO_ANSWER, answer_for_judge, reasoning_of
from gymnast.builtin.resources_servers.genrm_compare.word_judge import answer as word_judge
from gymnast.builtin.responses_api_models.genrm_model.comparing_model import add_responses
from gymnast.wire.calls import Scope
from gymnast.wire.progress import AttemptProgress
from tests.helpers.commands import Outcome
from tests.helpers.environments import Subject, check_cases, response, said, thought
from tests.helpers.jsonl import read_jsonl, write_jsonl
from tests.helpers.judges import JUDGE, ScriptedJudge, judged
from tests.helpers.waiting import eventually

ROW: dict[str, Any] = {
    "responses_create_params": {"input": [{"role": "user", "content": "Which river?"}]},
    "_ng_task_index": 4,
}
TIE = json.dumps({"score_1": 3, "score_2": 3, "ranking": 3.5})


def settings(**more: Any) -> GenRMCompareSettings:
    defaults = {
        "genrm_model_server": JUDGE,
        "genrm_responses_create_params": {"input": [], "temperature": 0.6},
        "num_rollouts_per_prompt": 3,
        "genrm_parse_retries": 0,
        "genrm_parse_retry_sleep_s": 0,
    }
    return GenRMCompareSettings.model_validate({**defaults, **more})


def longer_wins(call: Any) -> str:
    """A judge whose scores are the lengths of the responses."""
    first, second = (len(call.params["metadata"][name]) for name in ("response_1", "response_2"))
    return json.dumps({"score_1": first, "score_2": second, "ranking": 3})


def body(index: int, text: str, **row: Any) -> dict[str, Any]:
    return {**ROW, "_ng_rollout_index": index, **row, "response": response(said(text))}


def start(subject: Subject, *bodies: dict[str, Any]) -> list[asyncio.Task[Any]]:
    """Rollouts that come in this order."""

    async def verify(request: dict[str, Any]) -> Any:
        return (await subject.calls.call("env", "/verify", request, Scope("x", AttemptProgress()))).body

    return [asyncio.create_task(verify(request)) for request in bodies]


async def verify_all(subject: Subject, *bodies: dict[str, Any]) -> list[Any]:
    return await asyncio.gather(*start(subject, *bodies))


def pairs_of(judge: ScriptedJudge) -> list[tuple[str, str]]:
    metadata = [call.params["metadata"] for call in judge.asked]
    return sorted((entry["response_1"], entry["response_2"]) for entry in metadata)


@pytest.mark.parametrize(
    ("options", "pairs"),
    [
        ({}, [("a", "b"), ("b", "c"), ("c", "a")]),
        ({"comparison_strategy": "all_pairs"}, [("a", "b"), ("a", "c"), ("b", "c")]),
        ({"num_judges_per_comparison": 2}, [("a", "b")] * 2 + [("b", "c")] * 2 + [("c", "a")] * 2),
    ],
)
async def test_which_pairs_are_compared(options: Any, pairs: Any) -> None:
    judge = ScriptedJudge(TIE)
    async with judged(GenRMCompare, settings(**options), judge) as subject:
        verdicts = await verify_all(subject, body(0, "a"), body(1, "b"), body(2, "c"))
    assert pairs_of(judge) == pairs
    assert [verdict["reward"] for verdict in verdicts] == [3.0] * 3
    assert [verdict["cohort_index"] for verdict in verdicts] == [0, 1, 2]
    assert {len(verdict["comparison_results"]) for verdict in verdicts} == {2 * len(pairs) // 3}


async def test_what_the_judge_is_sent() -> None:
    judge = ScriptedJudge(TIE)
    own = {"use_principle": True, "default_principle": "Be brief.", "num_rollouts_per_prompt": 2}
    async with judged(GenRMCompare, settings(**own), judge) as subject:
        await verify_all(subject, body(0, "a"), body(1, " "))
        await verify_all(subject, body(0, "a", principle="Be kind."), body(1, "b", principle="Be kind."))
    params = judge.asked[0].params
    assert params["temperature"] == 0.6
    assert [(item["role"], item["content"]) for item in params["input"]] == [("user", "Which river?")]
    assert params["metadata"] == {"response_1": "a", "response_2": "None", "principle": "Be brief."}
    assert judge.asked[2].params["metadata"]["principle"] == "Be kind."


@pytest.mark.parametrize(
    ("scoring", "shown"),
    [
        ("nemo_gym", [("system", "s"), ("user", ""), ("user", "")]),
        ("strict", [("system", "s"), ("user", "Which one?")]),
    ],
)
async def test_the_conversation_as_the_judge_sees_it(scoring: str, shown: Any) -> None:
    parts = [{"type": "input_text", "text": "Which "}, {"type": "input_text", "text": "one?"}]
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    items = [{"role": "system", "content": "s"}, {"role": "user", "content": parts}, call]
    judge = ScriptedJudge(TIE)
    async with judged(GenRMCompare, settings(scoring=scoring, num_rollouts_per_prompt=2), judge) as subject:
        row = {"responses_create_params": {"input": items}}
        await verify_all(subject, body(0, "a", **row), body(1, "b", **row))
    assert [(item["role"], item["content"]) for item in judge.asked[0].params["input"]] == shown


async def test_tasks_and_principles_are_kept_apart() -> None:
    async with judged(GenRMCompare, settings(num_rollouts_per_prompt=2), longer_wins) as subject:
        rows: list[dict[str, Any]] = [{"_ng_task_index": 1}, {"_ng_task_index": 2}, {"_ng_task_index": None}]
        rows += [{"_ng_task_index": None, "prompt_id": "p"}, {"_ng_task_index": 1, "principle": "x"}]
        bodies = [body(at, "ab"[at], **row) for at in range(2) for row in rows]
        verdicts = await verify_all(subject, *bodies)
    assert [verdict["cohort_size"] for verdict in verdicts] == [2] * 10


async def test_more_rollouts_than_expected_are_a_second_cohort() -> None:
    async with judged(GenRMCompare, settings(num_rollouts_per_prompt=2), longer_wins) as subject:
        verdicts = await verify_all(subject, *(body(at, "x" * (at + 1)) for at in range(4)))
    assert [verdict["reward"] for verdict in verdicts] == [1.0, 2.0, 3.0, 4.0]


async def test_fixed_responses_take_part() -> None:
    judge = ScriptedJudge(TIE)
    fixed = {"compare_with": ["x", "y"]}
    async with judged(GenRMCompare, settings(num_rollouts_per_prompt=1), judge) as subject:
        found = (await verify_all(subject, body(0, "a", **fixed)))[0]
    assert pairs_of(judge) == [("a", "x"), ("y", "a")]
    assert (found["cohort_size"], found["reward"]) == (3, 3.0)


async def test_the_last_to_come_does_not_end_comparisons_of_others() -> None:
    """The judge is slow for the first pair and quick for the last one: no comparison is lost."""
    release = asyncio.Event()
    answered = []

    async def slow(metadata: dict[str, str]) -> None:
        if metadata["response_1"] == "a":
            await release.wait()

    class SlowJudge(GenRMCompare):
        async def start(self) -> None:
            compare = self._judge.compare

            async def wait(prompt: Any, first: Any, second: Any, scope: Scope) -> Any:
                names = [entry["output"][0]["content"][0]["text"] for entry in (first, second)]
                await slow({"response_1": names[0]})
                answered.append(names)
                return await compare(prompt, first, second, scope)

            self._judge.compare = wait  # type: ignore[method-assign]
            await super().start()

    async with judged(SlowJudge, settings(), longer_wins) as subject:
        tasks = start(subject, body(0, "a"), body(1, "bb"), body(2, "ccc"))
        await eventually(lambda: len(answered) == 2)
        assert not any(task.done() for task in tasks)
        release.set()
        results = await asyncio.gather(*tasks)
    assert [verdict["reward"] for verdict in results] == [1.0, 2.0, 3.0]


# --- cohorts that miss members ---------------------------------------------------------------------------------------


async def test_a_cohort_that_stays_incomplete_fails_and_says_why() -> None:
    async with judged(GenRMCompare, settings(cohort_timeout_s=0.05), longer_wins) as subject:
        verdicts = await verify_all(subject, body(0, "a"), body(1, "b"))
        for verdict in verdicts:
            assert verdict["_ng_failure_class"] == "judge_failed"
            error = verdict["_ng_failure_judge_error"]
            assert error.startswith("cohort_incomplete: 2 of 3 rollouts of this prompt came within 0.05 s; collect num")
        verdicts = await verify_all(subject, body(0, "a"), body(1, "b"), body(2, "c"))
        assert [verdict["reward"] for verdict in verdicts] == [1.0] * 3


async def test_those_who_came_may_be_compared() -> None:
    own = {"cohort_timeout_s": 0.05, "incomplete_cohorts": "compare", "num_rollouts_per_prompt": 5}
    async with judged(GenRMCompare, settings(**own), longer_wins) as subject:
        verdicts = await verify_all(subject, *(body(at, "x" * (at + 1)) for at in range(3)))
        assert [(verdict["reward"], verdict["cohort_size"]) for verdict in verdicts] == [(1.0, 3), (2.0, 3), (3.0, 3)]
        alone = (await verify_all(subject, body(0, "a")))[0]
        assert alone["_ng_failure_judge_error"].startswith("cohort_incomplete: 1 of 5")


async def test_a_run_that_starts_no_more_rollouts_ends_the_wait() -> None:
    async with judged(GenRMCompare, settings(cohort_timeout_s=3600), longer_wins) as subject:
        progress = AttemptProgress()
        waiting = asyncio.create_task(subject.calls.call("env", "/verify", body(0, "a"), Scope("x", progress)))
        await eventually(lambda: progress.end_wait is not None)
        assert progress.end_wait is not None
        progress.end_wait()
        assert "no other rollout of the run can come" in (await waiting).body["_ng_failure_judge_error"]
        assert progress.end_wait is None


async def test_a_cancelled_rollout_makes_room_for_its_retry() -> None:
    async with judged(GenRMCompare, settings(), longer_wins) as subject:
        first, gone = start(subject, body(0, "a"), body(1, "bbbbbbbbb"))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        results = await asyncio.gather(first, *start(subject, body(2, "ccc"), body(1, "bb")))
    assert [verdict["reward"] for verdict in results] == [1.0, 3.0, 2.0]
    assert [verdict["cohort_index"] for verdict in results] == [0, 1, 2]


async def test_a_newer_attempt_takes_the_place_of_the_older() -> None:
    async with judged(GenRMCompare, settings(), longer_wins) as subject:
        older, first = start(subject, body(1, "old and long"), body(0, "a"))
        results = await asyncio.gather(first, *start(subject, body(1, "bb"), body(2, "ccc")))
        assert (await older)["_ng_failure_judge_error"].startswith("cohort_replaced: ")
    assert [verdict["reward"] for verdict in results] == [1.0, 2.0, 3.0]


async def test_stopping_ends_all_waits() -> None:
    async with judged(GenRMCompare, settings(), longer_wins) as subject:
        tasks = start(subject, body(0, "a"), body(1, "b"))
        await asyncio.sleep(0.01)
    results = await asyncio.gather(*tasks)
    assert [verdict["_ng_failure_class"] for verdict in results] == ["judge_failed"] * 2


# --- the judge -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scoring", ["nemo_gym", "strict"])
@pytest.mark.parametrize(
    ("reply", "error"),
    [({"status": 503}, "model_overloaded: "), ({"status": 401}, "model_auth: "), ({"hang": True}, "model_timeout: ")],
)
async def test_a_judge_that_fails_fails_the_cohort_and_is_not_a_tie(reply: Any, error: str, scoring: str) -> None:
    own = {"scoring": scoring, "genrm_timeout_s": 0.1}
    async with judged(GenRMCompare, settings(**own), ScriptedJudge(TIE, TIE, reply)) as subject:
        verdicts = await verify_all(subject, body(0, "a"), body(1, "b"), body(2, "c"))
    for verdict in verdicts:
        assert verdict["_ng_failure_class"] == "judge_failed"
        assert verdict["_ng_failure_judge_error"].startswith(error)


async def test_a_judge_without_scores_is_asked_again_and_then_a_default_or_a_failure() -> None:
    own = {"num_rollouts_per_prompt": 2, "genrm_parse_retries": 1, "default_score": 2.0}
    for replies, reward, defaults in ((["?", TIE], 3.0, 0), (["?"], 2.0, 2)):
        async with judged(GenRMCompare, settings(**own), ScriptedJudge(*replies)) as subject:
            verdicts = await verify_all(subject, body(0, "a"), body(1, "b"))
        assert [(verdict["reward"], verdict["num_default_comparisons"]) for verdict in verdicts] == [
            (reward, defaults)
        ] * 2
    async with judged(GenRMCompare, settings(scoring="strict", **own), ScriptedJudge("?")) as subject:
        verdicts = await verify_all(subject, body(0, "a"), body(1, "b"))
    assert [verdict["_ng_failure_judge_error"][:20] for verdict in verdicts] == ["judge_unparseable: n"] * 2


def test_only_nemo_gyms_rules_pass_over_a_judges_message_without_a_type() -> None:
    message = {"role": "assistant", "content": [{"type": "output_text", "text": TIE}]}
    assert answer_for_judge({"output": [message]}) == TIE
    assert answer_for_judge({"output": [message]}, untyped="") == NO_ANSWER
    assert answer_for_judge({"output": [message, {"type": "message", **message}]}, untyped="") == TIE


@pytest.mark.parametrize(("scoring", "shown"), [("nemo_gym", NO_ANSWER), ("strict", "bb")])
async def test_a_batch_is_compared_without_messages_that_do_not_name_their_type(scoring: str, shown: str) -> None:
    message = {key: value for key, value in said("bb").items() if key != "type"}
    judge = ScriptedJudge('{"score_1": 4, "score_2": 2, "ranking": 2}')
    async with judged(GenRMCompare, settings(scoring=scoring), judge) as subject:
        request = {
            "conversation_history": [{"role": "user", "content": "Which river?"}],
            "response_objs": [response(said("a")), response(message)],
        }
        assert (await subject.calls.call("env", "/compare", request)).status == 200
    assert {text for call in judge.asked for text in call.params["metadata"].values()} == {"a", shown}


def test_scores_that_are_hard_to_find_do_not_take_for_ever() -> None:
    defaults = Scores(3.0, 3.0, 3.5)
    for text in ("{" * 200_000, '{"' * 100_000, "```json" * 50_000, "```json" + " " * 200_000, "{" * 99_999 + "}"):
        assert read_scores(text, defaults) is None
    assert read_scores("{" * 99_999 + TIE, defaults) == Scores(3.0, 3.0, 3.5)
    assert read_exact_scores(TIE) == Scores(3.0, 3.0, 3.5)
    assert find_objects('{a} {"b": "}"} {c {d}') == ["{a}", '{"b": "}"}', "{d}"]


async def test_a_batch_is_compared_at_once() -> None:
    history = [{"role": "user", "content": "Which river?"}]
    objects = [response(said(text)) for text in ("a", "bb", "bb")]
    async with judged(GenRMCompare, settings(comparison_strategy="all_pairs"), longer_wins) as subject:
        request = {"conversation_history": history, "response_objs": objects}
        found = (await subject.calls.call("env", "/compare", request)).body
        assert found["rewards"] == [1.0, 2.25, 1.75]
        assert found["comparison_results"][0] == {
            "response_i": 0, "response_j": 1, "judge_idx": 0, "score_1": 1.0, "score_2": 2.0, "ranking": 3.0,
        }  # fmt: skip
        assert found["metrics"]["tiebreak_usage_rate"] == pytest.approx(1 / 3)
        one = (await subject.calls.call("env", "/compare", {**request, "response_objs": objects[:1]})).body
        assert one == {"rewards": [3.0], "comparison_results": None, "metrics": None}
        assert (await subject.calls.call("env", "/compare", {"response_objs": objects})).status == 422
    async with judged(GenRMCompare, settings(), ScriptedJudge({"status": 401})) as subject:
        assert (await subject.calls.call("env", "/compare", request)).status == 500


def test_reasoning_is_not_compared() -> None:
    found = response(thought("long"), said("short"))
    assert (answer_for_judge(found), reasoning_of(found)) == ("short", "long")


def test_responses_become_messages_of_the_models_own_roles() -> None:
    metadata = {"response_1": "a", "response_2": "b", "principle": "p", "extra_body": "{}"}
    chat = {"messages": [{"role": "user", "content": "q"}], "metadata": metadata}
    for supports, roles in ((True, ["user", "principle", "response_1", "response_2"]), (False, None)):
        found = add_responses(chat, supports_principle=supports)
        assert [message["role"] for message in found["messages"]] == (roles or ["user", "response_1", "response_2"])
        assert found["metadata"] == {"extra_body": "{}"}
    assert "metadata" not in add_responses({"messages": [], "metadata": {"response_1": ""}}, supports_principle=True)


def test_wrong_settings_are_refused() -> None:
    for wrong in ({"comparison_strategy": "random"}, {"top_percentile": 2}, {"num_judges_per_comparison": 0}):
        with pytest.raises(ValidationError, match=next(iter(wrong))):
            settings(**wrong)


async def test_cases() -> None:
    async with judged(GenRMCompare, settings(num_rollouts_per_prompt=1), word_judge) as subject:
        await check_cases(subject, "genrm_compare")


CONFIG = """
config_paths: [resources_servers/genrm_compare/configs/genrm_compare.yaml]
genrm_model_name: none
policy_model: {responses_api_models: {scripted_model: {entrypoint: app.py, replies: [Rome, Rome is north]}}}
judge: {responses_api_models: {scripted_model: {entrypoint: app.py, script: JUDGE}}}
genrm_compare_resources_server:
  resources_servers:
    genrm_compare:
      num_rollouts_per_prompt: 4
      genrm_model_server: {type: responses_api_models, name: judge}
"""
ROWS = "resources_servers/genrm_compare/data/example.jsonl"


@pytest.mark.parametrize("options", [[], ["--concurrency", "1"], ["--workers", "2"]])
def test_a_run_compares_the_rollouts_of_each_task(
    options: list[str], tmp_path: Path, run: Callable[..., Outcome]
) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG.replace("JUDGE", f"{word_judge.__module__}:answer"))
    done = run("gymnast", "collect", "-c", "c.yaml", "-i", ROWS, "-o", "x.jsonl", "-n", "4", *options)
    assert done.code == 0, done.err
    records = read_jsonl(tmp_path / "x.jsonl")
    assert len(records) == 24
    assert {(record["cohort_size"], record["num_default_comparisons"]) for record in records} == {(4, 0), (6, 0)}
    assert sum((record["_ng_model_usage"].get("judge") or {"calls": 0})["calls"] for record in records) == 5 * 4 + 5


def test_a_run_with_too_few_rollouts_fails_at_once_and_can_be_compared_later(
    tmp_path: Path, run: Callable[..., Outcome]
) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG.replace("JUDGE", f"{word_judge.__module__}:answer"))
    write_jsonl(tmp_path / "in.jsonl", [{"responses_create_params": {"input": "Is Rome north?"}}])
    files = ("-c", "c.yaml", "-i", "in.jsonl", "-o", "x.jsonl", "-n", "2", "--max-attempts", "1")
    done = run("gymnast", "collect", *files)
    assert done.code == 1
    failed = read_jsonl(tmp_path / "x_failures.jsonl")
    assert ["cohort_incomplete: 2 of 4" in row["_ng_failure_judge_error"] for row in failed] == [True, True]
    setting = "++genrm_compare_resources_server.resources_servers.genrm_compare.incomplete_cohorts=compare"
    done = run("gymnast", "reverify", "x.jsonl", "-c", "c.yaml", "--judge-failed-only", "--append", setting)
    assert done.code == 0, done.err
    records = read_jsonl(tmp_path / "x.jsonl")
    assert [(record["reward"], record["cohort_size"]) for record in records] == [(1.0, 2), (1.0, 2)]


def test_a_judge_with_a_part_that_has_no_text_has_said_nothing() -> None:
    parts = [{"type": "output_text", "text": None}, {"type": "output_text", "text": '{"score_1": 4}'}]
    assert answer_for_judge({"output": [{"type": "message", "content": parts}]}) == NO_ANSWER
