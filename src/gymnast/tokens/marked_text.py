"""Renders conversations to text that is safe to split: escaped, marked, and checked for dropped messages.

Untrusted text stays text: the text of control tokens, whole or partial, is broken with a private-use character. It
passes through a template like any letter and is removed after the template's own control tokens have been found.
Partial tokens are broken too, because a template could complete them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.tokens.literal_match import build_literal_pattern, compile_literals
from gymnast.tokens.marking import MARKS_NEEDED, Marks, TextKind
from gymnast.tokens.probing import prepare_messages, probe_template
from gymnast.tokens.rendering import NotRenderable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from gymnast.tokens.chat_template import ChatTemplate
    from gymnast.tokens.families.family import Family
    from gymnast.tokens.tokenizer import Tokenizer
    from gymnast.types.json import JsonObject

# Words that templates compare with. They are never broken: no other text can hide in them.
_STRUCTURE: Final = frozenset(
    {"system", "developer", "user", "assistant", "tool", "ipython", "function", "text", "type", "role", "content"}
    | {"string", "number", "integer", "boolean", "object", "array", "null", "name", "description", "parameters"}
    | {"properties", "required", "arguments", "tool_calls", "reasoning_content", "thinking", "id", "tool_call_id"}
    | {"items", "enum", "default", "strict", "title", "anyOf", "oneOf", "allOf", "nullable", "json", "return"}
)
_PRIVATE: Final = re.compile("[\U0010f000-\U0010fffd]")
_FIRST_PRIVATE: Final = 0x10F000
_FIRST_UNUSED: Final = "".join(chr(_FIRST_PRIVATE + number) for number in range(64))
_MAX_TOOL_SETS: Final = 64


def unused_private_chars(number: int, values: Iterable[Any]) -> str:
    """The first private-use characters that do not occur in the values."""
    values = list(values)
    packed = _pack(values)
    if packed is not None and _PRIVATE.search(packed.decode()) is None:  # as good as always
        return _FIRST_UNUSED[:number]
    used = {character for value in values for text in _texts(value) for character in _PRIVATE.findall(text)}
    unused = (character for code in count(_FIRST_PRIVATE) if (character := chr(code)) not in used)
    return "".join(islice(unused, number))


def _pack(value: Any) -> bytes | None:
    """The value as JSON, which tells True from 1; None if it is not JSON."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return None


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, child in value.items():
            yield str(key)
            yield from _texts(child)
    elif isinstance(value, (list, tuple)):
        for child in value:
            yield from _texts(child)


class ControlEscaper:
    """Breaks the text of control tokens, except `allowed` ones. Without `partial`, only that of whole tokens."""

    def __init__(self, controls: Collection[str], allowed: Collection[str] = (), *, partial: bool = True) -> None:
        escaped = [control for control in controls if control not in allowed]
        self._whole = re.compile(f"(?={build_literal_pattern(escaped)})", re.DOTALL)
        splits = [(control, size) for control in escaped for size in range(1, len(control))] if partial else []
        self._prefixes = _by_length(control[:size] for control, size in splits)
        self._suffixes = _by_length(control[size:] for control, size in splits)
        self._infixes = "\0".join(escaped) if partial else ""
        self._max_length = max(map(len, escaped), default=0)

    def escape_text(self, text: str, separator: str) -> str:
        """Break every control token in the text, and every part of one that other text could complete."""
        if not text or text in _STRUCTURE:
            return text
        cuts = {match.start() + 1 for match in self._whole.finditer(text)}
        cuts |= {len(text) - size + 1 for size, prefixes in self._prefixes.items() if text[-size:] in prefixes}
        cuts |= {size - 1 for size, suffixes in self._suffixes.items() if text[:size] in suffixes}
        if len(text) < self._max_length and text in self._infixes:
            cuts.add(1)
        return _break_at(text, sorted(cuts), separator) if cuts else text

    def escape_value(self, value: Any, separator: str) -> Any:
        """Escape every text in a JSON value, including keys."""
        if isinstance(value, str):
            return self.escape_text(value, separator)
        if isinstance(value, dict):
            return {
                self.escape_text(str(key), separator): self.escape_value(child, separator)
                for key, child in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.escape_value(child, separator) for child in value]
        return value


def _break_at(text: str, cuts: list[int], separator: str) -> str:
    return separator.join(text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True))


def _by_length(texts: Iterable[str]) -> dict[int, frozenset[str]]:
    grouped: dict[int, set[str]] = {}
    for text in texts:
        grouped.setdefault(len(text), set()).add(text)
    return {size: frozenset(group) for size, group in grouped.items()}


_REQUIRED: Final = {TextKind.USER: "a user's text", TextKind.TOOL: "a tool's result", TextKind.CALL: "a tool call"}


@dataclass(frozen=True, slots=True)
class MarkedText:
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
        self._escaped_tools: dict[tuple[bytes, str], Any] = {}
        """By the tools and the separator: a run has few sets of tools, and templates cannot change them."""

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
        safe_tools = self._escape_tools(list(tools), marks.separator)
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

    def _escape_tools(self, tools: list[JsonObject], separator: str) -> Any:
        packed = _pack(tools)
        if packed is None:
            return self._escaper.escape_value(tools, separator)
        key = (packed, separator)
        if key not in self._escaped_tools:
            if len(self._escaped_tools) >= _MAX_TOOL_SETS:
                self._escaped_tools.clear()
            self._escaped_tools[key] = self._escaper.escape_value(tools, separator)
        return self._escaped_tools[key]

    def _escape(self, message: JsonObject, separator: str) -> JsonObject:
        escaped: JsonObject = self._escaper.escape_value(message, separator)
        if str(message["role"]).isidentifier():  # a bare word, and templates compare roles
            escaped["role"] = message["role"]
        if message["role"] == "assistant" and isinstance(message.get("content"), str):
            escaped["content"] = self._assistant_escaper.escape_text(message["content"], separator)
        return escaped
