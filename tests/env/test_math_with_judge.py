"""math_with_judge: what math-verify says of evasive answers, expressions that never end, and the optional judge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from gymnast.builtin.resources_servers.math_with_judge.app import MAX_WHOLE_CHARS, MathSettings, MathWithJudge, excerpt
from gymnast.config import Config
from gymnast.wire.progress import AttemptProgress
from tests.helpers.environments import Subject, check_cases, collect_examples, response, said, started, thought
from tests.helpers.judges import JUDGE, OTHER, SAME, ScriptedJudge, judged, texts_of, verify_in_rollout

one_loop = pytest.mark.asyncio(loop_scope="module")
"""A worker imports sympy for a second or more: one serves nearly all tests here."""
ROW = {"responses_create_params": {"input": "q"}, "question": "What is it?", "expected_answer": "84"}


def settings(**more: Any) -> MathSettings:
    return MathSettings.model_validate({"judge_model_server": JUDGE, "should_use_judge": False, **more})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subject() -> AsyncIterator[Subject]:
    """Without a judge."""
    async with started(MathWithJudge, settings(library_verifier_max_concurrency=1)) as found:
        yield found


@asynccontextmanager
async def with_judge(subject: Subject, answer: Any, **more: Any) -> AsyncIterator[Subject]:
    """The same workers, and a judge."""
    async with judged(MathWithJudge, settings(should_use_judge=True, **more), answer) as found:
        own, found.server._workers = found.server._workers, subject.server._workers
        yield found
        found.server._workers = own


@one_loop
@pytest.mark.parametrize(
    ("expected", "text", "reward"),
    [
        ("84", r"\boxed{84}", 1),
        ("84", "The answer is 84.", 1),
        ("84", r"**Answer:** $84$", 1),
        ("84", r"\boxed{84}. So much for that; thank you for your attention in 2024.", 1),
        ("84", r"first \boxed{84}, no: \boxed{85}", 0),  # several boxed answers count together
        ("84", r"\boxed{83}\boxed{84}\boxed{85}", 0),
        ("84", r"\boxed{84} is right. Again: $\boxed{84}$", 1),
        ("84", r"\boxed{84", 0),
        ("84", r"\boxed{}", 0),
        ("84", r"\boxed{84.0}", 1),
        ("84", r"\boxed{8 4}", 0),
        ("84", r"\boxed{-84}", 0),
        ("84", r"\boxed{84, 85}", 0),
        ("84", r"\boxed{x = 84}", 1),
        ("84", r"\boxed{84\text{ cm}}", 1),
        ("84", r"\boxed{84^\circ}", 1),
        ("84", r"\text{84}", 0),
        ("1,000", r"\boxed{1000}", 1),
        (r"\frac{1}{2}", r"\boxed{\dfrac{1}{2}}", 1),
        (r"\frac{1}{2}", r"\boxed{\tfrac12}", 1),
        (r"\frac{1}{2}", r"\boxed{1/2}", 1),
        (r"\frac{1}{2}", r"\boxed{0.5}", 1),
        (r"\frac{1}{3}", r"\boxed{0.3}", 0),
        (r"50\%", r"\boxed{50\%}", 1),
        (r"\sqrt{8}", r"\boxed{2\sqrt{2}}", 1),
        ("x^2+2x+1", r"\boxed{(x+1)^2}", 1),
        ("x^2+2x+1", r"\boxed{(x-1)^2}", 0),
        (r"\{1,2,3\}", r"\boxed{\{3, 2, 1\}}", 1),
        (r"\{1,2,3\}", r"\boxed{\{1, 2\}}", 0),
        ("(1,2]", r"\boxed{(1, 2]}", 1),
        ("(1,2]", r"\boxed{[1, 2)}", 0),
        ("(-\\infty,3)", r"\boxed{(-\infty, 3)}", 1),
        (r"\text{Tuesday}", r"\boxed{\text{Tuesday}}", 1),
        (r"\text{Tuesday}", r"\boxed{\text{Monday}}", 0),
        ("84", "\\boxed{\uff18\uff14}", 0),  # full-width digits
        ("x", "\\boxed{\u0445}", 0),  # a Cyrillic letter that looks like x
        ("-3", "\\boxed{\u22123}", 1),  # a typographic minus sign is one
        ("84", "", 0),
        ("84", "🤷", 0),
    ],
)
async def test_answers(subject: Subject, expected: str, text: str, reward: float) -> None:
    verdict = await subject.verify({**ROW, "expected_answer": expected}, text)
    assert (verdict["reward"], verdict["library_reward"]) == (reward, reward), verdict["extracted_answer"]
    assert verdict["judge_evaluations"] is None


@one_loop
async def test_the_reply_says_what_was_found(subject: Subject) -> None:
    verdict = await subject.verify(ROW, thought(r"\boxed{84}"), r"It is \boxed{85}")
    shown = ("reward", "expected_answer", "extracted_answer", "library_reward", "judge_evaluations")
    assert {name: verdict[name] for name in shown} == {
        "reward": 0.0,
        "expected_answer": "84",
        "extracted_answer": "85",
        "library_reward": 0.0,
        "judge_evaluations": None,
    }


@one_loop
async def test_all_assistant_text_counts_and_reasoning_does_not(subject: Subject) -> None:
    assert (await subject.verify(ROW, r"It is \boxed{84}.", "Anything else?"))["reward"] == 1.0
    assert (await subject.verify(ROW, thought(r"\boxed{84}"), "I do not know."))["reward"] == 0.0
    assert (await subject.verify(ROW))["reward"] == 0.0


@one_loop
async def test_cases(subject: Subject) -> None:
    await check_cases(subject, "math_with_judge")


@one_loop
async def test_a_row_without_an_answer_is_refused(subject: Subject) -> None:
    assert (await subject.verify({**ROW, "expected_answer": " "}, r"\boxed{1}"))["reward"] == 0.0
    async with started(MathWithJudge, settings(scoring="strict")) as strict:
        assert "expected_answer is blank" in await strict.refusal({**ROW, "expected_answer": " "})
    assert "question" in await subject.refusal({"responses_create_params": {"input": "q"}, "expected_answer": "1"})


@given(st.text(max_size=50), st.integers(0, 3 * MAX_WHOLE_CHARS))
def test_an_excerpt_keeps_the_end_and_the_last_boxed_answer(end: str, before: int) -> None:
    text = "\\boxed{84}" + "x" * before + end
    found = excerpt(text)
    assert "\\boxed{84}" in found
    assert found.endswith(end)
    assert len(found) <= 2 * MAX_WHOLE_CHARS + 1


@one_loop
@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (r"\boxed{84}" + "na " * 350_000, 1),
        ("na " * 350_000 + r"\boxed{84}", 1),
        ("$ [ " * 250_000 + r" so $\boxed{84}$", 1),
        (r"\boxed{1} " * 100_000, 0),
        ("{" * 1_000_000, 0),
    ],
)
async def test_a_megabyte_of_output(subject: Subject, text: str, reward: float) -> None:
    assert (await subject.verify(ROW, text))["reward"] == reward


@pytest.mark.parametrize("scoring", ["nemo_gym", "strict"])
async def test_an_expression_without_end_is_a_failure_and_holds_up_no_other(scoring: str) -> None:
    """Those that the interpreter can leave and those it cannot; the workers after them work."""
    quick = settings(library_verifier_timeout_seconds=0.5, library_verifier_max_concurrency=2, scoring=scoring)
    endless = [r"\boxed{9^{9^{9^9}}}", r"\boxed{1000000!}"]
    async with started(MathWithJudge, quick) as found:

        async def outcome(text: str) -> Any:
            reply = await found.calls.call("env", "/verify", {**ROW, "response": response(said(text))})
            return reply.failure.kind if reply.failure is not None else reply.body["reward"]

        texts = [*endless, r"\boxed{84}", *endless, r"\boxed{84}"]
        assert await asyncio.gather(*map(outcome, texts)) == [*["verifier_timeout"] * 2, 1.0] * 2


@pytest.mark.skipif(version("math-verify") != "0.8.0", reason="math-verify 0.9.0 cannot read percentages")
@one_loop
@pytest.mark.parametrize(
    ("expected", "text", "extracted"),
    [
        ("0.5", r"\boxed{50\%}", "50*(1/100)"),
        (r"50\%", r"\boxed{0.5}", "1/2"),
        ("25%", "It is 25%.", "25*(1/100)"),
    ],
)
async def test_a_percentage_is_a_number(subject: Subject, expected: str, text: str, extracted: str) -> None:
    verdict = await subject.verify({**ROW, "expected_answer": expected}, text)
    assert (verdict["reward"], verdict["extracted_answer"]) == (1.0, extracted)


@one_loop
async def test_an_expression_without_end_is_left_to_the_judge(subject: Subject) -> None:
    async with judged(
        MathWithJudge,
        settings(should_use_judge=True, library_verifier_timeout_seconds=0.5, library_verifier_max_concurrency=1),
        ScriptedJudge(OTHER),
    ) as judging:
        verdict = await judging.verify(ROW, r"\boxed{9^{9^{9^9}}}")
        assert (verdict["reward"], verdict["library_reward"], verdict["extracted_answer"]) == (0.0, 0.0, None)


@one_loop
async def test_the_judge_is_asked_only_where_the_library_says_no(subject: Subject) -> None:
    answer = ScriptedJudge(SAME)
    async with with_judge(subject, answer) as judging:
        right = await judging.verify(ROW, r"\boxed{84}")
        assert (right["reward"], right["judge_evaluations"], answer.asked) == (1.0, None, [])
        progress = AttemptProgress()
        verdict = await verify_in_rollout(judging, ROW, "eighty-four, that is [[A=B]]", progress)
        assert (verdict["reward"], verdict["library_reward"]) == (1.0, 0.0)
        assert texts_of(verdict["judge_evaluations"]) == ["[[A=B]]", "[[A=B]]"]
        first, second = answer.questions
        assert first.index(">\n84\n<") < first.index("eighty-four")
        assert second.index(">\n84\n<") > second.index("eighty-four")
        assert "that is [ [A=B]]" in first  # no verdict comes along with an answer
        usage = progress.ensure_usage_counter().usage()
        assert usage.judge is not None
        assert usage.calls == usage.judge.calls == 2


@one_loop
async def test_a_long_answer_is_shown_whole_as_in_nemo_gym(subject: Subject) -> None:
    answer = ScriptedJudge(OTHER)
    async with with_judge(subject, answer) as judging:
        await judging.verify(ROW, "eighty " * 5_000 + "four")
    assert answer.questions[0].count("eighty ") == 5_000


@one_loop
@pytest.mark.parametrize(
    ("replies", "labels"),
    [([OTHER], ["[[A!=B]]"]), ([SAME, OTHER], ["[[A=B]]", "[[A!=B]]"])],
)
async def test_both_orders_must_agree(subject: Subject, replies: list[Any], labels: list[str]) -> None:
    async with with_judge(subject, ScriptedJudge(*replies)) as judging:
        verdict = await judging.verify(ROW, "eighty-four")
        assert verdict["reward"] == 0.0
        assert texts_of(verdict["judge_evaluations"]) == labels


@one_loop
@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ({"status": 401}, "model_auth: judge answered 401"),
        ("no verdict", "judge_unparseable: no [[A=B]] or [[A!=B]] from judge in 3 tries"),
        ({"hang": True}, "judge_timeout: judge gave no verdict within 0.2 s"),
    ],
)
async def test_a_judge_that_fails_is_not_a_wrong_answer(subject: Subject, reply: Any, error: str) -> None:
    deadline_s = 0.2 if "judge_timeout" in error else 60  # on a busy machine other failures take longer
    async with with_judge(subject, ScriptedJudge(reply), judge_deadline_s=deadline_s) as judging:
        verdict = await judging.verify({**ROW, "mine": 1}, "eighty-four")
    assert verdict["_ng_failure_class"] == "judge_failed"
    assert verdict["_ng_failure_judge_error"].startswith(error)
    assert (verdict["reward"], verdict["mine"], verdict["question"]) == (0.0, 1, "What is it?")


REPLIES = [r"\boxed{401}", "no idea", {"reasoning": r"\boxed{540}", "text": r"\boxed{541}"}, r"$\boxed{9}$", "84"]
REWARDS = [1.0, 0.0, 0.0, 1.0, 1.0]


async def test_a_run_over_the_example_rows(tmp_path: Path) -> None:
    records = await collect_examples(tmp_path, "math_with_judge", REPLIES)
    assert [record["reward"] for record in records] == REWARDS


@pytest.mark.parametrize("flavor", ["math_with_judge", "math_with_judge/dapo17k"])
def test_configs_name_the_instances_that_users_type(flavor: str, configure: Callable[..., Config]) -> None:
    from gymnast.config.compose import config_path

    config = configure(config_paths=[config_path("resources_servers", flavor)], stub_policy=True)
    assert {"math_with_judge", "math_with_judge_simple_agent"} <= set(config.instances)
    assert not config.problems
