"""Doctor's judgement of what a running collection waits for: hangs are found, slow and new runs are not blamed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from gymnast.doctor.facts import EndpointActivity, Facts, ProcessFacts
from gymnast.doctor.rules import live, live_processes
from gymnast.doctor.waits import EndpointState, judge_endpoint
from gymnast.types.failure import FailureKind
from gymnast.wire.inference_metrics import Activity, parse_activity

URL = "http://gpu:8000/v1"


def status(
    waits: list[float],
    *,
    scored: int = 0,
    mean_s: float | None = None,
    longest_s: float = 0.0,
    settled_s: float | None = None,
    seconds: float = 100.0,
    stage: str = "model",
    **more: Any,
) -> dict[str, Any]:
    """A status as the control socket sends it, with attempts that have been in their stage for so long."""
    oldest = [
        {
            "key": f"{index}:0",
            "agent": "a",
            "attempt": 0,
            "stage": stage,
            "seconds": wait,
            "in_stage_s": wait,
            "instance": "policy_model",
            "endpoint": URL if stage == "model" else "",
        }
        for index, wait in enumerate(sorted(waits, reverse=True)[:10])
    ]
    base = {
        "run": "x",
        "state": "running",
        "requested": 1000,
        "scored": scored,
        "failed": {},
        "owed": 1000 - scored,
        "in_flight": len(waits),
        "limit": len(waits) or 8,
        "per_second": scored / seconds,
        "seconds": seconds,
        "oldest": oldest,
        "out_of_reach_s": {},
        "loop_lag_s": 0.0,
        "longest_lag_s": 0.0,
        "model_calls": scored,
        "retried": {},
        "retried_calls": {},
        "rejections": 0,
        "is_held": False,
        "longest_scored_s": longest_s,
        "since_settled_s": settled_s,
        "shortest_wait_s": min(waits, default=None),
        "this_invocation": {"scored": scored, "mean_seconds": mean_s},
    }
    return {**base, **more}


def vllm(running: float, waiting: float, tokens: float, new: float) -> EndpointActivity:
    before, after = Activity(running, waiting, tokens), Activity(running, waiting, tokens + new)
    return EndpointActivity(URL, answers=True, before=before, after=after, seconds=5.0)


SILENT = EndpointActivity(URL, answers=False, detail="no answer within 10 s")
NO_METRICS = EndpointActivity(URL, answers=True)
SGLANG = EndpointActivity(
    URL, answers=True, before=Activity(4, 0, None, 80.0), after=Activity(4, 0, None, 75.0), seconds=1.0
)


@dataclass(frozen=True)
class Case:
    """A moment of a run, and what is to be said about it."""

    name: str
    expected: str
    live: dict[str, Any]
    activity: tuple[EndpointActivity, ...] = ()
    stuck_after_s: float | None = None


CASES = [
    Case("a hang after a few were scored", "stuck", status([92.0] * 64, scored=9, mean_s=1, settled_s=92), (), 10),
    Case("a hang after one was scored", "stuck", status([90.0] * 64, scored=1, mean_s=2, settled_s=91), (), 10),
    Case("a hang from the start", "stuck", status([90.0] * 3), (), 10),
    Case("a hang after a full turnover", "stuck", status([90.0] * 8, scored=40, mean_s=2, longest_s=9, settled_s=91)),
    Case("a hang in verify", "stuck", status([90.0] * 8, stage="verify", scored=40, mean_s=2, settled_s=91)),
    Case("a hang of tools", "stuck", status([30.0] * 8, stage="tool", scored=2, mean_s=1, settled_s=30), (), 10),
    Case(
        "only the slowest tenth",
        "stuck",
        status([300.0] * 6 + [1.0] * 58, scored=900, mean_s=2, longest_s=12, settled_s=0.1),
    ),
    Case(
        "one of 64, soon after the start",
        "stuck",
        status([80.0] + [1.0] * 63, scored=30, mean_s=2, longest_s=6, settled_s=0.1),
        (),
        10,
    ),
    Case(
        "deadlines end waits and nothing is scored",
        "stuck",
        status([25.0] * 8, settled_s=26, failed={"model_timeout": 16}, seconds=600),
        (),
        10,
    ),
    Case("the engine hangs", "stuck", status([100.0] * 8), (vllm(8, 0, 5000, 0),)),
    Case("the engine starts nothing", "stuck", status([100.0] * 8), (vllm(0, 8, 5000, 0),)),
    Case("requests got lost on the way", "stuck", status([100.0] * 8), (vllm(0, 0, 5000, 0),)),
    Case("the server is stopped", "stuck", status([100.0] * 8), (SILENT,)),
    Case("half an hour without anything", "stuck", status([1900.0] * 8, seconds=1900), (NO_METRICS,)),
    Case(
        "lost while the server works for others",
        "stuck",
        status([400.0] + [2.0] * 7, scored=500, mean_s=3, longest_s=20, settled_s=0.2),
        (vllm(7, 0, 5000, 900),),
    ),
    # not faults
    Case("it has just started", "", status([3.0] * 64, seconds=3)),
    Case("nothing in flight yet", "", status([], seconds=1)),
    Case("long answers at work", "slow", status([1100.0] * 64, seconds=1100), (vllm(64, 0, 1e6, 4000),)),
    Case("long answers, SGLang", "slow", status([1100.0] * 4, seconds=1100), (SGLANG,)),
    Case("long answers, impatient user", "slow", status([50.0] * 64, seconds=50), (vllm(64, 0, 1e6, 4000),), 10),
    Case("a full queue", "slow", status([200.0] * 64, scored=5, mean_s=90, settled_s=70), (vllm(8, 56, 1e6, 300),)),
    Case("long answers without metrics", "undecided", status([1100.0] * 64, seconds=1100), (NO_METRICS,)),
    Case(
        "short ones finished first, long ones remain",
        "undecided",
        status([500.0] * 50, scored=14, mean_s=8, longest_s=20, settled_s=480, seconds=500),
        (NO_METRICS,),
    ),
    Case("tests that take minutes", "undecided", status([300.0] * 4, stage="verify", seconds=310)),
    Case(
        "usual long rollouts",
        "saturated",
        status([300.0, 200.0, 100.0, 61.0], scored=80, mean_s=240, longest_s=900, settled_s=20, seconds=5000),
    ),
    Case("full load", "saturated", status([0.4, 0.2, 0.1], scored=500, mean_s=0.3, longest_s=2, settled_s=0.1)),
    Case(
        "most calls were fine, now all of them are refused",
        "calls_repeated",
        status([9.0] * 3, scored=300, mean_s=0.2, longest_s=0.4, settled_s=9, retried_calls={"model_overloaded": 4}),
    ),
    Case("no rollout for long", "", status([9.0] * 3, scored=300, mean_s=0.2, longest_s=0.4, settled_s=9)),
    Case("many turns, each of them short", "", status([2.0] * 8, seconds=1500)),
    Case("paused by hand", "paused", status([], scored=50, mean_s=1, longest_s=2, settled_s=4000, state="paused")),
    Case("a consumer that is slow", "paused", status([], scored=50, settled_s=4000, is_held=True)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_wait_is_called_what_it_is(case: Case) -> None:
    facts = Facts("x", 0.0, live=case.live, activity=case.activity, stuck_after_s=case.stuck_after_s)
    findings = [finding for rule in live.RULES if (finding := rule.apply(facts)) is not None]
    notes = [note for rule in live.NOTES if (note := rule(facts)) is not None]
    expected = [case.expected] if case.expected else []
    assert [*(finding.id for finding in findings), *(note.id for note in notes)] == expected


def test_a_hang_says_what_the_metrics_showed() -> None:
    facts = Facts("x", 0.0, live=status([100.0] * 8), activity=(vllm(8, 2, 5000, 0),))
    finding = live.attempts_stuck.apply(facts)
    assert finding is not None
    assert finding.symptom.startswith("all 8 rollouts in flight in stage model")
    assert "its engine hangs" in finding.cause
    assert any("8 requests running, 2 waiting, 0 tokens in 5.0 s" in item.what for item in finding.evidence)


@pytest.mark.parametrize(
    ("retried", "calls", "is_found"),
    [
        ({"model_error": 50}, 100, True),
        ({"model_timeout": 12, "model_rate_limited": 3}, 40, True),
        ({FailureKind.MODEL_RATE_LIMITED.value: 70}, 100, True),
        ({FailureKind.MODEL_RATE_LIMITED.value: 30}, 100, False),  # how the best concurrency is found
        ({"model_error": 3}, 6, False),  # too few to say
        ({"model_unreachable": 40}, 5000, False),
        ({}, 100, False),
    ],
)
def test_calls_that_fail_behind_retries(retried: dict[str, int], calls: int, *, is_found: bool) -> None:
    facts = Facts("x", 0.0, live=status([1.0], scored=50, settled_s=0.1, model_calls=calls, retried_calls=retried))
    assert (live.calls_retried.apply(facts) is not None) == is_found


@pytest.mark.parametrize(
    ("state", "unresponsive", "expected"),
    [
        ("T", "the process is stopped", ["process_stopped"]),
        ("t", "the process is stopped", ["process_stopped"]),
        ("R", "the run does not respond", ["loop_blocked"]),
        ("S", "the run does not respond", ["loop_blocked"]),
        ("D", "the run does not respond", ["disk_wait"]),
        ("D", "", []),
        ("S", "", []),
    ],
)
def test_processes(state: str, unresponsive: str, expected: list[str]) -> None:
    processes = (ProcessFacts(7, state, "gymnast collect", is_collector=True), ProcessFacts(8, "S", "worker"))
    facts = Facts("x", 0.0, processes=processes, unresponsive=unresponsive)
    findings = [finding for rule in live_processes.RULES if (finding := rule.apply(facts)) is not None]
    assert [finding.id for finding in findings] == expected


def test_a_stopped_worker_is_named() -> None:
    processes = (ProcessFacts(7, "S", "gymnast collect", is_collector=True), ProcessFacts(8, "T", "worker"))
    finding = live_processes.process_stopped.apply(Facts("x", 0.0, processes=processes))
    assert finding is not None
    assert "pid 8" in finding.symptom
    assert "kill -CONT 8" in finding.action


@pytest.mark.parametrize(("before", "now", "is_found"), [(3.0, 2.5, True), (3.0, 0.0, False), (0.0, 3.0, False)])
def test_a_loop_that_is_late_twice_is_blocked(before: float, now: float, *, is_found: bool) -> None:
    facts = Facts("x", 0.0, live=status([1.0], loop_lag_s=now, loop_lag_before_s=before))
    assert (live_processes.loop_lags.apply(facts) is not None) == is_found


VLLM_PAGE = """# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 100.0
vllm:generation_tokens_total{engine="0",model_name="m"} 1.5e+06
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e+09
"""


def test_metrics_pages() -> None:
    assert parse_activity(VLLM_PAGE) == Activity(4.0, 2.0, 1_500_100.0)
    page = 'sglang:num_running_reqs{m="a"} 2.0\nsglang:num_queue_reqs{m="a"} 1.0\nsglang:gen_throughput{m="a"} 55.5\n'
    assert parse_activity(page) == Activity(2.0, 1.0, None, 55.5)
    assert parse_activity("process_cpu_seconds_total 3\n") is None


def test_a_server_whose_counter_does_not_move_is_not_called_stalled() -> None:
    quiet = Activity(4, 0, None, 0.0)
    assert judge_endpoint(EndpointActivity(URL, answers=True, before=quiet, after=quiet)) is EndpointState.UNKNOWN
