"""On every pair, whole sessions: ids extend or fork with a reason, and masks are exactly what was sampled."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.tokens.audit import audit
from gymnast.tokens.backend import GeneratedTokens, Sampling
from gymnast.tokens.conversation import TokenConversation
from gymnast.tokens.export import ids_of as sequence_of
from gymnast.tokens.export import segments
from gymnast.tokens.messages import turn_to_message
from gymnast.tokens.rendering import NotRenderable
from gymnast.tokens.template import TemplateRenderer
from gymnast.types.tokens import ForkReason
from tests.tokens.conversations import TOOLS, said, user
from tests.tokens.pairs import BY_NAME, PAIRS, needs_cache, renderer
from tests.tokens.test_bridges import conversations, quick
from tests.tokens.turns import MANNERS, Message, ids_of

pytestmark = needs_cache
NAMES = [pair.name for pair in PAIRS]


class Harness:
    """Plays a conversation against a session, as a client that now and then meddles with its history."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.renderer: TemplateRenderer = renderer(name)
        self.manners = MANNERS[name]
        self.chance = chance
        self.session = TokenConversation(self.renderer, "m")
        self.sent: list[tuple[list[int], list[int]]] = []
        """Prompt and generation of every call, as the engine saw them."""

    def play(self, conversation: list[Message]) -> None:
        history: list[Message] = []
        for at, message in enumerate(conversation):
            if message["role"] != "assistant":
                history.append(message)
                continue
            following = conversation[at + 1] if at + 1 < len(conversation) else None
            history = self._meddled(history)
            answer = self._turn(history, message, following)
            if answer is None:
                return
            # Later results name the calls that the conversation has; the ids of a call are not the point here.
            for real, given_call in zip(answer.get("tool_calls", ()), message.get("tool_calls", ()), strict=False):
                real["id"] = given_call["id"]
            history.append(answer)

    def _turn(self, history: list[Message], message: Message, following: Message | None) -> Message | None:
        tools = TOOLS if self.manners.tools else []
        try:
            prompt = self.session.begin(history, tools, BY_NAME[self.name].args)
        except NotRenderable:
            return None  # said, and nothing is sent
        made = self._sampled(message, following)
        meant = self.renderer.parse(made, prompt.ids, tools)
        names = [f"call{len(self.sent):03d}{index:02d}" for index in range(len(meant.tool_calls))]
        answer = turn_to_message(meant, names)
        generated = GeneratedTokens(made, [-0.5] * len(made), "stop")
        self.session.finish(prompt, Sampling(), generated, answer)
        self.sent.append((prompt.ids, made))
        return answer

    def _sampled(self, message: Message, following: Message | None) -> list[int]:
        """Odd tokens of what the family writes; cut off, or ended by one of its stops."""
        odd = self.chance if self.chance.random() < 0.5 else None
        ids = ids_of(self.renderer, self.manners.write(message), odd)
        ending = self.chance.random()
        if ending < 0.15:
            return ids[: self.chance.randint(1, len(ids))]
        if ending < 0.3:
            return [*ids, self.chance.choice(self.renderer.stop_token_ids)]
        return [*ids, *ids_of(self.renderer, self.manners.stop(message, following))]

    def _meddled(self, history: list[Message]) -> list[Message]:
        action = self.chance.random()
        if action < 0.1 and len(history) > 2:
            at = self.chance.randrange(len(history))
            return [*history[:at], {**history[at], "content": "edited"}, *history[at + 1 :]]
        if action < 0.2:
            return [{key: value for key, value in each.items() if key != "reasoning_content"} for each in history]
        return history


@pytest.mark.parametrize("name", NAMES)
@quick
@given(data=st.data(), seed=st.integers(0, 10_000))
def test_sessions_are_exact_whatever_is_said_cut_off_or_edited(name: str, data: Any, seed: int) -> None:
    harness = Harness(name, random.Random(seed))
    harness.play(data.draw(conversations(MANNERS[name])))
    ledger = harness.session.ledger()
    sequences = [prompt + made for prompt, made in harness.sent]
    assert [sequence_of(ledger.calls, number) for number in range(len(ledger.calls))] == sequences
    for number, call in enumerate(ledger.calls):
        if call.reason is ForkReason.EXTENDS:
            assert call.parent is not None
            assert harness.sent[number][0][: call.keep] == sequences[call.parent]
    trained = [(segment, place) for segment in segments(ledger) for place, bit in enumerate(segment.mask) if bit]
    assert len(trained) == sum(len(made) for _, made in harness.sent)
    for segment in segments(ledger):
        last = harness.sent[segment.calls[-1]]
        decode = harness.renderer.tokenizer.decode
        assert decode(segment.ids) == decode(last[0] + last[1])
        assert [place for place, bit in enumerate(segment.mask) if bit] == _sampled_places(harness, segment.calls)
    assert audit(ledger).drift == 0


def _sampled_places(harness: Harness, calls: tuple[int, ...]) -> list[int]:
    return [
        place for number in calls for place in range(len(harness.sent[number][0]), sum(map(len, harness.sent[number])))
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_fresh_render_never_splices_an_old_history(name: str) -> None:
    """Incumbents kept the last turn's ids when a harness had edited what came before it."""
    harness = Harness(name, random.Random(1))
    manners = MANNERS[name]
    first = [user("one")]
    thought = "hm" if manners.always_thinks else None
    answer = said("two", thought=thought)
    prompt = harness.session.begin(first, [], BY_NAME[name].args)
    made = [*ids_of(harness.renderer, manners.write(answer)), harness.renderer.stop_token_ids[0]]
    harness.session.finish(prompt, Sampling(), GeneratedTokens(made, [-1.0] * len(made), "stop"), answer)
    edited = [user("1"), answer, user("three")]
    again = harness.session.begin(edited, [], BY_NAME[name].args)
    assert again.reason is ForkReason.HISTORY_EDITED
    assert again.ids == list(harness.renderer.prompt(edited, [], BY_NAME[name].args).ids)
