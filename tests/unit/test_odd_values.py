"""Values that JSON or our encoder cannot hold: they end as a record or as a failure, and never end a run."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymnast.kit import Verdict
from gymnast.profile.record_batches import SCALAR, RecordBatches
from gymnast.rollouts.attempt import Failed, Scored, make_failure_line, make_outcome
from gymnast.rollouts.engine import Engine, EngineOptions
from gymnast.rollouts.plan import Planner, PlanOptions
from gymnast.rollouts.run_store import MemoryRunStore
from gymnast.rollouts.runner import LocalRunner
from gymnast.rollouts.worker_messages import AttemptDone, encode_frame, engine_decoder
from gymnast.store.manifest import RunState
from gymnast.store.records import RecordFile
from gymnast.types.encoding import dump_model, encode_json, find_big_integer, is_finite_number, make_encodable
from gymnast.types.failure import FailureDetail, FailureKind, Stage
from gymnast.wire.calls import Calls
from gymnast.wire.message import PlainText, Reply, Request, encode_body
from gymnast.wire.progress import AttemptProgress, Signals
from tests.helpers.jsonl import write_jsonl


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


CYCLE: list[Any] = []
CYCLE.append(CYCLE)
ODD: dict[str, Any] = {
    "an integer beyond 64 bits": 2**64,
    "a negative one": -(2**63) - 1,
    "one too long to print": 10**5000,
    "a lone surrogate": "a\ud800b",
    "a surrogate in a key": {"\udfff": 1},
    "a big integer as a key": {2**70: 1},
    "an integer as a key": {1: 2},
    "300 levels": nested(300),
    "5000 levels": nested(5000),
    "a cycle": CYCLE,
    "not a number": math.nan,
    "a key with quotes and control characters": {'a"b\n\x00': 1},
}
ROW = {
    "responses_create_params": {"input": "q"},
    "_ng_task_index": 0,
    "_ng_rollout_index": 0,
    "agent_ref": {"name": "a"},
}


def outcome_of(**fields: Any) -> Scored | Failed:
    result = {"reward": 1.0, "response": {"output": []}, **fields}
    return make_outcome(result, ROW, "a", 0.1, 0.0, AttemptProgress())


@pytest.mark.parametrize("value", ODD.values(), ids=list(ODD))
def test_a_reward_is_kept_whatever_is_next_to_it(value: Any) -> None:
    for fields in ({"odd": value}, {"odd": [{"deep": value}]}, {"mask_sample": value}):
        outcome = outcome_of(**fields)
        assert isinstance(outcome, Scored)
        assert outcome.reward == 1.0
        assert orjson.loads(outcome.line)["_ng_task_index"] == 0
        assert engine_decoder.decode(encode_frame(AttemptDone(1, outcome))[4:])


def test_a_record_names_the_values_that_were_altered() -> None:
    outcome = outcome_of(count=2**64, text="\ud83d\ude00 \ud800", fine=1)
    assert isinstance(outcome, Scored)
    record = orjson.loads(outcome.line)
    assert record["count"] == "18446744073709551616"
    assert record["text"] == "😀 \ufffd"
    assert record["gymnast_altered_values"] == [
        "count: an integer beyond 64 bits became text",
        "text: lone surrogates became U+FFFD",
    ]
    assert list(record)[-3:] == ["_ng_task_index", "_ng_rollout_index", "agent_ref"]
    assert "gymnast_altered_values" not in orjson.loads(outcome_of(fine=1).line)  # type: ignore[union-attr]


@pytest.mark.parametrize("value", [object(), {1, 2}, b"\xff", 1j, {(1, 2): 3}])
def test_a_value_without_a_json_form_is_a_failure_that_names_it(value: Any) -> None:
    outcome = outcome_of(odd=value)
    assert isinstance(outcome, Failed)
    assert outcome.detail.kind is FailureKind.AGENT_BAD_REPLY
    assert orjson.loads(make_failure_line(orjson.dumps(ROW), outcome, index=0, final=True, run_id="r"))["failure"]
    assert engine_decoder.decode(encode_frame(AttemptDone(1, outcome))[4:])


@pytest.mark.parametrize("value", ODD.values(), ids=list(ODD))
def test_a_reported_failure_may_hold_anything(value: Any) -> None:
    for fields in ({"error": value}, {"_ng_failure_judge_error": value, "error": object()}):
        outcome = outcome_of(_ng_failure_class="x", **fields)
        assert isinstance(outcome, Failed)
        line = make_failure_line(orjson.dumps(ROW), outcome, index=0, final=True, run_id="r")
        assert orjson.loads(line)["_ng_failure_class"] == "x"
    outcome = outcome_of(_ng_failure_class=value)
    assert isinstance(outcome, Failed)
    line = make_failure_line(orjson.dumps(ROW), outcome, index=0, final=True, run_id="r")
    assert isinstance(orjson.loads(line)["_ng_failure_class"], str)


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**80), max_value=2**80)
    | st.floats()
    | st.text(st.characters())  # with surrogates
    | st.binary(max_size=4)
    | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text(st.characters(), max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)
_names = st.sampled_from(
    ["response", "usage", "odd", "mask_sample", "_ng_no_persist", "truncated", "terminated", "error"]
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(_names, _values), st.one_of(st.none(), _values))
def test_no_reply_of_an_agent_raises(fields: dict[str, Any], reported: Any) -> None:
    outcome = outcome_of(**fields, **({} if reported is None else {"_ng_failure_class": reported}))
    if isinstance(outcome, Failed):
        orjson.loads(make_failure_line(orjson.dumps(ROW), outcome, index=0, final=True, run_id="r"))
    else:
        orjson.loads(outcome.line)
    engine_decoder.decode(encode_frame(AttemptDone(1, outcome))[4:])


@settings(max_examples=200, deadline=None)
@given(_values)
def test_encodable_values_are_not_altered(value: Any) -> None:
    try:
        plain = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        make_encodable(value, show_objects=True)
        return
    assert encode_json(value) == plain
    assert make_encodable(value)[1] == []


def test_failures_can_be_written_whatever_text_they_quote() -> None:
    detail = FailureDetail(FailureKind.MODEL_ERROR, Stage.MODEL, "x \udcff", body="\ud800", endpoint="http://\udfff")
    for text in (detail.message, detail.body, detail.endpoint):
        assert text is not None
        text.encode()
    assert encode_body(PlainText("\ud800")) == "\ufffd".encode()


class OddVerdict(Verdict):
    answer: Any


@pytest.mark.parametrize("value", ODD.values(), ids=list(ODD))
def test_a_verdict_may_quote_what_a_model_wrote(value: Any) -> None:
    fields = dump_model(OddVerdict(reward=0.5, answer=value))
    assert fields["reward"] == 0.5
    encode_json(fields)


def test_numbers_that_count() -> None:
    assert all(map(is_finite_number, [True, 2**64, -0.5]))
    assert not any(map(is_finite_number, [math.nan, math.inf, 10**400, "1", None]))


def test_a_row_with_an_integer_beyond_64_bits_is_refused_not_rounded(tmp_path: Path) -> None:
    params = {"responses_create_params": {"input": "q"}}
    rows = [
        {**params, "n": 2**64 - 1},
        {**params, "n": -(2**63)},
        {**params, "text": "1" * 40, "x": 1.2345678901234567890123},
        {**params, "n": 2**64},
        {**params, "deep": [{"n": -(2**63) - 1}]},
        {**params, "n": int("9" * 4000)},
    ]
    source = write_jsonl(tmp_path / "in.jsonl", rows)
    planner = Planner(source, PlanOptions(agent="a", skip_bad_rows=True), ["a"])
    lines = b"".join(planner.chunks()).splitlines()
    assert [orjson.loads(line).get("n") for line in lines] == [2**64 - 1, -(2**63), None]
    bad = {row.line: row.what for row in planner.summary.bad_rows}
    assert sorted(bad) == [4, 5, 6]
    assert "exceeds 64 bits: write it as text" in bad[4]
    assert find_big_integer(json.dumps({"n": 2**64}).encode()) == str(2**64)


class _Agent:
    address = "test"

    async def send(self, request: Request) -> Reply:
        await asyncio.sleep(0)
        if request.body["do"] == "bug":
            raise ZeroDivisionError("a bug \ud800")
        return Reply(200, {"reward": 1.0, "response": {"output": []}, "odd": 2**64})


class _Unexpected(LocalRunner):
    """A runner with a bug, for some rollouts."""

    async def attempt(self, item: Any, timeout_s: float) -> Any:
        if b'"bug"' in item.line:
            raise ZeroDivisionError("a bug \ud800")
        return await super().attempt(item, timeout_s)


async def test_an_unexpected_error_fails_its_rollout_and_the_run_goes_on() -> None:
    lines = [orjson.dumps({**ROW, "_ng_task_index": n, "do": "bug" if n % 2 else "score"}) for n in range(6)]
    records: list[Any] = []
    store = MemoryRunStore("r", lines, records.append)
    runner = _Unexpected(Calls({"a": _Agent()}), Signals())
    state = await Engine(store, runner, EngineOptions(concurrency=2), lambda _: None, ["a"]).run()
    assert state in {RunState.COMPLETE, RunState.INCOMPLETE}
    assert sum(record.is_scored for record in records) == 3
    failed = [record.data["failure"] for record in records if not record.is_scored]
    assert {failure["kind"] for failure in failed} == {"unknown"}
    assert all("ZeroDivisionError" in failure["message"] for failure in failed)


def test_profiles_read_fields_of_any_name(tmp_path: Path) -> None:
    names = ['a"b', "a\\b", "a\nb", "\x00", "", "é", "a.b"]
    rows: list[dict[str, Any]] = [{"reward": 1.0}, *({"reward": 0.5, name: n} for n, name in enumerate(names))]
    path = write_jsonl(tmp_path / "x.jsonl", rows)
    seen: dict[str, list[Any]] = {}

    def take(columns: Any, size: int) -> None:
        for name, column in columns.items():
            assert len(column) == size
            seen.setdefault(name, []).extend(value for value in column if isinstance(value, (int, float)))

    RecordBatches(lambda _name, _first: SCALAR, take, required=("reward",)).read(RecordFile(path))
    assert seen["reward"] == [1.0] + [0.5] * len(names)
    assert {name: seen[name] for name in names} == {name: [n] for n, name in enumerate(names)}
