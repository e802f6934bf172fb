"""Files both ways: what NeMo Gym writes is read by profile, resume, re-verify and aggregate here, and what is written
here has the shapes that its readers expect (fields, names, sidecar, metrics), checked by readers of the test's own."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gymnast.compat import ng_aggregate, ng_collect
from gymnast.compat.ng_arguments import NgArguments
from gymnast.errors import DataError
from tests.helpers.commands import DEMO_POLICY
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl

AGENT = "mcqa_simple_agent"
CONFIG = f"+config_paths=[resources_servers/mcqa/configs/mcqa.yaml,{DEMO_POLICY}]"
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ask(*words: str) -> NgArguments:
    return NgArguments(words)


def collect(*words: str) -> int:
    return ng_collect.collect_rollouts(
        ask(CONFIG, "+input_jsonl_fpath=in.jsonl", "+output_jsonl_fpath=x.jsonl", f"+agent_name={AGENT}", *words)
    )


def profile(*words: str) -> int:
    files = ("+materialized_inputs_jsonl_fpath=x_materialized_inputs.jsonl", "+rollouts_jsonl_fpath=x.jsonl")
    return ng_collect.reward_profile(ask(*files, *words))


# --- written there, read here ----------------------------------------------------------------------------------------


def materialized(rows: list[Row], repeats: int) -> list[Row]:
    """Contract 3.3: agent_ref and the indexes at the end, repeats of a task one after the other."""
    return [
        {**row, "agent_ref": {"name": AGENT}, "_ng_task_index": task, "_ng_rollout_index": rollout}
        for task, row in enumerate(rows)
        for rollout in range(repeats)
    ]


def answered(row: Row, text: str) -> Row:
    """A Responses object as its model servers return it: every optional field is there, as null."""
    message = {
        "id": "msg_1",
        "content": [{"annotations": [], "text": text, "type": "output_text", "logprobs": None}],
        "role": "assistant",
        "status": "completed",
        "type": "message",
    }
    nulls = (
        "error incomplete_details instructions metadata temperature top_p background max_output_tokens max_tool_calls "
        "previous_response_id prompt reasoning service_tier status text top_logprobs truncation user conversation"
    )
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 40 + len(text), "output_tokens": len(text), "total_tokens": 40 + 2 * len(text), **details}
    fixed = {"id": "resp_1", "created_at": 1785000000.0, "model": "m", "object": "response", "output": [message]}
    fixed |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": usage}
    return {**fixed, **dict.fromkeys(nulls.split())}


def result(row: Row, text: str, reward: float) -> Row:
    """Contract 3.7, in the order of keys that was seen there."""
    params = {**dict.fromkeys(("instructions", "metadata", "temperature")), **row["responses_create_params"]}
    return {
        "responses_create_params": params,
        "response": answered(row, text),
        "reward": reward,
        "expected_answer": row["expected_answer"],
        "extracted_answer": text[-2:-1],
        "_ng_task_index": row["_ng_task_index"],
        "_ng_rollout_index": row["_ng_rollout_index"],
        "agent_ref": {"name": AGENT},
    }


def judge_failure(row: Row, text: str) -> Row:
    """Contract 1.1 and 3.7: a verify row with reward 0.0 that its class sends to the sidecar; no `failure` object."""
    classes = {"_ng_failure_class": "judge_failed", "_ng_failure_judge_error": "TimeoutError: judge"}
    return {**result(row, text, 0.0), **classes}


def right(row: Row) -> str:
    return f"The answer is \\boxed{{{row['expected_answer']}}}"


def write_theirs(repeats: int = 2) -> list[Row]:
    """A run of five tasks: done but for one rollout that was never tried and one whose judge failed. No manifest."""
    rows = example_rows("mcqa")
    write_jsonl(Path("in.jsonl"), rows)
    plan = materialized(rows, repeats)
    Path("x_materialized_inputs.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in plan))
    done = [result(row, right(row), 1.0) for row in reversed(plan[2:])]  # in order of completion, not of the plan
    Path("x.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in done))
    Path("x_failures.jsonl").write_bytes(orjson.dumps(judge_failure(plan[0], right(plan[0]))) + b"\n")
    return plan


def test_their_rollouts_are_profiled_to_the_documented_lines(capsys: pytest.CaptureFixture[str]) -> None:
    plan = write_theirs()
    with pytest.raises(DataError, match="2 of 10 rollouts have no result: 0:0, 0:1"):
        profile()
    assert profile("++allow_partial_rollouts=True") == 0
    output = capsys.readouterr().out
    assert "8/10 rollout rows (80.00%)" in output
    assert "1 × judge_failed" in output
    lines = read_jsonl(Path("x_reward_profiling.jsonl"))
    assert [line["_ng_task_index"] for line in lines] == [1, 2, 3, 4]  # a task without any result disappears
    assert lines[0]["sample"] == {key: value for key, value in plan[2].items() if not key.startswith("_ng_")}
    assert (lines[0]["mean/reward"], lines[0]["std/reward"], lines[0]["num_rollouts"]) == (1.0, 0.0, 2)


def test_their_interrupted_run_is_finished_by_resume() -> None:
    write_theirs()
    before = read_jsonl(Path("x.jsonl"))
    assert collect("+num_repeats=2", "+resume_from_cache=true") == 0
    after = read_jsonl(Path("x.jsonl"))
    assert after[:8] == before  # nothing of theirs is touched
    assert {(row["_ng_task_index"], row["_ng_rollout_index"]) for row in after[8:]} == {(0, 0), (0, 1)}
    again = {row["_ng_rollout_index"]: row.get("_ng_attempt_index") for row in after[8:]}
    assert again == {0: 1, 1: None}  # the judge's failure counts as an attempt
    assert profile() == 0


def test_a_torn_last_line_of_theirs_does_not_stop_the_resume() -> None:
    write_theirs()
    whole = Path("x.jsonl").read_bytes()
    Path("x.jsonl").write_bytes(whole[:-200])
    assert collect("+num_repeats=2", "+resume_from_cache=true") == 0
    assert len(read_jsonl(Path("x.jsonl"))) == 10
    assert Path("x.jsonl.damaged").exists()


def test_their_judge_failures_are_scored_again() -> None:
    write_theirs()
    words = ("+rollouts_jsonl_fpath=x.jsonl", "+output_jsonl_fpath=y.jsonl", "+judge_failed_only=true")
    assert ng_collect.reverify(ask(CONFIG, *words)) == 0
    rows = read_jsonl(Path("y.jsonl"))
    assert rows[:8] == read_jsonl(Path("x.jsonl"))
    assert (rows[8]["_ng_task_index"], rows[8]["_ng_rollout_index"], rows[8]["reward"]) == (0, 0, 1.0)
    assert "_ng_failure_class" not in rows[8]


def test_their_rollouts_are_scored_again_from_what_is_stored() -> None:
    write_theirs()
    plan, rows = read_jsonl(Path("x_materialized_inputs.jsonl")), read_jsonl(Path("x.jsonl"))
    write_jsonl(Path("x.jsonl"), [{**row, "reward": 0.5} for row in rows])
    words = ("+rollouts_jsonl_fpath=x.jsonl", "+output_jsonl_fpath=y.jsonl")
    assert ng_collect.reverify(ask(CONFIG, *words)) == 0
    scored = read_jsonl(Path("y.jsonl"))
    assert len(scored) == 8
    assert {row["reward"] for row in scored} == {1.0}
    assert len(plan) == 10


def test_their_shards_become_one_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    rows = example_rows("mcqa")
    plan = materialized(rows, 2)
    for shard in range(3):
        part = plan[shard::3]
        write_jsonl(
            Path(f"s-{shard}.jsonl"), [result(row, right(row), float(row["_ng_task_index"] > 1)) for row in part]
        )
        write_jsonl(Path(f"s-{shard}_materialized_inputs.jsonl"), part)
        write_jsonl(Path(f"s-{shard}_failures.jsonl"), [])
    words = ("+input_glob='s-*.jsonl'", "+output_jsonl_fpath=out/x.jsonl", CONFIG)
    assert ng_aggregate.aggregate_rollouts(ask(*words)) == 0
    merged = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in read_jsonl(Path("out/x.jsonl"))]
    assert merged == [(task, rollout) for task in range(5) for rollout in range(2)]
    assert read_jsonl(Path("out/x_materialized_inputs.jsonl")) == plan
    [metrics] = json.loads(Path("out/x_aggregate_metrics.json").read_text())
    assert metrics["key_metrics"]["mean/reward"] == 0.6
    assert [path.name for path in Path("out").iterdir() if path.name.startswith(".")] == []
    assert "10 from 3 files" in capsys.readouterr().out
    assert ng_aggregate.aggregate_rollouts(ask(*words)) == 0  # an earlier result is kept
    assert len(read_jsonl(Path("out/x_previous_1/x.jsonl"))) == 10


def test_shards_that_overlap_are_refused_and_metrics_alone_can_be_had(capsys: pytest.CaptureFixture[str]) -> None:
    plan = materialized(example_rows("mcqa"), 1)
    write_jsonl(Path("a.jsonl"), [result(row, right(row), 1.0) for row in plan])
    write_jsonl(Path("b.jsonl"), [result(plan[3], right(plan[3]), 1.0)])
    with pytest.raises(DataError, match="1 rollouts appear twice, for example 3:0"):
        ng_aggregate.aggregate_rollouts(ask("+input_glob='a.jsonl,b.jsonl'", "+output_jsonl_fpath=x.jsonl", CONFIG))
    assert not Path("x.jsonl").exists()
    words = ("+input_glob=a.jsonl", "+output_jsonl_fpath=x.jsonl", "+merge_shards=false", "+head_server.port=9")
    assert ng_aggregate.aggregate_rollouts(ask(*words)) == 0
    assert not Path("x.jsonl").exists()
    assert Path("x_aggregate_metrics.json").exists()
    assert "neither configured nor running" in capsys.readouterr().err


def test_environments_with_metrics_of_their_own_are_asked_for_them() -> None:
    rows = [
        {"response": {"output": []}, "reward": float(task == rollout), "level": "easy", "spelt": "x"}
        | {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "spelling_bee_agent"}}
        for task in range(2)
        for rollout in range(2)
    ]
    write_jsonl(Path("a.jsonl"), rows)
    words = ("+input_glob=a.jsonl", "+output_jsonl_fpath=x.jsonl")
    paths = ("resources_servers/spelling_bee/configs/spelling_bee.yaml", DEMO_POLICY)
    checkout = Path(__file__).parents[1] / "contract" / "nemo_gym_checkout"
    assert ng_aggregate.aggregate_rollouts(NgArguments(words, paths, (checkout,))) == 0
    [metrics] = json.loads(Path("x_aggregate_metrics.json").read_text())
    assert metrics["key_metrics"] == {"pass@2/accuracy": 100.0}
    assert metrics["agent_metrics"]["easy/pass@1/accuracy"] == 50.0
    assert [group["tries"] for group in metrics["group_level_metrics"]] == [2, 2]


# --- written here, read there ----------------------------------------------------------------------------------------


def their_lines(path: Path) -> Iterator[Row]:
    """Its readers take every line: a blank or a torn one aborts them."""
    text = path.read_bytes()
    assert text == b"" or text.endswith(b"\n")
    for line in text.split(b"\n")[:-1]:
        yield orjson.loads(line)


def their_owed(run: Path, most: int = 3) -> dict[tuple[int, int], int]:
    """Contract 3.8: what its resume would run, with the attempt index it would give."""
    plan = [
        (row["_ng_task_index"], row["_ng_rollout_index"]) for row in their_lines(beside(run, "_materialized_inputs"))
    ]
    done = {(row["_ng_task_index"], row["_ng_rollout_index"]) for row in their_lines(run)}
    failures = list(their_lines(beside(run, "_failures")))
    tried = Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in failures)
    final = {(row["_ng_task_index"], row["_ng_rollout_index"]) for row in failures if row.get("_ng_failure_terminal")}
    return {key: tried[key] for key in plan if key not in done | final and tried[key] < most}


def beside(run: Path, suffix: str) -> Path:
    return run.with_name(f"{run.stem}{suffix}.jsonl")


def test_our_files_have_their_fields_names_and_order() -> None:
    write_jsonl(Path("in.jsonl"), example_rows("mcqa"))
    assert collect("+num_repeats=2", "+num_repeats_add_seed=true") == 0
    inputs = list(their_lines(Path("x_materialized_inputs.jsonl")))
    assert [list(row)[-3:] for row in inputs] == [["agent_ref", "_ng_task_index", "_ng_rollout_index"]] * 10
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in inputs] == [
        (task, rollout) for task in range(5) for rollout in range(2)
    ]
    assert json.loads(inputs[1]["responses_create_params"]["metadata"]["extra_body"]) == {"seed": 1}
    for row in their_lines(Path("x.jsonl")):
        names = list(row)
        assert names[:3] == ["responses_create_params", "response", "reward"]
        assert names[-3:] == ["_ng_task_index", "_ng_rollout_index", "agent_ref"]
        assert row["response"]["object"] == "response"
        assert all(item["type"] for item in row["response"]["output"])
        assert {"input_tokens", "output_tokens", "total_tokens"} <= set(row["response"]["usage"])
        assert isinstance(row["reward"], float)
    assert list(their_lines(Path("x_failures.jsonl"))) == []  # there, and empty
    assert their_owed(Path("x.jsonl")) == {}


def test_our_failures_are_a_sidecar_that_their_resume_understands(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = example_rows("mcqa")
    rows[1]["grading_mode"] = "no_such_mode"  # refused by the verifier: for good
    write_jsonl(Path("in.jsonl"), rows)
    monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "2")
    assert collect() == 1
    [failure] = their_lines(Path("x_failures.jsonl"))
    assert isinstance(failure["_ng_failure_class"], str)
    assert failure["_ng_failure_terminal"] is True
    assert (failure["_ng_task_index"], failure["_ng_rollout_index"]) == (1, 0)
    assert failure["agent_ref"] == {"name": AGENT}
    assert len(list(their_lines(Path("x.jsonl")))) == 4
    assert their_owed(Path("x.jsonl")) == {}


def test_our_aggregate_metrics_and_profile_are_theirs_by_key_and_number() -> None:
    write_jsonl(Path("in.jsonl"), example_rows("mcqa"))
    assert collect("+num_repeats=3") == 0
    assert profile() == 0
    rows = list(their_lines(Path("x.jsonl")))
    text = Path("x_aggregate_metrics.json").read_text()
    [entry] = json.loads(text)
    assert text.startswith('[\n  {\n    "agent_ref"')
    assert list(entry) == ["agent_ref", "agent_metrics", "key_metrics", "group_level_metrics"]
    assert entry["agent_metrics"]["mean/reward"] == pytest.approx(statistics.fmean(row["reward"] for row in rows))
    assert {"mean/reward", "pass@1/accuracy", "majority@3/accuracy"} <= entry["key_metrics"].keys()
    assert text == json.dumps([entry], indent=2, ensure_ascii=False) + "\n"
    assert entry["group_level_metrics"][0]["sample"] == {"agent_ref": {"name": "agent"}}
    for line in their_lines(Path("x_reward_profiling.jsonl")):
        own = [row for row in rows if row["_ng_task_index"] == line["_ng_task_index"]]
        rewards = [row["reward"] for row in own]
        stats = [key for key in line if "/" in key]
        assert list(line)[: len(stats) + 1] == ["_ng_task_index", *stats]
        assert [key.partition("/")[0] for key in stats] == sorted(
            (key.partition("/")[0] for key in stats), key=["mean", "max", "min", "median", "std"].index
        )
        assert list(line)[len(stats) + 1 :] == [
            *("sample", "num_rollouts", "expected_num_rollouts", "missing_num_rollouts"),
            *("reward_profile_completion_pct", "rollout_infos"),
        ]
        assert line["std/reward"] == pytest.approx(statistics.stdev(rewards))
        assert line["median/reward"] == pytest.approx(statistics.median(rewards))
        assert [info["rollout_id"] for info in line["rollout_infos"]] == [
            f"{line['_ng_task_index']}:{n}" for n in range(3)
        ]
    compact = Path("x_agent_metrics.json").read_bytes()
    [agent] = orjson.loads(compact)
    assert list(agent)[-1] == "agent_ref"
    assert b": " not in compact.split(b'"agent_ref"')[1]
