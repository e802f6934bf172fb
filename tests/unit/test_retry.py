"""Trying again and giving up: bounded waits, honoured Retry-After, and agents that are left alone or given up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.rollouts.attempt import Failed, Outcome, Scored
from gymnast.rollouts.circuit_breaker import CircuitBreaker
from gymnast.rollouts.engine import Engine, EngineOptions
from gymnast.rollouts.options import RunOptions
from gymnast.rollouts.prepare import prepare_run
from gymnast.rollouts.retry import RetryPolicy
from gymnast.rollouts.run_store import FileRunStore
from gymnast.rollouts.runner import WorkItem
from gymnast.store.manifest import Counts, RunState
from gymnast.store.paths import RunPaths
from gymnast.types.failure import KINDS, FailureDetail, FailureKind, Stage, kind_named
from gymnast.wire.progress import Signals
from tests.helpers.jsonl import write_jsonl

RETRYABLE = sorted(name for name, kind in KINDS.items() if kind.retryable)
FOR_GOOD = sorted(name for name, kind in KINDS.items() if not kind.retryable)


def failure(kind: str = "model_error", message: str = "why", **more: Any) -> FailureDetail:
    return FailureDetail(FailureKind(kind), Stage.MODEL, message, **more)


# --- again or not ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RETRYABLE)
def test_what_may_pass_is_tried_until_the_attempts_are_used_up(kind: str) -> None:
    policy = RetryPolicy(max_attempts=3)
    assert [policy.is_final(failure(kind), made) for made in (1, 2, 3, 4)] == [False, False, True, True]


@pytest.mark.parametrize("kind", FOR_GOOD)
def test_what_repeating_does_not_mend_is_final_at_once(kind: str) -> None:
    assert RetryPolicy(max_attempts=100).is_final(failure(kind), 1)


def test_a_kind_that_is_not_in_the_table_is_tried_again() -> None:
    assert not RetryPolicy(max_attempts=2).is_final(failure("from_a_plugin"), 1)


def test_one_attempt_means_no_retry() -> None:
    assert RetryPolicy(max_attempts=1).is_final(failure(), 1)


@given(st.sampled_from(sorted(KINDS)), st.integers(1, 50))
def test_there_are_never_more_than_max_attempts(kind: str, max_attempts: int) -> None:
    policy = RetryPolicy(max_attempts=max_attempts)
    made = 1
    while not policy.is_final(failure(kind), made):
        made += 1
    assert made <= max_attempts
    assert made == (max_attempts if kind_named(kind).retryable else 1)


# --- after how long --------------------------------------------------------------------------------------------------

jitters = st.floats(0, 1, exclude_max=True)
delays = st.floats(0.001, 100)


def test_the_wait_doubles_with_each_attempt_up_to_the_longest() -> None:
    policy = RetryPolicy(first_delay_s=1, max_delay_s=10)
    assert [policy.delay_s(failure(), made, 0.5) for made in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_jitter_spreads_the_wait_around_its_middle() -> None:
    policy = RetryPolicy(first_delay_s=2)
    assert policy.delay_s(failure(), 1, 0.0) == 1.0
    assert policy.delay_s(failure(), 1, 0.5) == 2.0
    assert policy.delay_s(failure(), 1, 0.999) == pytest.approx(3.0, abs=0.01)


def test_a_longer_retry_after_wins_over_the_backoff_and_a_shorter_one_does_not() -> None:
    policy = RetryPolicy(first_delay_s=4, max_delay_s=60)
    assert policy.delay_s(failure(retry_after_s=20.0), 1, 0.5) == 20.0
    assert policy.delay_s(failure(retry_after_s=1.0), 1, 0.5) == 4.0
    assert policy.delay_s(failure(retry_after_s=None), 1, 0.5) == 4.0


def test_a_retry_after_of_a_day_is_cut_to_the_longest_wait() -> None:
    assert RetryPolicy(max_delay_s=60).delay_s(failure(retry_after_s=86400.0), 1, 0.0) == 60.0


@given(st.integers(1, 1000), jitters, st.none() | st.floats(-10, 1e9), delays, delays)
def test_every_wait_is_bounded_and_honours_retry_after(
    made: int, jitter: float, asked: float | None, first: float, longest: float
) -> None:
    policy = RetryPolicy(first_delay_s=first, max_delay_s=longest)
    delay = policy.delay_s(failure(retry_after_s=asked), made, jitter)
    assert 0 < delay <= 1.5 * longest
    assert delay >= min(asked or 0.0, longest)
    assert delay >= 0.5 * min(first, longest)


@given(jitters, delays)
def test_waits_never_shrink_from_one_attempt_to_the_next(jitter: float, first: float) -> None:
    policy = RetryPolicy(first_delay_s=first)
    waits = [policy.delay_s(failure(), made, jitter) for made in range(1, 30)]
    assert waits == sorted(waits)


@pytest.mark.parametrize("odd", [float("nan"), float("-inf"), -5.0, 0.0])
def test_a_retry_after_that_makes_no_sense_is_ignored(odd: float) -> None:
    assert RetryPolicy(first_delay_s=2).delay_s(failure(retry_after_s=odd), 1, 0.5) == 2.0


def test_an_attempt_number_in_the_thousands_still_has_a_wait() -> None:
    assert RetryPolicy(max_attempts=5000).delay_s(failure(), 2000, 0.5) == 60.0


# --- the budget ------------------------------------------------------------------------------------------------------


def test_small_runs_may_always_retry_a_hundred_times_and_large_ones_their_share() -> None:
    policy = RetryPolicy(budget_share=0.5)
    assert [policy.budget(requested) for requested in (0, 1, 200, 201, 1000)] == [100, 100, 100, 100, 500]
    assert RetryPolicy(budget_share=0.0).budget(10**6) == 100


@given(st.integers(0, 10**9), st.floats(-1, 10))
def test_the_budget_is_never_negative_and_grows_with_the_run(requested: int, share: float) -> None:
    policy = RetryPolicy(budget_share=share)
    assert policy.budget(requested) >= 100
    if share >= 0:
        assert policy.budget(requested * 2) >= policy.budget(requested)


# --- the circuit breaker: waiting for what is down --------------------------------------------------------------------


def tripped(now: float = 0.0, *, give_up_after_s: float = 600.0, kind: str = "model_unreachable") -> CircuitBreaker:
    """The breaker of an agent whose policy has just been found to be down."""
    breaker = CircuitBreaker(give_up_after_s=give_up_after_s)
    for _ in range(8):
        breaker.record_failure("a", failure(kind, endpoint="http://policy/v1"), now)
    return breaker


def test_an_agent_nobody_heard_of_may_start() -> None:
    breaker = CircuitBreaker(give_up_after_s=600)
    assert breaker.may_start("a", 0.0)
    assert breaker.give_up_reason("a") is None
    assert not breaker.open_for_s(0.0)
    assert not breaker.reasons()


@pytest.mark.parametrize(
    "kind", ["model_unreachable", "model_overloaded", "environment_unreachable", "agent_unreachable"]
)
def test_eight_failures_to_reach_it_in_a_row_pause_an_agent(kind: str) -> None:
    breaker = CircuitBreaker(give_up_after_s=600)
    for _ in range(7):
        breaker.record_failure("a", failure(kind), 10.0)
    assert breaker.may_start("a", 10.0)
    breaker.record_failure("a", failure(kind), 10.0)
    assert not breaker.may_start("a", 10.0)
    assert breaker.open_for_s(15.0) == {"a": 5.0}


def test_other_agents_go_on_while_one_is_paused() -> None:
    breaker = tripped()
    assert not breaker.may_start("a", 0.5)
    assert breaker.may_start("b", 0.5)


@pytest.mark.parametrize("kind", ["model_timeout", "tool_error", "agent_rejected"])
def test_another_kind_of_failure_in_between_shows_that_it_can_be_reached(kind: str) -> None:
    breaker = CircuitBreaker(give_up_after_s=600)
    for _ in range(3):
        for _ in range(7):
            breaker.record_failure("a", failure("model_unreachable"), 1.0)
        breaker.record_failure("a", failure(kind), 1.0)
    assert breaker.may_start("a", 1.0)
    assert breaker.open_for_s(1.0) == {}


def test_after_the_pause_one_rollout_looks_how_things_are() -> None:
    breaker = tripped(100.0)
    assert not breaker.may_start("a", 100.9)
    assert breaker.may_start("a", 101.0)
    assert not breaker.may_start("a", 101.0)
    assert not breaker.may_start("a", 500.0)  # it has not come back yet


def test_a_scored_probe_opens_the_gate_for_all() -> None:
    breaker = tripped(100.0)
    assert breaker.may_start("a", 101.0)
    breaker.record_scored("a")
    assert all(breaker.may_start("a", 101.5) for _ in range(20))
    assert breaker.open_for_s(101.5) == {}


def test_a_probe_that_reaches_it_and_fails_otherwise_opens_the_gate_too() -> None:
    breaker = tripped(100.0)
    assert breaker.may_start("a", 101.0)
    breaker.record_failure("a", failure("verifier_error"), 102.0)
    assert all(breaker.may_start("a", 102.0) for _ in range(20))


def test_pauses_double_up_to_half_a_minute_while_it_stays_down() -> None:
    breaker = tripped(0.0, give_up_after_s=10_000)
    now, pauses = 0.0, []
    for _ in range(9):
        began = now
        while not breaker.may_start("a", now):
            now += 0.5
        pauses.append(now - began)
        breaker.record_failure("a", failure("model_unreachable"), now)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30, 30]


def test_stragglers_that_fail_during_a_pause_do_not_prolong_it() -> None:
    breaker = tripped(0.0)
    for _ in range(50):
        breaker.record_failure("a", failure("model_unreachable"), 0.5)
    assert breaker.may_start("a", 1.0)


def test_pauses_begin_short_again_after_a_score() -> None:
    breaker = tripped(0.0)
    for now in (1.0, 3.0, 7.0):
        assert breaker.may_start("a", now)
        breaker.record_failure("a", failure("model_unreachable"), now)
    assert not breaker.may_start("a", 8.0)
    breaker.record_scored("a")
    for _ in range(8):
        breaker.record_failure("a", failure("model_unreachable"), 20.0)
    assert not breaker.may_start("a", 20.9)
    assert breaker.may_start("a", 21.0)


# --- the circuit breaker: giving up -----------------------------------------------------------------------------------


def test_what_stays_down_longer_than_allowed_is_given_up_with_the_endpoint_named() -> None:
    breaker = tripped(0.0, give_up_after_s=60)
    breaker.record_failure("a", failure("model_unreachable", "refused", endpoint="http://policy/v1"), 60.0)
    assert breaker.give_up_reason("a") is None
    breaker.record_failure("a", failure("model_unreachable", "refused", endpoint="http://policy/v1"), 61.0)
    assert breaker.give_up_reason("a") == "http://policy/v1 has been unreachable for 61 s: refused"
    assert breaker.reasons() == {"a": "http://policy/v1 has been unreachable for 61 s: refused"}
    assert not breaker.may_start("a", 10_000.0)


def test_time_down_is_counted_from_the_last_sign_of_life() -> None:
    breaker = tripped(0.0, give_up_after_s=60)
    breaker.record_scored("a")
    for _ in range(8):
        breaker.record_failure("a", failure("model_unreachable"), 1000.0)
    assert breaker.open_for_s(1010.0) == {"a": 10.0}
    assert breaker.give_up_reason("a") is None


def test_five_failures_on_the_configuration_are_enough_to_give_up() -> None:
    breaker = CircuitBreaker(give_up_after_s=600)
    for number in range(5):
        assert breaker.may_start("a", 0.0)
        assert breaker.give_up_reason("a") is None
        breaker.record_failure("a", failure("model_auth", f"wrong key {number}"), 0.0)
    assert breaker.give_up_reason("a") == "the first 5 attempts of a failed on the configuration: wrong key 4"
    assert not breaker.may_start("a", 0.0)


def test_twenty_failures_of_kinds_that_do_not_pass_are_enough_to_give_up() -> None:
    breaker = CircuitBreaker(give_up_after_s=600)
    for number in range(20):
        assert breaker.give_up_reason("a") is None
        breaker.record_failure("a", failure("verifier_error" if number % 4 else "agent_rejected", "boom"), 0.0)
    assert breaker.give_up_reason("a") == (
        "the first 20 attempts of a all failed (15 × verifier_error, 5 × agent_rejected): boom"
    )


@pytest.mark.parametrize("kind", ["model_auth", "verifier_error"])
def test_an_agent_that_scored_once_is_not_hopeless(kind: str) -> None:
    breaker = CircuitBreaker(give_up_after_s=600)
    breaker.record_scored("a")
    for _ in range(200):
        breaker.record_failure("a", failure(kind), 0.0)
    assert breaker.give_up_reason("a") is None
    assert breaker.may_start("a", 0.0)


@pytest.mark.parametrize("kind", ["model_timeout", "rollout_timeout", "judge_failed", "worker_died"])
def test_one_failure_that_may_pass_by_itself_keeps_hope(kind: str) -> None:
    breaker = CircuitBreaker(give_up_after_s=600)
    breaker.record_failure("a", failure(kind), 0.0)
    for _ in range(100):
        breaker.record_failure("a", failure("verifier_error"), 0.0)
    assert breaker.give_up_reason("a") is None


def test_giving_up_one_agent_leaves_the_others_alone() -> None:
    breaker = CircuitBreaker(give_up_after_s=600)
    for _ in range(5):
        breaker.record_failure("a", failure("model_not_found"), 0.0)
    assert not breaker.may_start("a", 0.0)
    assert breaker.may_start("b", 0.0)
    assert set(breaker.reasons()) == {"a"}


happenings = st.lists(
    st.tuples(
        st.sampled_from(["scored", "start", "model_auth", "verifier_error", "model_timeout"])
        | st.just("model_unreachable"),
        st.floats(0, 40),
        st.integers(1, 10),
    ),
    min_size=1,
    max_size=30,
)


@given(happenings)
def test_whatever_happens_the_answers_agree_with_each_other(happened: list[tuple[str, float, int]]) -> None:
    breaker = CircuitBreaker(give_up_after_s=60)
    now, probes, hopeless = 0.0, 0, False
    for what, later, times in happened:
        now += later
        for _ in range(times):
            if what == "start":
                was_paused = "a" in breaker.open_for_s(now)
                probes += breaker.may_start("a", now) and was_paused
                assert probes <= 1  # while something is down, one rollout at a time looks
                continue
            probes = 0
            if what == "scored":
                breaker.record_scored("a")
            else:
                breaker.record_failure("a", failure(what), now)
        assert all(seconds >= 0 for seconds in breaker.open_for_s(now).values())
        assert (breaker.give_up_reason("a") is not None) == ("a" in breaker.reasons())
        assert not hopeless or "a" in breaker.reasons()  # given up is for good
        hopeless = "a" in breaker.reasons()
        assert not hopeless or not breaker.may_start("a", now + 1e6)


def test_an_outage_of_half_a_day_is_waited_out() -> None:
    breaker = tripped(0.0, give_up_after_s=1e9)
    for number in range(1, 1500):
        assert breaker.may_start("a", 30.0 * number)
        breaker.record_failure("a", failure("model_unreachable"), 30.0 * number)
    breaker.record_scored("a")
    assert breaker.may_start("a", 30.0 * 1500)


# --- the circuit breaker in the engine --------------------------------------------------------------------------------


class HopelessAgent:
    """Refuses every rollout of agent `a`, scores those of `b`."""

    def __init__(self) -> None:
        self.signals = Signals()
        self.longest_lag_s = 0.0

    async def attempt(self, item: WorkItem, timeout_s: float) -> Outcome:
        await asyncio.sleep(0)
        if item.agent == "a":
            return Failed(failure("agent_rejected"), 0.0, 0.0)
        return Scored(item.line, 1.0, 0.0)


async def outcome_of(folder: Path, rows_of_a: int, agent_limits: dict[str, int]) -> tuple[RunState, Counts]:
    """Rows of a hopeless agent, then one of another; a run that waits for the first one ends this test."""
    base = {"responses_create_params": {"input": "q"}}
    rows = [{**base, "n": n, "agent_ref": {"name": "a"}} for n in range(rows_of_a)]
    source = write_jsonl(folder / "in.jsonl", [*rows, {**base, "agent_ref": {"name": "b"}}])
    paths = RunPaths(folder / "x.jsonl")
    prepared = prepare_run(RunOptions(source=source, output=paths.output), ["a", "b"], lambda _: [])
    async with FileRunStore(paths, prepared.manifest, max_attempts=3) as store:
        options = EngineOptions(concurrency=8, agent_limits=agent_limits)
        engine = Engine(store, HopelessAgent(), options, lambda _: None, ["a", "b"])
        async with asyncio.timeout(300):
            state = await engine.run()
        return state, store.counts()


async def test_an_agent_that_is_given_up_does_not_keep_the_others_from_their_rows(tmp_path: Path) -> None:
    state, counts = await outcome_of(tmp_path, 5000, {})
    assert (state, counts.scored) == (RunState.INCOMPLETE, 1)
    assert counts.failed["agent_rejected"] < 40


async def test_rows_that_wait_for_an_agent_that_is_given_up_do_not_stop_the_run(tmp_path: Path) -> None:
    state, counts = await outcome_of(tmp_path, 5000, {"a": 3})
    assert (state, counts.scored) == (RunState.INCOMPLETE, 1)
