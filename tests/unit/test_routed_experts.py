"""The experts of a mixture-of-experts model, from the inference server's reply to what trainers take."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.endpoints.token_path import join_generations
from gymnast.errors import UserError
from gymnast.tokens.backend import GeneratedTokens, Sampling
from gymnast.tokens.conversation import TokenConversation
from gymnast.tokens.expert_arrays import dump_array, dump_envelope, pack_experts, parse_experts, unpack_experts
from gymnast.tokens.experts import new_rows
from gymnast.tokens.export import add_training_fields, read_ledger
from gymnast.train import MaskReason, sample_of
from gymnast.train.sequences import fill_experts, token_rows
from gymnast.types.tokens import RoutedExperts
from tests.helpers.character_tokens import CLOSE, Letters
from tests.helpers.train_records import call, record

LAYERS, TOP_K = 3, 2


def chosen(ids: list[int], rows: int | None = None) -> np.ndarray[Any, Any]:
    """The experts of a model whose router sees the token and its place. A server reports all but the last row."""
    places = np.arange(len(ids))[:, None, None]
    parts = [np.asarray(ids)[:, None, None], np.arange(LAYERS)[None, :, None] * 7, np.arange(TOP_K)[None, None, :]]
    return ((places + sum(parts)) % 300)[: len(ids) - 1 if rows is None else rows].astype(np.int32)


def generated(prompt: list[int], text: str, *, reports: bool = True) -> GeneratedTokens:
    ids = [*map(ord, text), CLOSE]
    experts = parse_experts(dump_array(chosen(prompt + ids))) if reports else None
    return GeneratedTokens(ids, [-0.5] * len(ids), "stop", experts=experts)


def turn(session: TokenConversation, history: list[dict[str, Any]], text: str, *, reports: bool = True) -> None:
    prompt = session.begin(history, [], {})
    message = {"role": "assistant", "content": text}
    session.finish(prompt, Sampling(), generated(prompt.ids, text, reports=reports), message)
    history.append(message)


def ledger_line(session: TokenConversation) -> bytes:
    return record(session.ledger().calls)


@given(st.lists(st.tuples(st.text("ab", min_size=1, max_size=3), st.booleans()), min_size=1, max_size=6))
def test_every_segment_has_the_experts_of_its_tokens(turns: list[tuple[str, bool]]) -> None:
    """Turns that continue, and ones whose history was edited: each call stores only what its parent does not have."""
    session = TokenConversation(Letters(), "letters")
    history: list[dict[str, Any]] = []
    for text, is_edited in turns:
        if is_edited and history:
            history[0] = {"role": "user", "content": history[0]["content"] + "!"}
        history.append({"role": "user", "content": text})
        turn(session, history, text.upper())
    for segment in sample_of(ledger_line(session)).segments:
        rows = segment.expert_rows
        assert rows is not None
        assert rows[:-1].tolist() == chosen(segment.ids.tolist()).tolist()
    stored = sum(len(one.experts.rows) // one.experts.row_size for one in session.ledger().calls if one.experts)
    new = sum(len(one.delta) + len(one.sampled) for one in session.ledger().calls)
    assert stored <= new


def test_a_call_without_experts_leaves_its_segment_without() -> None:
    session = TokenConversation(Letters(), "letters")
    history: list[dict[str, Any]] = [{"role": "user", "content": "a"}]
    turn(session, history, "b")
    history.append({"role": "user", "content": "c"})
    turn(session, history, "d", reports=False)
    (segment,) = sample_of(ledger_line(session)).segments
    assert segment.expert_rows is None


def test_an_aborted_generation_keeps_the_experts_of_each_part() -> None:
    """After new weights the server reports other experts for old tokens: those of sampling count."""
    first, second = chosen([1, 2, 3, 4]), chosen([1, 2, 3, 4, 5, 6]) + 1
    parts = [
        GeneratedTokens([3, 4], [-0.5, -0.5], "abort", experts=pack_experts(first)),
        GeneratedTokens([5, 6], [-0.5, -0.5], "stop", experts=pack_experts(second)),
    ]
    joined = join_generations(parts, "stop").experts
    assert joined is not None
    assert unpack_experts(joined, 6)[:5].tolist() == [*first.tolist(), *second[3:].tolist()]


def test_the_forms_of_vllm_and_nemo_rl_are_read() -> None:
    array = chosen(list(range(200, 205)))
    packed = pack_experts(array)
    assert parse_experts(dump_array(array.astype(np.uint16))) == packed
    assert parse_experts(array.tolist()) == packed
    envelope = dump_envelope(packed, 5)
    assert envelope.startswith(f"nrlre1:int16:5x{LAYERS}x{TOP_K}:")
    assert unpack_experts(parse_experts(envelope), 5)[:4].tolist() == array.tolist()


@pytest.mark.parametrize(
    "reported",
    [
        "?",
        "AAAA",
        "nrlre1:int16:2x2:AAAA",
        "nrlre1:float:1x1x1:AAA=",
        [[1, 2]],
        [[[0.5]]],
        dump_array(np.zeros((1, 0, 2), int)),
    ],
)
def test_what_is_not_an_array_of_experts_is_refused(reported: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_experts(reported)


def test_too_few_rows_are_none() -> None:
    experts = pack_experts(chosen([1, 2, 3, 4, 5]))
    assert new_rows(experts, 0, 6) is None
    assert new_rows(experts, 3, 5) is not None
    assert new_rows(RoutedExperts(3, 1, 1, 1, b"\0\0"), 2, 5) is None, "a gap after the parent's"


def test_a_ledger_survives_its_record_and_one_with_other_tokens_experts_does_not() -> None:
    experts = pack_experts(chosen([1, 2, 7, 8]))
    calls = [call([1, 2], [7, 8], experts=experts)]
    line = record(calls)
    (segment,) = sample_of(line).segments
    assert segment.experts == experts
    ledger = read_ledger(orjson.loads(line))
    assert ledger is not None
    assert ledger.calls == calls
    for start, layers, rows in ((1, LAYERS, experts.rows), (0, 0, b""), (0, LAYERS, experts.rows[:-1])):
        bad = RoutedExperts(start, layers, TOP_K, experts.width, rows)
        assert sample_of(record([call([1, 2], [7, 8], experts=bad)])).mask_reason is MaskReason.BAD_LEDGER


def test_items_carry_them_as_nemo_rl_reads_them_and_back() -> None:
    experts = pack_experts(chosen([1, 2, 7, 8]))
    fields = orjson.loads(record([call([1, 2], [7, 8], experts=experts)]))
    fields["response"]["output"][0]["token_call"] = 0
    exported = add_training_fields(fields)
    (item,) = exported["response"]["output"]
    assert item["routed_experts"] == dump_envelope(experts, 4)
    (segment,) = sample_of(orjson.dumps(exported)).segments
    assert segment.expert_rows is not None
    assert segment.expert_rows[:3].tolist() == chosen([1, 2, 7, 8]).tolist()


def test_trainers_get_experts_of_all_rows_or_of_none() -> None:
    experts = pack_experts(chosen([1, 2, 7, 8]))
    known = sample_of(record([call([1, 2], [7, 8], experts=experts)]))
    masked = sample_of(record(None, rollout=1))
    lacking = sample_of(record([call([1, 2], [7, 8])], rollout=2))
    rows = list(token_rows([known, masked], [0, 0], pad_id=0))
    shapes = [filled.shape for filled in fill_experts(rows) if filled is not None]
    assert shapes == [(4, LAYERS, TOP_K), (2, LAYERS, TOP_K)]
    assert fill_experts(list(token_rows([lacking, masked], [0, 0], pad_id=0))) == [None, None]
    with pytest.raises(UserError, match="reported experts for some rollouts, but not for 1"):
        fill_experts(list(token_rows([known, lacking], [0, 0], pad_id=0)))
