"""What a template writes between a generation and the next one, derived from short stand-ins for the history.

Two renderings of the stand-in are compared: the prompt that the last turn answered, and the conversation that goes on
after it. If the second does not begin with the first, or leaves out what the last turn said, the template rewrites
history and the bridge is refused. Turns end at tokens that the template writes there; EOS tokens are never counted.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from gymnast.tokens.drawing import Drawn
from gymnast.tokens.families.thoughts import CLOSE
from gymnast.tokens.probing import DUMMY_TOOL
from gymnast.tokens.rendering import Extension, NotRenderable, Refusal, Rendered
from gymnast.tokens.shapes import MADE_UP, StandIn, last_shape, shapes_before, stand_in
from gymnast.types.tokens import ForkReason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from gymnast.tokens.drawing import Artist
    from gymnast.tokens.families.family import Parsed
    from gymnast.tokens.rendering import Said
    from gymnast.tokens.shapes import Shape
    from gymnast.tokens.splitting import Splitter
    from gymnast.types.json import JsonObject

_OPEN_THOUGHT: Final = re.compile(r"<think>\s*\Z")
_MOST_KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class Before:
    """A stand-in, rendered up to where its last turn speaks, and what the template writes after that turn's words."""

    stand_in: StandIn
    prompt: str
    closing: str
    """What follows the last made-up word when the conversation ends with the turn."""
    drawn_at: datetime


class ReadTurn(Protocol):
    """Parses the generation, told whether the prompt had opened a thought."""

    def __call__(self, *, in_thought: bool) -> Parsed: ...


class Bridges:
    """Derives bridges for one renderer. Stand-ins are kept: a conversation needs few different ones."""

    def __init__(
        self, artist: Artist, splitter: Splitter, stops: frozenset[int], closes: frozenset[int], *, thinks: bool
    ) -> None:
        """`closes`: tokens that may end a turn. `thinks`: thoughts stand in tags, which a prompt may have opened."""
        self._thinks = thinks
        self._artist = artist
        self._splitter = splitter
        self._stops = stops
        self._closes = closes
        self._kept: OrderedDict[tuple[object, ...], Before] = OrderedDict()

    def derive(
        self,
        history: Sequence[JsonObject],
        generated: Sequence[int],
        new: Sequence[JsonObject],
        tools: Sequence[JsonObject],
        args: Mapping[str, object],
        read: ReadTurn,
    ) -> Extension | Refusal:
        """What lies between the generation and the next one."""
        try:
            return self._derive(_Turn(history, shapes_before(history), generated, new, bool(tools), args), read)
        except NotRenderable as reason:
            return _rewrites(str(reason))

    def _derive(self, turn: _Turn, read: ReadTurn) -> Extension | Refusal:
        parsed = read(in_thought=self._thinks and self._opens_thought(turn))
        if parsed.thought_open and turn.stop_of(self._stops) is not None:
            return _rewrites("the turn ended inside a thought, which no template writes")
        turn = turn.with_sampled_ids(parsed.said)
        speaks = bool(str(turn.history[-1].get("content") or "").strip())
        if parsed.thought_open:
            return self._tried(turn, thinks=True, speaks=False, in_thought=True)
        thought = parsed.said.reasoning
        if thought == "":  # is it what the template writes for no thought?
            bridge = self._tried(turn, thinks=False, speaks=speaks, with_empty_thought=True)
            if isinstance(bridge, Extension):
                return bridge
        thinks = thought is not None or bool(turn.history[-1].get("reasoning_content"))
        return self._tried(turn, thinks=thinks, speaks=speaks)

    def _opens_thought(self, turn: _Turn) -> bool:
        before = self._before(turn, thinks=False, speaks=False)
        return _OPEN_THOUGHT.search(before.prompt) is not None

    def _tried(
        self, turn: _Turn, *, thinks: bool, speaks: bool, in_thought: bool = False, with_empty_thought: bool = False
    ) -> Extension | Refusal:
        before = self._before(turn, thinks=thinks, speaks=speaks)
        made_up, after = before.stand_in, self._after(turn, before)
        start = len(before.prompt)
        if not after.text.startswith(before.prompt):
            return _rewrites("the template writes earlier turns differently now that the conversation went on")
        end = _end_of_words(made_up, after.text, start)
        if end is None:
            return _rewrites("the template leaves out part of what the last turn said")
        if with_empty_thought and CLOSE not in after.text[start:end]:
            return _rewrites("the template does not write empty thoughts")
        close = self._close(after.text, end, len(before.closing) + turn.id_length)
        if close is None:
            return _rewrites("the template writes nothing at the end of the last turn that would close it")
        if in_thought and made_up.thought is not None:
            close = after.text.index(made_up.thought, start) + len(made_up.thought)
        following = self._with_real_words(turn, made_up, Drawn(after.text[close:], after.marks))
        if MADE_UP.search(following.text):
            return _rewrites("the template repeats what earlier turns said")
        return self._joined(turn, self._splitter.tokenise(following.text, following.marks))

    def _with_real_words(self, turn: _Turn, made_up: StandIn, following: Drawn) -> Drawn:
        """What a template says again after the turn: names of called tools, or the system prompt."""
        text = following.text
        for name, call in zip(made_up.names, turn.history[-1].get("tool_calls") or (), strict=True):
            if name in text:
                text = text.replace(name, self._artist.shielded(call["function"]["name"], following.marks))
        if made_up.lead and made_up.lead in text:
            text = text.replace(
                made_up.lead, self._artist.shielded_message(turn.history[0], following.marks)["content"]
            )
        return Drawn(text, following.marks)

    def _before(self, turn: _Turn, *, thinks: bool, speaks: bool) -> Before:
        shapes = (*turn.shapes, last_shape(turn.history[-1], thinks=thinks, speaks=speaks))
        key = (shapes, turn.has_tools, repr(sorted(turn.args.items())))
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        before = self._kept[key] = self._rendered(shapes, turn)
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return before

    def _rendered(self, shapes: Sequence[Shape], turn: _Turn) -> Before:
        made_up = stand_in(shapes)
        now = self._artist.now()
        prompt = self._artist.plain(made_up.messages[:-1], turn.tools, turn.args, to_generate=True, now=now)
        closed = self._artist.plain(made_up.messages, turn.tools, turn.args, to_generate=False, now=now)
        end = _end_of_words(made_up, closed, 0)
        return Before(made_up, prompt, closed[end:] if end is not None else "", now)

    def _after(self, turn: _Turn, before: Before) -> Drawn:
        made_up = before.stand_in.with_ids(turn.history[-1])
        messages, given = [*made_up, *turn.new], len(made_up)
        return self._artist.draw(
            messages, turn.tools, turn.args, to_generate=True, given_before=given, now=before.drawn_at
        )

    def _close(self, text: str, start: int, furthest: int) -> int | None:
        """Where the turn is closed: the first closing token, which must belong to the turn or begin the next one."""
        for at, token_id in self._splitter.controls_from(text, start):
            if at - start > furthest:
                return None
            if token_id in self._closes:
                return at
        return None

    def _joined(self, turn: _Turn, following: Rendered) -> Extension:
        """Leaves out the closing token if it was sampled; cuts another stop token that was sampled instead."""
        stop = turn.stop_of(self._stops)
        if stop is None:
            return Extension(following)
        if following.ids and following.ids[0] == stop:
            return Extension(_without_first(following))
        return Extension(following, cut=1)


