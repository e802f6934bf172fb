"""The token ledger: prompts extend what was sampled or fork with a reason; every sampled token counts once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.tokens.audit import audit
from gymnast.tokens.backend import BadGeneration, GeneratedTokens, Sampling, WeightSpan, check_generation
from gymnast.tokens.conversation import TokenConversation
from gymnast.tokens.export import (
    BadLedger,
    add_training_fields,
    ids_of,
    pack_ledger,
    read_ledger,
    segments,
    training_fields,
)
from gymnast.tokens.items import ledger_from_items
from gymnast.tokens.rendering import ForkReason, Source
from gymnast.types.json import JsonObject
from gymnast.types.tokens import LEDGER, TOKEN_CALL
from tests.helpers.character_tokens import CLOSE, OTHER_STOP, Letters, sampled, text_of


def message(role: str, text: str) -> JsonObject:
    return {"role": role, "content": text}


def say(session: TokenConversation, messages: list[JsonObject], made: GeneratedTokens, *, tools: int = 0) -> int:
    """One turn: begin, sample, finish. The answer is appended to `messages`."""
    prompt = session.begin(messages, [{"n": index} for index in range(tools)], {})
    answer = message("assistant", Letters().parse(made.token_ids).content)
    number = session.finish(prompt, Sampling(), made, answer)
    messages.append(answer)
    return number


def test_the_next_prompt_is_what_was_sampled_and_a_bridge() -> None:
    session = TokenConversation(Letters(), "m")
    messages = [message("user", "hi")]
    say(session, messages, sampled("yo"))
    messages.append(message("tool", "42"))
    prompt = session.begin(messages, [], {})
    assert text_of(prompt.ids) == "<uhi><ayo><t42><a"
    assert prompt.reason is ForkReason.EXTENDS
    assert prompt.keep == len("<uhi><ayo>")
    assert [source for source, _ in prompt.sources] == [Source.TEMPLATE, Source.TOOL, Source.TEMPLATE, Source.TEMPLATE]


def test_a_truncated_turn_is_closed_by_the_template() -> None:
    session = TokenConversation(Letters(), "m")
    messages = [message("user", "hi")]
    say(session, messages, sampled("yo", end=None))
    messages.append(message("user", "go on"))
    prompt = session.begin(messages, [], {})
    assert text_of(prompt.ids) == "<uhi><ayo><ugo on><a"
    assert prompt.sources[0] == (Source.TEMPLATE, 1)


def test_a_stop_token_off_the_template_ends_its_segment() -> None:
    session = TokenConversation(Letters(), "m")
    messages = [message("user", "hi")]
    say(session, messages, sampled("yo", end=OTHER_STOP))
    messages.append(message("user", "more"))
    say(session, messages, sampled("ok"))
    first, second = segments(session.ledger())
    assert text_of(first.ids) == "<uhi><ayo!"
    assert text_of(second.ids) == "<uhi><ayo><umore><aok>"
    assert second.reason is ForkReason.STOP_TOKEN_OFF_TEMPLATE
    assert sum(first.mask) + sum(second.mask) == 3 + 3
    assert not any(second.mask[: second.shared])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda messages: messages[1].update(content="ho"), ForkReason.HISTORY_EDITED),
        (lambda messages: messages.__delitem__(slice(1, 4)), ForkReason.HISTORY_SHORTENED),
        (lambda messages: messages.__delitem__(slice(0, 2)), ForkReason.HISTORY_SHORTENED),
        (lambda messages: messages.__delitem__(slice(0, 5)), ForkReason.FIRST),
    ],
)
def test_an_edited_history_forks_with_its_reason_and_is_never_spliced(change: Any, reason: ForkReason) -> None:
    session = TokenConversation(Letters(), "m")
    messages = [message("system", "s"), message("user", "hi")]
    say(session, messages, sampled("yo"))
    messages.append(message("user", "and"))
    say(session, messages, sampled("so"))
    messages.append(message("user", "on"))
    change(messages)
    prompt = session.begin(messages, [], {})
    assert prompt.reason is reason
    assert prompt.ids == list(Letters().prompt(messages, [], {}).ids)


def test_a_compacted_history_is_distinguished_from_an_edited_one() -> None:
    session = TokenConversation(Letters(), "m")
    messages = [message("user", "hi")]
    for word in ("a", "b", "c"):
        say(session, messages, sampled(word))
        messages.append(message("tool", word))
    compacted = [messages[0], message("user", "summary of what happened"), messages[-1]]
    assert session.begin(compacted, [], {}).reason is ForkReason.HISTORY_SHORTENED


def test_changed_tools_and_template_arguments_fork() -> None:
    session = TokenConversation(Letters(), "m")
    messages = [message("user", "hi")]
    say(session, messages, sampled("yo"), tools=1)
    messages.append(message("user", "and"))
    assert session.begin(messages, [], {}).reason is ForkReason.TOOLS_CHANGED
    assert session.begin(messages, [{"n": 0}], {"thinking": True}).reason is ForkReason.TEMPLATE_ARGS_CHANGED
    assert session.begin(messages, [{"n": 0}], {}).reason is ForkReason.EXTENDS


def test_a_template_that_rewrites_history_forks_and_shares_what_it_can() -> None:
    session = TokenConversation(Letters(rewrites=True), "m")
    messages = [message("user", "hi")]
    say(session, messages, sampled("yo"))
    messages.append(message("user", "and"))
    prompt = session.begin(messages, [], {})
    assert prompt.reason is ForkReason.TEMPLATE_REWRITES_HISTORY
    assert prompt.detail == "thoughts are left out"
    assert (prompt.parent, prompt.keep) == (0, len("<uhi><ayo>"))


def test_two_continuations_of_a_turn_are_a_branch_whichever_ends_first() -> None:
    session = TokenConversation(Letters(), "m")
    messages = [message("user", "hi")]
    say(session, messages, sampled("yo"))
    left = session.begin([*messages, message("user", "l")], [], {})
    right = session.begin([*messages, message("user", "r")], [], {})
    assert (left.reason, right.reason) == (ForkReason.EXTENDS, ForkReason.EXTENDS)
    session.finish(right, Sampling(), sampled("R"), message("assistant", "R"))
    session.finish(left, Sampling(), sampled("L"), message("assistant", "L"))
    ledger = session.ledger()
    assert [call.reason for call in ledger.calls] == [ForkReason.FIRST, ForkReason.EXTENDS, ForkReason.BRANCH]
    assert text_of(ids_of(ledger.calls, 2)) == "<uhi><ayo><ul><aL>"
    assert text_of(ids_of(ledger.calls, 1)) == "<uhi><ayo><ur><aR>"


def test_the_same_question_asked_twice_is_a_branch() -> None:
    session = TokenConversation(Letters(), "m")
    say(session, [message("user", "hi")], sampled("yo"))
    prompt = session.begin([message("user", "hi")], [], {})
    assert prompt.reason is ForkReason.BRANCH
    assert prompt.keep == len(prompt.ids)


def test_reasoning_that_a_client_leaves_out_does_not_break_the_chain() -> None:
    session = TokenConversation(Letters(), "m")
    prompt = session.begin([message("user", "hi")], [], {})
    answer = {"role": "assistant", "content": "yo", "reasoning_content": "hm"}
    session.finish(prompt, Sampling(), sampled("hmyo"), answer)
    for echoed in (message("assistant", "yo"), answer):
        assert session.begin([message("user", "hi"), echoed, message("tool", "x")], [], {}).reason == "extends"
    other = {**answer, "reasoning_content": "ha"}
    assert session.begin([message("user", "hi"), other, message("tool", "x")], [], {}).reason == "history_edited"


def test_calls_match_by_what_they_say_and_not_by_ids_or_spacing() -> None:
    session = TokenConversation(Letters(), "m")
    prompt = session.begin([message("user", "hi")], [], {})
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1,"b":2}'}}
    session.finish(prompt, Sampling(), sampled("f"), {"role": "assistant", "content": None, "tool_calls": [call]})
    again = {"id": "x", "type": "function", "function": {"name": "f", "arguments": '{ "b": 2, "a": 1 }'}}
    echoed = {"role": "assistant", "content": "", "tool_calls": [again]}
    assert session.begin([message("user", "hi"), echoed, message("tool", "x")], [], {}).reason == "extends"


def test_an_engine_that_renders_itself_is_checked_call_by_call() -> None:
    session = TokenConversation(None, "m")
    first, answer = [message("user", "hi")], message("assistant", "yo")
    session.observe(first, [], [1, 2, 3], 1.0, GeneratedTokens([4, 5], [-1, -1], "stop"), answer)
    second = [*first, answer, message("tool", "x")]
    session.observe(second, [], [1, 2, 3, 4, 5, 6], 1.0, GeneratedTokens([7], [-1], "stop"), message("assistant", "a"))
    third = [*second, message("assistant", "a"), message("tool", "y")]
    session.observe(
        third, [], [1, 2, 3, 9, 5, 6, 7, 8], 1.0, GeneratedTokens([10], [-1], "stop"), message("assistant", "b")
    )
    audit_result = audit(session.ledger())
    assert [call.reason for call in session.ledger().calls] == ["first", "extends", "engine_retokenised"]
    assert (audit_result.drift_at, audit_result.drift, audit_result.is_exact) == ([(2, 3)], 4, False)
    assert audit_result.ids_sent == 0


def test_the_audit_says_what_was_sampled_by_which_weights_and_what_is_masked() -> None:
    session = TokenConversation(Letters(), "m")
    messages = [message("user", "hi")]
    spans = (WeightSpan("v1", 0, 1), WeightSpan("v2", 1, 3))
    made = GeneratedTokens([ord("a"), ord("b"), CLOSE], [-1.0] * 3, "stop", "processed", spans)
    say(session, messages, made)
    messages.append(message("tool", "x"))
    prompt = session.begin(messages, [], {})
    session.finish(prompt, Sampling(), sampled("c"), message("assistant", "c"), masked="bad_logprobs")
    audit_result = audit(session.ledger())
    assert audit_result.weight_versions == {"v1": 1, "v2": 2, "unknown": 2}
    assert audit_result.logprob_modes == {"processed": 1, "raw": 1}
    assert (audit_result.masked, audit_result.masked_share) == ({"bad_logprobs": 2}, 0.4)
    assert [(each.calls, each.trained) for each in audit_result.segments] == [(2, 3)]
    assert audit_result.sources["sampled"] == 5
    assert list(training_fields(session.ledger()))[1] is None


@pytest.mark.parametrize(
    "made",
    [
        GeneratedTokens([1, 2], [-1.0], "stop"),
        GeneratedTokens([1], [float("nan")], "stop"),
        GeneratedTokens([1], [float("-inf")], "stop"),
        GeneratedTokens([1], [0.5], "stop"),
        GeneratedTokens([1], [None], "stop"),  # type: ignore[list-item] # as engines write it in JSON
        GeneratedTokens([], [], "stop"),
    ],
)
def test_a_generation_that_is_not_a_whole_bundle_is_refused(made: GeneratedTokens) -> None:
    with pytest.raises(BadGeneration):
        check_generation(made)


def test_a_ledger_that_does_not_hold_together_is_named() -> None:
    session = TokenConversation(Letters(), "m")
    messages = [message("user", "hi")]
    say(session, messages, sampled("yo"))
    packed = pack_ledger(session.ledger())
    assert read_ledger({LEDGER: packed}) == session.ledger()
    packed["calls"][0]["logprobs"].pop()
    with pytest.raises(BadLedger, match="3 sampled ids and 2 logprobs"):
        read_ledger({LEDGER: packed})
    with pytest.raises(BadLedger, match="schema 9 is newer"):
        read_ledger({LEDGER: {**packed, "schema_version": 9}})


def test_items_with_whole_prompts_become_a_ledger_and_back() -> None:
    def item(prompt: list[int], made: list[int]) -> JsonObject:
        bundle = {"prompt_token_ids": prompt, "generation_token_ids": made, "generation_log_probs": [-1.0] * len(made)}
        return {"type": "message", "role": "assistant", "content": "x", **bundle}

    output = [item([1, 2], [3]), {"type": "function_call_output"}, item([1, 2, 3, 4], [5]), item([1, 9], [6])]
    before = [dict(each) for each in output]
    record = {"response": {"output": output, "model": "m"}}
    packed = ledger_from_items(record["response"])
    assert packed is not None
    assert [call["delta"] for call in packed["calls"]] == [[1, 2], [4], [9]]
    assert [each.get(TOKEN_CALL) for each in output] == [0, None, 1, 2]
    assert add_training_fields({**record, LEDGER: packed})["response"]["output"] == before
    assert ledger_from_items({"output": [{"type": "message"}]}) is None


# --- properties ------------------------------------------------------------------------------------------------------

Step = tuple[str, str, int | None]
steps = st.lists(
    st.tuples(
        st.sampled_from(["go", "go", "go", "tool", "edit", "shorten", "branch", "sub", "retry", "tools"]),
        st.text("abc", max_size=4),
        st.sampled_from([CLOSE, CLOSE, OTHER_STOP, None]),
    ),
    min_size=1,
    max_size=12,
)


def changed(kind: str, messages: list[JsonObject], draw: random.Random) -> list[JsonObject]:
    """The conversation of the next call, as a harness may have changed it."""
    others = [index for index, each in enumerate(messages) if each["role"] != "assistant"]
    if kind == "edit" and messages:
        index = draw.randrange(len(messages))
        return [*messages[:index], {**messages[index], "content": "edited"}, *messages[index + 1 :]]
    if kind == "shorten":
        return [messages[0], *messages[draw.randrange(len(messages)) :]]
    if kind == "branch":
        return messages[: draw.choice(others) + 1]
    return messages


@given(steps=steps, rewrites=st.booleans(), seed=st.integers(0, 1000))
def test_whatever_a_harness_does_tokens_are_exact_and_counted_once(
    *, steps: list[Step], rewrites: bool, seed: int
) -> None:
    draw = random.Random(seed)
    renderer = Letters(rewrites=rewrites)
    session = TokenConversation(renderer, "m")
    messages = [message("user", "hi")]
    sequences: list[list[int]] = []
    made_ids = 0
    for kind, text, end in steps:
        if kind == "retry":
            continue
        messages = [message("user", f"sub {text}")] if kind == "sub" else changed(kind, messages, draw)
        if messages[-1]["role"] == "assistant":
            messages = [*messages, message("tool" if kind == "tool" else "user", text)]
        prompt = session.begin(messages, [{"n": 1}] if kind == "tools" else [], {})
        if prompt.parent is not None:
            assert prompt.ids[: prompt.keep] == sequences[prompt.parent][: prompt.keep]
        if prompt.reason is ForkReason.EXTENDS:
            assert prompt.parent is not None
            assert prompt.keep == len(sequences[prompt.parent])
        elif prompt.reason not in {ForkReason.BRANCH, ForkReason.STOP_TOKEN_OFF_TEMPLATE}:
            whole = renderer.prompt(messages, [{"n": 1}] if kind == "tools" else [], {})
            assert prompt.ids == list(whole.ids)
        made = sampled(text, end) if text or end is not None else sampled("x", None)
        answer = message("assistant", renderer.parse(made.token_ids).content)
        session.finish(prompt, Sampling(), made, answer)
        sequences.append(prompt.ids + list(made.token_ids))
        made_ids += len(made.token_ids)
        messages = [*messages, answer]
    ledger = session.ledger()
    assert [ids_of(ledger.calls, number) for number in range(len(sequences))] == sequences
    assert sum(sum(segment.mask) for segment in segments(ledger)) == made_ids
    for segment in segments(ledger):
        assert segment.ids == sequences[segment.calls[-1]]
    assert audit(ledger).drift == 0
    assert read_ledger({LEDGER: pack_ledger(ledger)}) == ledger
