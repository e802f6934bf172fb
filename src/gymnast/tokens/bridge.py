"""Derives the tokens a template writes between a generation and the next one, from short stand-ins for the history.

Compares two renderings of the stand-in: the prompt of the last turn, and the conversation continued after that turn.
If the second does not start with the first, or drops part of the last turn, the template rewrites history and the
bridge is refused. A turn ends at a token that the template writes there; EOS tokens are not counted.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

from gymnast.tokens.families.thoughts import CLOSE
from gymnast.tokens.marked_text import MarkedText
from gymnast.tokens.probing import DUMMY_TOOL
from gymnast.tokens.prompt_cache import PromptCache
from gymnast.tokens.rendering import Extension, NotRenderable, Refusal, Rendered
from gymnast.tokens.shapes import PLACEHOLDER, SYSTEM_ROLES, StandIn, earlier_shapes, last_shape, make_stand_in
from gymnast.types.tokens import ForkReason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from gymnast.tokens.families.family import ParseResult
    from gymnast.tokens.marked_text import MarkedTextRenderer
    from gymnast.tokens.rendering import ParsedTurn
    from gymnast.tokens.shapes import Shape
    from gymnast.tokens.splitting import Splitter
    from gymnast.types.json import JsonObject

_OPEN_THOUGHT: Final = re.compile(r"<think>\s*\Z")
_MAX_CACHED: Final = 256
_MAX_BRIDGE_IDS: Final = 200_000
"""Ids in all cached bridges together."""


@dataclass(frozen=True, slots=True)
class RenderedStandIn:
    """A stand-in with its prompt for the last turn, and the text that the template writes after that turn."""

    stand_in: StandIn
    prompt: str
    closing: str
    """The text after the last placeholder when the conversation ends with the turn."""
    rendered_at: datetime
    number: int
    """Tells it from every other one of its renderer."""


class _RefusedError(Exception):
    """The template does not continue a conversation as it was sampled."""


class TurnParser(Protocol):
    """Parses the generation, given whether the prompt opened a thought."""

    def __call__(self, *, in_thought: bool) -> ParseResult: ...


class Bridges:
    """Derives bridges for one renderer.

    Rendered stand-ins are cached: a conversation needs only a few. So are bridges: rollouts of a group often get the
    same results of the same calls, and rendering one takes as long as the rest of a turn.
    """

    def __init__(
        self,
        renderer: MarkedTextRenderer,
        splitter: Splitter,
        stops: frozenset[int],
        turn_ends: frozenset[int],
        *,
        thinks: bool,
    ) -> None:
        """`turn_ends`: tokens that may end a turn. `thinks`: thoughts are in tags, which a prompt may open."""
        self._thinks = thinks
        self._renderer = renderer
        self._splitter = splitter
        self._stops = stops
        self._turn_ends = turn_ends
        self._cache: OrderedDict[tuple[object, ...], RenderedStandIn] = OrderedDict()
        self._numbers = count()
        self._bridges = PromptCache(_MAX_BRIDGE_IDS)

    def derive(
        self,
        history: Sequence[JsonObject],
        generated: Sequence[int],
        new: Sequence[JsonObject],
        tools: Sequence[JsonObject],
        args: Mapping[str, object],
        parse: TurnParser,
    ) -> Extension | Refusal:
        """Derive the tokens between the generation and the next one."""
        try:
            return self._derive(_Turn(history, earlier_shapes(history), generated, new, bool(tools), args), parse)
        except NotRenderable as reason:
            return _refuse(str(reason))

    def _derive(self, turn: _Turn, parse: TurnParser) -> Extension | Refusal:
        parsed = parse(in_thought=self._thinks and self._opens_thought(turn))
        if parsed.is_thought_open and turn.stop_of(self._stops) is not None:
            return _refuse("the turn ended inside a thought, which no template writes")
        turn = turn.with_sampled_ids(parsed.turn)
        has_content = bool(str(turn.history[-1].get("content") or "").strip())
        if parsed.is_thought_open:
            return self._try_bridge(turn, has_thought=True, has_content=False, in_thought=True)
        thought = parsed.turn.reasoning
        if thought == "":  # perhaps what the template writes for no thought
            bridge = self._try_bridge(turn, has_thought=False, has_content=has_content, with_empty_thought=True)
            if isinstance(bridge, Extension):
                return bridge
        has_thought = thought is not None or bool(turn.history[-1].get("reasoning_content"))
        return self._try_bridge(turn, has_thought=has_thought, has_content=has_content)

    def _opens_thought(self, turn: _Turn) -> bool:
        before = self._render_before(turn, has_thought=False, has_content=False)
        return _OPEN_THOUGHT.search(before.prompt) is not None

    def _try_bridge(
        self,
        turn: _Turn,
        *,
        has_thought: bool,
        has_content: bool,
        in_thought: bool = False,
        with_empty_thought: bool = False,
    ) -> Extension | Refusal:
        before = self._render_before(turn, has_thought=has_thought, has_content=has_content)
        key = [before.number, in_thought, with_empty_thought, *turn.parts(with_ids=self._renderer.features.writes_ids)]

        def render() -> Rendered:
            return self._render_following(turn, before, in_thought=in_thought, with_empty_thought=with_empty_thought)

        try:
            return self._join(turn, self._bridges.get(key, render))
        except _RefusedError as refused:
            return _refuse(str(refused))

    def _render_following(
        self, turn: _Turn, before: RenderedStandIn, *, in_thought: bool, with_empty_thought: bool
    ) -> Rendered:
        """Render what follows the generation, from the token that closes it."""
        stand_in, after = before.stand_in, self._render_after(turn, before)
        start = len(before.prompt)
        if not after.text.startswith(before.prompt):
            raise _RefusedError("the template renders earlier turns differently once the conversation continues")
        end = _end_of_placeholders(stand_in, after.text, start)
        if end is None:
            raise _RefusedError("the template leaves out part of the last turn")
        if with_empty_thought and CLOSE not in after.text[start:end]:
            raise _RefusedError("the template does not write empty thoughts")
        close = self._find_turn_end(after.text, end, len(before.closing) + turn.id_length)
        if close is None:
            raise _RefusedError("the template does not close the last turn")
        if in_thought and stand_in.thought is not None:
            close = after.text.index(stand_in.thought, start) + len(stand_in.thought)
        following = self._fill_in(turn, stand_in, MarkedText(after.text[close:], after.marks))
        if PLACEHOLDER.search(following.text):
            raise _RefusedError("the template repeats the text of earlier turns")
        return self._splitter.tokenise(following.text, following.marks)

    def _fill_in(self, turn: _Turn, stand_in: StandIn, following: MarkedText) -> MarkedText:
        """Replace placeholders that a template repeats after the turn: names of called tools, the system prompt."""
        text = following.text
        for name, call in zip(stand_in.names, turn.history[-1].get("tool_calls") or (), strict=True):
            if name in text:
                text = text.replace(name, self._renderer.escape_text(call["function"]["name"], following.marks))
        if stand_in.system and stand_in.system in text:
            system = self._renderer.escape_message(turn.history[0], following.marks)
            text = text.replace(stand_in.system, system["content"])
        return MarkedText(text, following.marks)

    def _render_before(self, turn: _Turn, *, has_thought: bool, has_content: bool) -> RenderedStandIn:
        shapes = (*turn.shapes, last_shape(turn.history[-1], has_thought=has_thought, has_content=has_content))
        key = (shapes, turn.has_tools, repr(sorted(turn.args.items())))
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        before = self._cache[key] = self._render_stand_in(shapes, turn)
        if len(self._cache) > _MAX_CACHED:
            self._cache.popitem(last=False)
        return before

    def _render_stand_in(self, shapes: Sequence[Shape], turn: _Turn) -> RenderedStandIn:
        stand_in = make_stand_in(shapes)
        now = self._renderer.now()
        messages, tools, args = stand_in.messages, turn.tools, turn.args
        prompt = self._renderer.render_plain(messages[:-1], tools, args, add_generation_prompt=True, now=now)
        closed = self._renderer.render_plain(messages, tools, args, add_generation_prompt=False, now=now)
        end = _end_of_placeholders(stand_in, closed, 0)
        return RenderedStandIn(stand_in, prompt, closed[end:] if end is not None else "", now, next(self._numbers))

    def _render_after(self, turn: _Turn, before: RenderedStandIn) -> MarkedText:
        stand_in = before.stand_in.with_ids(turn.history[-1])
        return self._renderer.render(
            [*stand_in, *turn.new],
            turn.tools,
            turn.args,
            add_generation_prompt=True,
            stand_in_count=len(stand_in),
            now=before.rendered_at,
        )

    def _find_turn_end(self, text: str, start: int, max_distance: int) -> int | None:
        """Where the turn ends: the first closing token, which must belong to the turn or start the next one."""
        for position, token_id in self._splitter.find_controls(text, start):
            if position - start > max_distance:
                return None
            if token_id in self._turn_ends:
                return position
        return None

    def _join(self, turn: _Turn, following: Rendered) -> Extension:
        """Skip the closing token if it was sampled; cut a different stop token sampled in its place."""
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
        """How much longer than placeholders the real call ids can make the end of a turn."""
        return sum(len(str(call.get("id", ""))) for call in self.history[-1].get("tool_calls") or ())

    def parts(self, *, with_ids: bool) -> list[object]:
        """Everything beyond the shapes that what follows this turn can depend on."""
        calls = self.history[-1].get("tool_calls") or ()
        names = [call["function"]["name"] for call in calls]
        system = self.history[0] if self.history[0].get("role") in SYSTEM_ROLES else None
        ids = [call.get("id") for call in calls]
        if with_ids:
            return [names, system, self.new, ids]
        # Which call a result belongs to can matter, the text of its id cannot.
        numbers = [
            ids.index(call_id) if (call_id := message.get("tool_call_id")) in ids else -1 for message in self.new
        ]
        new = [{key: value for key, value in message.items() if key != "tool_call_id"} for message in self.new]
        return [names, system, new, numbers, self.id_length]

    def with_sampled_ids(self, turn: ParsedTurn) -> _Turn:
        """Use the call ids that the model wrote, if any: tool results must refer to them."""
        calls = self.history[-1].get("tool_calls") or ()
        ids = {call.get("id"): sampled.id for call, sampled in zip(calls, turn.tool_calls, strict=False) if sampled.id}
        if not ids:
            return self
        last = {**self.history[-1], "tool_calls": [{**call, "id": ids.get(call.get("id"))} for call in calls]}
        new = [
            {**message, "tool_call_id": ids[call_id]} if (call_id := message.get("tool_call_id")) in ids else message
            for message in self.new
        ]
        return replace(self, history=[*self.history[:-1], last], new=new)

    def stop_of(self, stops: frozenset[int]) -> int | None:
        """The stop token that sampling ended on."""
        return self.generated[-1] if self.generated and self.generated[-1] in stops else None


def _end_of_placeholders(stand_in: StandIn, text: str, start: int) -> int | None:
    """The end of the last placeholder; the start if there are none; None if one is missing."""
    end = start
    for word in (*([stand_in.thought] if stand_in.thought else []), *stand_in.placeholders):
        position = text.find(word, start)
        if position < 0:
            return None
        end = max(end, position + len(word))
    return end


def _without_first(rendered: Rendered) -> Rendered:
    (source, count), *rest = rendered.sources
    sources = [(source, count - 1), *rest] if count > 1 else rest
    return Rendered(rendered.ids[1:], tuple(sources))


def _refuse(detail: str) -> Refusal:
    return Refusal(ForkReason.TEMPLATE_REWRITES_HISTORY, detail)
