"""Conversations to text that is safe to split: shielded, marked, and checked that nothing was left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.tokens.marking import MARKS_NEEDED, Kind, Marks
from gymnast.tokens.probing import prepared, probe
from gymnast.tokens.rendering import NotRenderable
from gymnast.tokens.shielding import Shield, private_characters
from gymnast.tokens.spelling import compiled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from gymnast.tokens.chat_template import ChatTemplate
    from gymnast.tokens.families.family import Family
    from gymnast.tokens.tokenizer import Tokenizer
    from gymnast.types.json import JsonObject

_NEVER_LOST: Final = {Kind.USER: "what a user said", Kind.TOOL: "a tool's result", Kind.CALL: "a tool call"}


@dataclass(frozen=True, slots=True)
class Drawn:
    """Rendered text with its marks."""

    text: str
    marks: Marks


class Artist:
    """Renders with one template for one vocabulary."""

    def __init__(self, template: ChatTemplate, family: Family, tokenizer: Tokenizer) -> None:
        self._template = template
        self._family = family
        self.abilities = probe(template, family)
        controls = list(tokenizer.control_tokens)
        self._tags = compiled(family.spoken)
        self._given = Shield(controls)
        self._words = Shield(controls, family.spoken)
        self._settings = Shield(controls, partial=False)

    def now(self) -> datetime:
        """The template's clock."""
        return self._template.now()

    def plain(
        self,
        messages: Sequence[JsonObject],
        tools: Sequence[JsonObject],
        args: Mapping[str, object],
        *,
        to_generate: bool,
        now: datetime,
    ) -> str:
        """Text of messages that we made up: nothing to shield or to mark."""
        ready = prepared(messages, self.abilities, self._family)
        return self._template.render(ready, tools, args, to_generate=to_generate, now=now)

    def draw(
        self,
        messages: Sequence[JsonObject],
        tools: Sequence[JsonObject],
        args: Mapping[str, object],
        *,
        to_generate: bool,
        given_before: int = 0,
        now: datetime | None = None,
    ) -> Drawn:
        """Text of a conversation; the first `given_before` messages are made up. Raises NotRenderable."""
        if tools and not self.abilities.tools:
            raise NotRenderable("the chat template has no place for tools")
        made_up, given = messages[:given_before], messages[given_before:]
        marks = Marks(private_characters(MARKS_NEEDED, (given, tools, args)))
        ready = prepared([*made_up, *given], self.abilities, self._family)
        shielded = [
            *ready[:given_before],
            *(self._shielded(message, marks.breaker) for message in ready[given_before:]),
        ]
        safe_tools = self._given.value(list(tools), marks.breaker)
        safe_args = {name: self._settings.value(value, marks.breaker) for name, value in args.items()}
        marked = [
            *shielded[:given_before],
            *(marks.message(message, self._tags) for message in shielded[given_before:]),
        ]
        at = now or self.now()
        plain = self._template.render(shielded, safe_tools, safe_args, to_generate=to_generate, now=at)
        try:
            text = self._template.render(marked, safe_tools, safe_args, to_generate=to_generate, now=at)
        except NotRenderable:
            return Drawn(plain, marks)
        if marks.without_marks(text) != plain:  # the template looks at texts: what it wrote counts, marks do not
            return Drawn(plain, marks)
        if lost := marks.lost(text) & _NEVER_LOST.keys():
            raise NotRenderable(f"the chat template leaves out {_NEVER_LOST[min(lost)]}")
        return Drawn(text, marks)

    def shielded(self, text: str, marks: Marks) -> str:
        """One given text, safe to stand in a drawn one."""
        return self._given.text(text, marks.breaker)

    def shielded_message(self, message: JsonObject, marks: Marks) -> JsonObject:
        """One message, as it is drawn."""
        [ready] = prepared([message], self.abilities, self._family)
        return marks.message(self._shielded(ready, marks.breaker), self._tags)

    def _shielded(self, message: JsonObject, breaker: str) -> JsonObject:
        shielded: JsonObject = self._given.value(message, breaker)
        if str(message["role"]).isidentifier():  # a bare word, and templates compare roles
            shielded["role"] = message["role"]
        if message["role"] == "assistant" and isinstance(message.get("content"), str):
            shielded["content"] = self._words.text(message["content"], breaker)
        return shielded
