"""Records become samples: masks, logprobs, weights and segments are the ledger's; what can't be trained on says why."""

from __future__ import annotations

import json
import pickle
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.tokens.backend import GeneratedTokens, Sampling, WeightSpan
from gymnast.tokens.conversation import TokenConversation
from gymnast.tokens.export import add_training_fields
from gymnast.train import Batch, Group, MaskReason, Sample, SampleOptions, Share, Termination, VersionSpan, sample_of
from gymnast.train.sample_rows import sample_from_row, sample_to_row
from gymnast.types.items import TRAINING_FIELDS
from gymnast.types.tokens import LEDGER, ForkReason, TokenSpan
from tests.helpers.character_tokens import CLOSE, Letters
from tests.helpers.train_records import AGENT, call, failure, record


def edited(line: bytes, **changes: Any) -> bytes:
    """The record with other fields in its ledger's first call."""
    fields = orjson.loads(line)
    fields[LEDGER]["calls"][0] |= changes
    return json.dumps(fields).encode()


def test_a_rollout_of_two_turns_is_one_segment_with_its_tokens_masks_and_weights() -> None:
    first = call([1, 2], [7, 8], logprobs=[-0.25, -0.5])
    second = call([3], [9], before=4, parent=0, logprobs=[-1.0], version="v1")
    sample = sample_of(record([first, second], 0.5, task=4, rollout=2, reward_components={"a": 0.2, "b": 0.3}, steps=2))
    (segment,) = sample.segments
    assert segment.ids.tolist() == [1, 2, 7, 8, 3, 9]
    assert segment.mask.tolist() == [0, 0, 1, 1, 0, 1]
    assert segment.logprobs.tolist() == [0, 0, -0.25, -0.5, 0, -1.0]
    assert segment.turns == ((2, 4), (5, 6))
    assert segment.versions == (VersionSpan("v0", 2, 4), VersionSpan("v1", 5, 6))
    assert segment.version_of_tokens() == [None, None, "v0", "v0", None, "v1"]
    assert (segment.prompt_length, segment.logprob_mode, segment.temperature, segment.share) == (2, "raw", 1.0, 1.0)
    assert (sample.key, sample.agent, sample.reward, sample.model) == ((4, 2), AGENT, 0.5, "letters")
    assert (sample.components, sample.numbers) == ({"a": 0.2, "b": 0.3}, {"steps": 2.0})
    assert (sample.is_trainable, sample.turns, sample.trained, sample.versions) == (True, 2, 3, ("v0", "v1"))


def test_all_segments_are_delivered_with_parent_reason_and_share() -> None:
    calls = [
        call([1, 2], [7, 8, 9]),
        call([5], [6], before=2, parent=0, reason=ForkReason.HISTORY_EDITED, temperature=0.5, logprob_mode="processed"),
        call([3], [4], before=5, parent=0),
    ]
    sample = sample_of(record(calls))
    main, fork = sample.segments
    assert (main.parent, main.reason, main.trained, main.share) == (None, ForkReason.FIRST, 4, 0.8)
    assert (fork.parent, fork.reason, fork.shared, fork.share) == (0, ForkReason.HISTORY_EDITED, 2, 0.2)
    assert fork.ids.tolist() == [1, 2, 5, 6]
    assert (fork.logprob_mode, fork.temperature, main.temperature) == ("processed", 0.5, 1.0)
    for share, wanted in ((Share.EQUAL, [0.5, 0.5]), (Share.LAST, [0.0, 1.0])):
        shared = sample_of(record(calls), SampleOptions(share)).segments
        assert [segment.share for segment in shared] == wanted


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (record(None), MaskReason.NO_TOKENS),
        (record([]), MaskReason.NOTHING_SAMPLED),
        (record(None, response={"output": [], "usage": {"output_tokens": 0}}), MaskReason.NOTHING_SAMPLED),
        (record([call([1], [2], masked="bad_logprobs", logprobs=[])]), MaskReason.BAD_LOGPROBS),
        (edited(record([call([1], [2, 3])]), logprobs=[None, -0.1]), MaskReason.BAD_LOGPROBS),
        (edited(record([call([1], [2, 3])]), logprobs=None), MaskReason.BAD_LOGPROBS),
        (edited(record([call([1], [2, 3])]), logprobs=[-0.1]), MaskReason.BAD_LOGPROBS),
        (edited(record([call([1], [2, 3])]), logprobs=[-0.1, 7.5]), MaskReason.BAD_LOGPROBS),
        (edited(record([call([1], [2, 3])]), logprobs=[-0.1, -9999.0]), MaskReason.BAD_LOGPROBS),
        (edited(record([call([1], [2])]), keep=3), MaskReason.BAD_LEDGER),
        (edited(record([call([1], [2])]), sampled="no ids"), MaskReason.BAD_LEDGER),
        (record([call([1], [2])], mask_sample=True), MaskReason.ENVIRONMENT),
    ],
)
def test_what_must_not_be_trained_on_is_there_and_says_why(line: bytes, reason: MaskReason) -> None:
    sample = sample_of(line)
    assert sample.mask_reason is reason
    assert (sample.reward, sample.trained, sample.is_scored) == (1.0, 0, True)
    assert not any(mask.any() for mask in sample.loss_masks())


