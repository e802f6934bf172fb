"""Every summary is of the whole run, whatever this invocation did; truncated rollouts are counted, masked or failed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gymnast
from gymnast.rollouts.tally import Tally, overall_stats, stats_of, sum_totals
from gymnast.store.scored_records import facts_of_record, parse_scored
from gymnast.train.sample_reader import sample_of
from gymnast.types.events import RunFinished
from gymnast.types.failure import KINDS, FailureKind
from gymnast.types.totals import AgentStats, RolloutFacts
from gymnast.types.truncation import Truncation, truncation_of
from tests.helpers.behaving_policy import CONFIGS, NAMES, POLICY, TOOL, behave, write_sums
from tests.helpers.command_functions import invoke_command
from tests.helpers.commands import Outcome
from tests.helpers.jsonl import read_jsonl, write_jsonl


class Folder:
    """A folder with a run, worked on by one command after the other."""

    def __init__(self, path: Path, rows: int = 10) -> None:
        self.path = path
        self.output = path / "x.jsonl"
        write_sums(path / "in.jsonl", rows)
        behave(path)

    def gymnast(self, *arguments: str) -> Outcome:
        return invoke_command(self.path, "gymnast", *arguments)

    def collect(self, *arguments: str) -> Outcome:
        return self.gymnast("collect", *NAMES, "-i", "in.jsonl", "-o", "x.jsonl", *arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def table(text: str) -> list[dict[str, str]]:
    """The rows of the closing table."""
    lines = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in text.splitlines() if line[:1] in "│┃"]
    return [dict(zip(lines[0], cells, strict=True)) for cells in lines[1:]]


def only_row(outcome: Outcome) -> dict[str, str]:
    (row,) = table(outcome.out)
    return row


def finished_event(outcome: Outcome) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(outcome.out.splitlines()[-1])
    assert event["type"] == "run_finished"
    return event


# --- resumed runs ----------------------------------------------------------------------------------------------------


def test_after_resume_the_closing_table_is_of_the_run_and_not_of_this_invocation(folder: Folder) -> None:
    behave(folder.path, "wrong", t0="right", t1="right", t8="rejected", t9="rejected")
    assert only_row(folder.collect("--max-failed", "2")) | {"seconds": ""} == {
        "agent": "arithmetic_simple_agent",
        "scored": "8",
        "failed": "2",
        "retried": "0",
        "truncated": "0",
        "mean reward": "0.250",
        "tokens out": "10.0",
        "seconds": "",
    }
    behave(folder.path, "wrong")
    outcome = folder.collect("--resume", "--retry-failed")
    row = only_row(outcome)
    assert (row["scored"], row["failed"], row["retried"], row["mean reward"]) == ("10", "0", "2", "0.200")
    assert "2 scored, mean reward 0.000 by this invocation; 8 settled before it" in outcome.out


def test_resuming_a_finished_run_does_not_print_an_empty_table(folder: Folder) -> None:
    behave(folder.path, t0="wrong")
    first = only_row(folder.collect())
    outcome = folder.collect("--resume")
    assert only_row(outcome) == first
    assert "0 scored by this invocation; 10 settled before it" in outcome.out


def test_the_finished_event_is_of_the_run_and_says_what_this_invocation_did(folder: Folder) -> None:
    behave(folder.path, t0="wrong", t9="rejected")
    folder.collect("--max-failed", "1")
    behave(folder.path)
    event = finished_event(folder.collect("--resume", "--retry-failed", "--json"))
    assert event["agents"]["arithmetic_simple_agent"]["mean_reward"] == 0.9
    assert (event["settled_before"], event["this_invocation"]["scored"]) == (9, 1)
    assert event["this_invocation"]["mean_reward"] == 1.0


async def test_the_librarys_last_event_is_of_the_run(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.path)
    names: dict[str, Any] = {"environments": ["arithmetic"], "config_paths": [CONFIGS], "overrides": [POLICY]}
    behave(folder.path, t0="wrong", t9="rejected")
    first = [record async for record in gymnast.collect("in.jsonl", "x.jsonl", max_failed=1, **names)]
    assert len(first) == 10
    behave(folder.path)
    events: list[Any] = []
    again = gymnast.collect("in.jsonl", "x.jsonl", resume=True, retry_failed=True, on_event=events.append, **names)
    assert len([record async for record in again]) == 10
    assert isinstance(events[-1], RunFinished)
    assert events[-1].agents["arithmetic_simple_agent"].mean_reward == 0.9


def test_after_a_crash_the_totals_come_from_the_records(folder: Folder) -> None:
    """The manifest may lag, the last line may be torn, and rewards may be negative."""
    folder.collect()
    rows = read_jsonl(folder.output)
    for number, row in enumerate(rows):
        row["reward"] = -1.5 if number else 2
    write_jsonl(folder.output, rows)
    data = folder.output.read_bytes()
    folder.output.write_bytes(data[: -len(data.splitlines()[-1]) // 2])
    behave(folder.path, "wrong")
    row = only_row(folder.collect("--resume"))
    assert (row["scored"], row["mean reward"]) == ("10", "-1.000")


def test_status_of_a_finished_run_shows_reward_and_truncation(folder: Folder) -> None:
    behave(folder.path, t0="wrong", t1="cut")
    folder.collect()
    assert (
        "arithmetic_simple_agent: 10 scored, mean reward 0.800, 1 truncated (10.0%)"
        in folder.gymnast("status", "x.jsonl").out
    )
    status = folder.gymnast("status", "x.jsonl", "--json").json()
    assert status["agents"]["arithmetic_simple_agent"]["mean_reward"] == 0.8


def test_rows_that_could_not_be_run_are_in_the_table(folder: Folder) -> None:
    with (folder.path / "in.jsonl").open("a") as source:
        source.write("not JSON\n")
    outcome = folder.collect("--skip-bad-rows", "--max-failed", "1")
    assert {row["agent"]: row["failed"] for row in table(outcome.out)} == {
        "no agent": "1",
        "arithmetic_simple_agent": "0",
    }
    assert only_failed(folder.collect("--skip-bad-rows", "--max-failed", "1", "--resume")) == 1


def only_failed(outcome: Outcome) -> int:
    return sum(int(row["failed"]) for row in table(outcome.out))


def test_a_record_of_an_unusual_form_is_counted_and_not_taken_for_damage(folder: Folder) -> None:
    folder.collect()
    rows = read_jsonl(folder.output)
    rows[0]["response"] = "text"
    rows[1]["agent_ref"] = None
    rows[2]["mask_sample"] = "yes"
    rows[3]["response"] = {"usage": 7, "output": {}, "incomplete_details": "cut"}
    rows[4] |= {"terminated": "a", "truncated": [1]}
    write_jsonl(folder.output, rows)
    outcome = folder.collect("--resume")
    assert outcome.code == 0
    assert sum(int(row["scored"]) for row in table(outcome.out)) == 10
    assert "damaged" not in outcome.err


def test_a_narrow_terminal_gets_lines_instead_of_a_table_of_ellipses(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    from gymnast.cli import progress

    monkeypatch.setattr(progress, "make_console", lambda: Console(width=40))
    behave(folder.path, t1="cut")
    out = folder.collect().out
    assert "arithmetic_simple_agent: scored 10, failed 0, retried 0, truncated 1 (10.0%), mean reward 0.900" in out
    assert "…" not in out


# --- totals ----------------------------------------------------------------------------------------------------------

FACTS = st.builds(
    RolloutFacts,
    st.sampled_from(["a", "b", ""]),
    st.integers(-3, 3).map(float),
    st.none() | st.integers(0, 100),
    st.none() | st.sampled_from(Truncation),
    st.booleans(),
    st.none() | st.integers(0, 9).map(float),
)


@given(st.lists(FACTS), st.lists(FACTS))
def test_totals_of_parts_add_up_to_those_of_the_whole(some: list[RolloutFacts], more: list[RolloutFacts]) -> None:
    whole, parts = Tally(), (Tally(), Tally())
    for facts, part in [*((facts, parts[0]) for facts in some), *((facts, parts[1]) for facts in more)]:
        whole.add_scored(facts)
        part.add_scored(facts)
    assert sum_totals(part.totals() for part in parts) == whole.totals()
    assert Tally(whole.totals()).totals() == whole.totals()
    assert overall_stats(whole.totals()).scored == len(some) + len(more)


def test_what_failed_and_is_owed_again_counts_as_retried() -> None:
    tally = Tally()
    for _ in range(3):
        tally.add_failure("a", "model_error")
    tally.fail("a", "model_error")
    assert stats_of(tally.totals())["a"] == AgentStats(0, None, 1, 2)
    tally.unfail("a", "model_error")
    assert stats_of(tally.totals())["a"] == AgentStats(0, None, 0, 3)


def test_no_mean_counts_masked_rollouts() -> None:
    tally = Tally()
    tally.add_scored(RolloutFacts("a", 1.0))
    tally.add_scored(RolloutFacts("a", 0.0, masked=True))
    assert stats_of(tally.totals())["a"] == AgentStats(2, 1.0, 0, 0, masked=1)


# --- truncated rollouts ----------------------------------------------------------------------------------------------

CALL, OUTPUT, MESSAGE = {"type": "function_call"}, {"type": "function_call_output"}, {"type": "message"}


@pytest.mark.parametrize(
    ("record", "truncated"),
    [
        ({"response": {"output": [MESSAGE]}}, None),
        ({"response": {"output": [MESSAGE], "incomplete_details": {"reason": "max_output_tokens"}}}, "length"),
        ({"response": {"incomplete_details": {"reason": "content_filter"}}}, None),
        ({"response": {"incomplete_details": {}}}, None),
        ({"response": {"incomplete_details": {"reason": None}}}, "length"),
        ({"response": {"incomplete_details": {"reason": "max_model_calls"}}}, "agent_limit"),
        ({"response": {"incomplete_details": {"reason": "timeout"}}}, "agent_limit"),
        ({"response": {"output": [CALL, OUTPUT, CALL]}}, "agent_limit"),
        ({"response": {"output": [CALL, OUTPUT, MESSAGE]}}, None),
        ({"response": {"output": [CALL, OUTPUT]}}, None),
        ({"response": {"output": [CALL]}}, None),  # where the call is the answer, every rollout ends like this
        ({"terminated": False, "truncated": True}, "agent_limit"),
        ({"terminated": True, "truncated": True}, None),
        ({"truncated": True}, None),  # an author's own field
        ({"response": {"output": "function_call_output"}}, None),
        ({"response": None}, None),
    ],
)
def test_which_records_are_of_truncated_rollouts(record: dict[str, Any], truncated: str | None) -> None:
    assert truncation_of(record) == truncated
    line = orjson.dumps({**record, "reward": 1.0, "_ng_task_index": 0, "_ng_rollout_index": 0})
    parsed = parse_scored(line)
    assert parsed is not None
    assert parsed.facts == facts_of_record(json.loads(line))
    assert parsed.facts.truncated == truncated


def test_truncated_answers_are_visible_in_every_summary(folder: Folder) -> None:
    behave(folder.path, t1="cut", t2="cut", t3="filtered")
    assert only_row(folder.collect())["truncated"] == "2 (20.0%)"
    assert only_row(folder.collect("--resume"))["truncated"] == "2 (20.0%)"
    assert "truncated by a length or step limit: 2 (20.0%)" in folder.gymnast("profile", "x.jsonl").out
    assert folder.gymnast("profile", "x.jsonl", "--json").json()["truncated"] == 2
    assert "A 20.0%   B 20.0%" in folder.gymnast("compare", "x.jsonl", "x.jsonl").out
    folder.gymnast("report", "x.jsonl", "-o", "r.html")
    assert re.search(r"<dt>truncated</dt>\s*<dd>2</dd>", (folder.path / "r.html").read_text())


def test_a_rollout_that_reached_max_steps_is_truncated(folder: Folder) -> None:
    write_sums(folder.path / "in.jsonl", 3, tools=[TOOL])
    behave(folder.path, t1="calling")
    steps = "++arithmetic_simple_agent.responses_api_agents.simple_agent.max_steps=3"
    assert only_row(folder.collect(steps))["truncated"] == "1 (33.3%)"


def test_truncated_rollouts_are_masked_on_request(folder: Folder) -> None:
    behave(folder.path, t1="cut", t2="wrong")
    row = only_row(folder.collect("--truncated", "mask"))
    assert (row["scored"], row["truncated"], row["masked"]) == ("10", "1 (10.0%)", "1")
    assert row["mean reward"] == "0.889"
    masked = [line for line in folder.output.read_bytes().splitlines() if b'"mask_sample":true' in line]
    (sample,) = map(sample_of, masked)
    assert (sample.key, sample.is_trainable, sample.trained) == ((1, 0), False, 0)
    assert only_row(folder.collect("--truncated", "mask", "--resume"))["masked"] == "1"
    profile = folder.gymnast("profile", "x.jsonl", "--json").json()
    assert (profile["excluded"], profile["truncated"]) == (1, 1)
    assert round(profile["agents"][0]["mean_reward"]["value"], 3) == 0.889


def test_truncated_rollouts_fail_on_request_and_are_not_retried(folder: Folder) -> None:
    behave(folder.path, t1="cut")
    outcome = folder.collect("--truncated", "fail")
    assert outcome.code == 1
    assert "1 × truncated (layer config): raise max_output_tokens" in outcome.err
    (failure,) = read_jsonl(folder.path / "x_failures.jsonl")
    assert (failure["_ng_task_index"], failure["failure"]["kind"]) == (1, "truncated")
    assert failure["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert not KINDS[FailureKind.TRUNCATED].retryable
    assert "rollouts failed because they were truncated" in folder.gymnast("doctor", "x.jsonl").out
    behave(folder.path)
    assert only_row(folder.collect("--truncated", "fail", "--resume", "--retry-failed"))["scored"] == "10"


def test_a_run_whose_rollouts_all_are_truncated_is_not_given_up(tmp_path: Path) -> None:
    folder = Folder(tmp_path, 40)
    behave(folder.path, "cut")
    event = finished_event(folder.collect("--truncated", "fail", "--concurrency", "1", "--json"))
    assert (event["failed"], event["owed"]) == ({"truncated": 40}, 0)


def test_a_run_is_not_resumed_with_another_policy_for_truncated_rollouts(folder: Folder) -> None:
    folder.collect()
    outcome = folder.collect("--resume", "--truncated", "fail")
    assert outcome.code == 2
    assert "truncated" in outcome.err


@pytest.mark.parametrize("command", ["collect", "submit"])
def test_an_unknown_policy_for_truncated_rollouts_is_an_error(folder: Folder, command: str) -> None:
    outcome = folder.gymnast(command, *NAMES, "-i", "in.jsonl", "-o", "y.jsonl", "--truncated", "masc")
    assert outcome.code == 2
    assert "expected score, mask or fail for truncated rollouts, got 'masc'" in outcome.err
    assert "did you mean 'mask'" in outcome.err
    assert not (folder.path / "y_run.json").exists()


async def test_a_collector_masks_truncated_rollouts(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.path)
    behave(folder.path, "cut")
    names: dict[str, Any] = {"environments": ["arithmetic"], "config_paths": [CONFIGS], "overrides": [POLICY]}
    async with gymnast.Collector(**names) as collector:
        rows = read_jsonl(folder.path / "in.jsonl")[:2]
        records = [record async for _, record in collector.run(rows, truncated="mask")]
    assert [record.data["mask_sample"] for record in records] == [True, True]


def test_ng_collect_rollouts_masks_truncated_rollouts(folder: Folder) -> None:
    behave(folder.path, t1="cut")
    configs = f"+config_paths=[resources_servers/arithmetic/configs/arithmetic.yaml,{CONFIGS}]"
    files = ("+input_jsonl_fpath=in.jsonl", "+output_jsonl_fpath=x.jsonl", "+agent_name=arithmetic_simple_agent")
    outcome = invoke_command(folder.path, "ng_collect_rollouts", configs, POLICY, *files, "+truncated=mask")
    assert only_row(outcome)["masked"] == "1"
    assert [row.get("mask_sample") for row in read_jsonl(folder.output)].count(True) == 1


def test_curriculum_drops_tasks_whose_rollouts_are_truncated(folder: Folder) -> None:
    behave(folder.path, t1="cut")
    folder.collect()
    folder.gymnast("profile", "x.jsonl")
    keep = ("--keep", "hopeless,hard,medium,easy,saturated")
    arguments = ("curriculum", "x_reward_profiling.jsonl", "-o", "t.jsonl", *keep)
    assert folder.gymnast(*arguments).code == 0
    assert len(read_jsonl(folder.path / "t.jsonl")) == 10
    outcome = folder.gymnast(*arguments, "--max-truncated", "0.5")
    assert "1 tasks dropped" in outcome.out
    assert len(read_jsonl(folder.path / "t.jsonl")) == 9