@dataclass(frozen=True, slots=True)
class _Turn:
    history: Sequence[JsonObject]
    shapes: tuple[Shape, ...]
    """Of all but the last message."""
    generated: Sequence[int]
    new: Sequence[JsonObject]
    has_tools: bool
    args: Mapping[str, object]

    @property
    def tools(self) -> list[JsonObject]:
        return [DUMMY_TOOL] if self.has_tools else []

    @property
    def id_length(self) -> int:
        """How much longer the real ids of calls can make a turn's end than made-up ones."""
        return sum(len(str(call.get("id", ""))) for call in self.history[-1].get("tool_calls") or ())

    def with_sampled_ids(self, said: Said) -> _Turn:
        """Where the model wrote ids of its own, results must name those."""
        calls = self.history[-1].get("tool_calls") or ()
        own = {call.get("id"): sampled.id for call, sampled in zip(calls, said.tool_calls, strict=False) if sampled.id}
        if not own:
            return self
        last = {**self.history[-1], "tool_calls": [{**call, "id": own.get(call.get("id"))} for call in calls]}
        new = [
            {**message, "tool_call_id": own[given]} if (given := message.get("tool_call_id")) in own else message
            for message in self.new
        ]
        return replace(self, history=[*self.history[:-1], last], new=new)

    def stop_of(self, stops: frozenset[int]) -> int | None:
        """The stop token that sampling ended on."""
        return self.generated[-1] if self.generated and self.generated[-1] in stops else None


def _end_of_words(made_up: StandIn, text: str, start: int) -> int | None:
    """The end of the last made-up word; None if one is missing. Where nothing was said, the start."""
    end = start
    for word in (*([made_up.thought] if made_up.thought else []), *made_up.words):
        at = text.find(word, start)
        if at < 0:
            return None
        end = max(end, at + len(word))
    return end


def _without_first(rendered: Rendered) -> Rendered:
    (source, count), *rest = rendered.sources
    kept = [(source, count - 1), *rest] if count > 1 else rest
    return Rendered(rendered.ids[1:], tuple(kept))


def _rewrites(detail: str) -> Refusal:
    return Refusal(ForkReason.TEMPLATE_REWRITES_HISTORY, detail)