def test_a_failure_has_no_reward_and_no_tokens() -> None:
    sample = sample_of(failure("worker_died", "pid 7 was killed", task=3, rollout=1))
    assert (sample.reward, sample.segments, sample.mask_reason) == (None, (), MaskReason.FAILED)
    assert sample.failure is not None
    assert (sample.failure.kind, sample.failure.message) == ("worker_died", "pid 7 was killed")
    assert (sample.key, sample.termination) == ((3, 1), Termination.FAILED)
    without = orjson.loads(record([call([1], [2])]))
    del without["reward"]
    assert sample_of(orjson.dumps(without)).reward is None


def test_how_rollouts_end() -> None:
    asked = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}
    answered = {"type": "function_call_output", "call_id": "c", "output": "1"}
    cases = [
        (record([call([1], [2])]), Termination.NATURAL),
        (record([call([1], [2], finish="length")]), Termination.LENGTH),
        (record([call([1], [2])], response={"output": [], "incomplete_details": {"reason": "x"}}), Termination.LENGTH),
        (record([call([1], [2])], response={"output": [asked, answered, asked]}), Termination.TURN_LIMIT),
        (record([call([1], [2])], response={"output": [asked]}), Termination.NATURAL),  # the call is the answer
        (record([call([1], [2])], terminated=False, truncated=True), Termination.TURN_LIMIT),
    ]
    for line, ended in cases:
        sample = sample_of(line)
        assert sample.termination is ended
        assert sample.is_trainable
        cut = sample_of(line, SampleOptions(mask_truncated=True))
        assert (cut.mask_reason is MaskReason.TRUNCATED) == (ended is not Termination.NATURAL)


def test_records_whose_items_carry_ids_are_samples_as_well() -> None:
    calls = [call([1, 2], [7, 8]), call([3], [9], before=4, parent=0)]
    fields = orjson.loads(record(calls))
    fields["response"]["output"] = [{"type": "message", "role": "assistant", "token_call": place} for place in (0, 1)]
    whole = add_training_fields(fields)
    assert LEDGER not in whole
    sample, exact = sample_of(orjson.dumps(whole)), sample_of(orjson.dumps(fields))
    assert sample.is_trainable
    assert [s.ids.tolist() for s in sample.segments] == [s.ids.tolist() for s in exact.segments]
    assert [s.mask.tolist() for s in sample.segments] == [s.mask.tolist() for s in exact.segments]
    whole["response"]["output"][1]["generation_log_probs"] = None
    assert sample_of(orjson.dumps(whole)).mask_reason is MaskReason.BAD_LOGPROBS


def test_lines_that_are_not_records_are_errors() -> None:
    with pytest.raises(msgspec.MsgspecError):
        sample_of(b'{"reward": 1')


