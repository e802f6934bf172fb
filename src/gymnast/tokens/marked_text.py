"""Renders conversations to text that is safe to split: escaped, marked, and checked for dropped messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.tokens.escape_controls import ControlEscaper, unused_private_chars
from gymnast.tokens.literal_match import compile_literals
from gymnast.tokens.marking import MARKS_NEEDED, Marks, TextKind
from gymnast.tokens.probing import prepare_messages, probe_template
from gymnast.tokens.rendering import NotRenderable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from gymnast.tokens.chat_template import ChatTemplate
    from gymnast.tokens.families.family import Family
    from gymnast.tokens.tokenizer import Tokenizer
    from gymnast.types.json import JsonObject

_REQUIRED: Final = {TextKind.USER: "a user's text", TextKind.TOOL: "a tool's result", TextKind.CALL: "a tool call"}


@dataclass(frozen=True, slots=True)
class MarkedText:
    """Rendered text with its marks."""

    text: str
    marks: Marks


class MarkedTextRenderer:
    """Renders with one template for one vocabulary."""

    def __init__(self, template: ChatTemplate, family: Family, tokenizer: Tokenizer) -> None:
        self._template = template
        self._family = family
        self.features = probe_template(template, family)
        controls = list(tokenizer.control_tokens)
        self._tags = compile_literals(family.assistant_tags)
        self._escaper = ControlEscaper(controls)
        self._assistant_escaper = ControlEscaper(controls, family.assistant_tags)
        self._args_escaper = ControlEscaper(controls, partial=False)

    def now(self) -> datetime:
        """The time that the template sees."""
        return self._template.now()

    def render_plain(
        self,
        messages: Sequence[JsonObject],
        tools: Sequence[JsonObject],
        args: Mapping[str, object],
        *,
        add_generation_prompt: bool,
        now: datetime,
    ) -> str:
        """Render stand-in messages, which need no escaping or marks."""
        ready = prepare_messages(messages, self.features, self._family)
        return self._template.render(ready, tools, args, add_generation_prompt=add_generation_prompt, now=now)

    def render(
        self,
        messages: Sequence[JsonObject],
        tools: Sequence[JsonObject],
        args: Mapping[str, object],
        *,
        add_generation_prompt: bool,
        stand_in_count: int = 0,
        now: datetime | None = None,
    ) -> MarkedText:
        """Render a conversation whose first `stand_in_count` messages are stand-ins. Raises NotRenderable."""
        if tools and not self.features.tools:
            raise NotRenderable("the chat template does not support tools")
        marks = Marks(unused_private_chars(MARKS_NEEDED, (messages[stand_in_count:], tools, args)))
        ready = prepare_messages(messages, self.features, self._family)
        stand_ins = ready[:stand_in_count]
        escaped = [self._escape(message, marks.separator) for message in ready[stand_in_count:]]
        marked = [marks.mark_message(message, self._tags) for message in escaped]
        safe_tools = self._escaper.escape_value(list(tools), marks.separator)
        safe_args = {name: self._args_escaper.escape_value(value, marks.separator) for name, value in args.items()}
        time = now or self.now()

        def render(texts: list[JsonObject]) -> str:
            conversation = [*stand_ins, *texts]
            return self._template.render(
                conversation, safe_tools, safe_args, add_generation_prompt=add_generation_prompt, now=time
            )

        plain = render(escaped)
        try:
            text = render(marked)
        except NotRenderable:
            return MarkedText(plain, marks)
        if marks.strip_marks(text) != plain:  # the template inspects texts, and marks changed its output
            return MarkedText(plain, marks)
        if lost := marks.lost_kinds(text) & _REQUIRED.keys():
            raise NotRenderable(f"the chat template leaves out {_REQUIRED[min(lost)]}")
        return MarkedText(text, marks)

    def escape_text(self, text: str, marks: Marks) -> str:
        """Escape one text for insertion into rendered text."""
        return self._escaper.escape_text(text, marks.separator)

    def escape_message(self, message: JsonObject, marks: Marks) -> JsonObject:
        """Escape and mark one message, as `render` does."""
        [ready] = prepare_messages([message], self.features, self._family)
        return marks.mark_message(self._escape(ready, marks.separator), self._tags)

    def _escape(self, message: JsonObject, separator: str) -> JsonObject:
        escaped: JsonObject = self._escaper.escape_value(message, separator)
        if str(message["role"]).isidentifier():  # a bare word, and templates compare roles
            escaped["role"] = message["role"]
        if message["role"] == "assistant" and isinstance(message.get("content"), str):
            escaped["content"] = self._assistant_escaper.escape_text(message["content"], separator)
        return escaped