Turns = st.lists(
    st.tuples(
        st.sampled_from(["go on", "edit", "branch", "other"]),
        st.text("abc", min_size=1, max_size=4),
        st.integers(0, 3),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


def rollout(turns: list[tuple[str, str, int, bool]]) -> tuple[TokenConversation, list[list[int]]]:
    """A session as harnesses drive it: going on, editing, branching, beginning anew."""
    session = TokenConversation(Letters(), "letters")
    history: list[dict[str, Any]] = []
    earlier: list[list[dict[str, Any]]] = [[]]
    sampled: list[list[int]] = []
    for what, text, version, whole in turns:
        if what == "edit" and history:
            history = [{**history[0], "content": text + "!"}, *history[1:]]
        elif what == "branch":
            history = list(earlier[len(earlier) // 2])
        elif what == "other":
            history = []
        history = [*history, {"role": "user", "content": text}]
        prompt = session.begin(history, [], {})
        ids = [ord(letter) for letter in text[::-1]] + ([CLOSE] if whole else [])
        spans = (WeightSpan(f"v{version}", 0, len(ids)),)
        logprobs = [-0.1 * (at + 1) for at in range(len(ids))]
        generated = GeneratedTokens(ids, logprobs, "stop" if whole else "length", "raw", spans)
        answer = {"role": "assistant", "content": text[::-1]}
        session.finish(prompt, Sampling(), generated, answer)
        sampled.append(ids)
        history = [*history, answer]
        earlier.append(history)
    return session, sampled


@given(Turns)
def test_every_sampled_token_is_trained_on_exactly_once(turns: list[tuple[str, str, int, bool]]) -> None:
    session, sampled = rollout(turns)
    line = record(session.ledger().calls)
    sample = sample_of(line)
    trained = sorted(segment.ids[start:end].tolist() for segment in sample.segments for start, end in segment.turns)
    assert trained == sorted(sampled)
    assert sample.trained == sum(map(len, sampled))
    assert sum(segment.share for segment in sample.segments) == pytest.approx(1.0)
    for place, segment in enumerate(sample.segments):
        inside = np.zeros(len(segment.ids), dtype=np.uint8)
        for start, end in segment.turns:
            inside[start:end] = 1
        assert (segment.mask == inside).all()
        assert ((segment.logprobs != 0) == (segment.mask == 1)).all()
        assert segment.parent is None or segment.parent < place
        if segment.parent is not None:
            parent = sample.segments[segment.parent]
            assert (segment.ids[: segment.shared] == parent.ids[: segment.shared]).all()
        told = segment.version_of_tokens()
        assert [version is not None for version in told] == (segment.mask == 1).tolist()


@given(Turns)
def test_rows_keep_everything(turns: list[tuple[str, str, int, bool]]) -> None:
    session, _ = rollout(turns)
    for line in (record(session.ledger().calls, 0.25, own=3), failure("agent_error", "no")):
        row = sample_to_row(sample_of(line))
        again = sample_from_row(orjson.loads(orjson.dumps(row)))
        assert sample_to_row(again) == row
        assert isinstance(again, Sample)


def test_a_row_of_a_newer_form_is_refused() -> None:
    row = sample_to_row(sample_of(record([call([1], [2])])))
    with pytest.raises(Exception, match="schema version 99"):
        sample_from_row({**row, "schema_version": 99})


def test_a_ledger_of_a_newer_form_is_masked() -> None:
    fields = orjson.loads(record([call([1], [2])]))
    fields[LEDGER]["schema_version"] = 99
    sample = sample_of(orjson.dumps(fields))
    assert sample.mask_reason is MaskReason.BAD_LEDGER
    assert "schema version 99" in sample.mask_detail


Json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
OURS = ("response", "reward_components", "mask_sample", "agent_ref", "failure", LEDGER, "_ng_failure_class", "reward")


def holds_together(sample: Sample) -> None:
    for segment in sample.segments:
        assert len(segment.ids) == len(segment.mask) == len(segment.logprobs) == len(segment.version_of_tokens())
        assert np.isfinite(segment.logprobs).all()
        assert (segment.ids >= 0).all()
    assert not sample.is_trainable or (sample.trained and sample.reward is not None)
    sample_to_row(sample)


@given(st.sampled_from(OURS), Json)
def test_whatever_servers_write_into_a_record_it_is_a_sample(name: str, value: Any) -> None:
    fields = orjson.loads(record([call([1], [2, 3])]))
    holds_together(sample_of(json.dumps({**fields, name: value}).encode()))


@given(Turns, st.data())
def test_a_damaged_ledger_is_masked_or_sound(turns: list[tuple[str, str, int, bool]], data: Any) -> None:
    session, _ = rollout(turns)
    fields = orjson.loads(record(session.ledger().calls))
    one = data.draw(st.sampled_from(fields[LEDGER]["calls"]))
    name = data.draw(st.sampled_from(sorted(one)))
    if isinstance(one[name], list) and one[name] and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(one[name]) - 1))
        one[name][at] = data.draw(Json)
    else:
        one[name] = data.draw(Json)
    holds_together(sample_of(json.dumps(fields).encode()))


@given(st.lists(st.dictionaries(st.sampled_from(["type", *TRAINING_FIELDS]), Json, max_size=4), max_size=3))
def test_whatever_items_carry_it_is_a_sample(items: list[dict[str, Any]]) -> None:
    holds_together(sample_of(json.dumps({**orjson.loads(record(None)), "response": {"output": items}}).encode()))


def test_samples_cross_process_borders() -> None:
    sample = sample_of(record([call([1], [2, 3])]), SampleOptions(keep_line=True))
    again = pickle.loads(pickle.dumps(Batch((Group(0, (sample,)),)))).groups[0].samples[0]
    assert sample_to_row(again) == sample_to_row(sample)
    assert again.record == sample.record == orjson.loads(record([call([1], [2, 3])]))


@pytest.mark.parametrize("reward", [1e39, -1e308])
def test_a_reward_that_is_infinite_in_32_bits_is_a_failure(reward: float) -> None:
    """Trainers compute in 32 bits: one of them made every advantage of its group NaN."""
    sample = sample_of(record([call([1], [2])], reward))
    assert (sample.reward, sample.mask_reason) == (None, MaskReason.FAILED)


def test_weights_of_a_token_are_named_once() -> None:
    spans = [TokenSpan("a", 0, 2), TokenSpan("b", 1, 3)]
    sample = sample_of(record([call([1], [2, 3, 4], weights=spans)]))
    assert (sample.mask_reason, sample.mask_detail) == (MaskReason.BAD_LEDGER, "call 0 has weight spans that overlap")
