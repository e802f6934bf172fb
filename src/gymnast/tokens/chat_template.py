"""Chat templates: sandboxed jinja2 with the globals, filters and options of Hugging Face."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gymnast.errors import DataError
from gymnast.tokens.rendering import NotRenderable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jinja2.parser import Parser

    from gymnast.types.json import JsonObject

_DICT_ATTRIBUTES: Final = frozenset(dir(dict))


class GenerationBlocks(Extension):
    """`{% generation %}` marks model output in some training templates; it renders its content."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class ChatTemplate:
    """A compiled template and its variables."""

    def __init__(
        self, source: str, variables: Mapping[str, str] | None = None, *, clock: Callable[[], datetime] | None = None
    ) -> None:
        self.source = source
        self.variables = dict(variables or {})
        self._clock = clock or _local_time
        try:
            self._template = _environment().from_string(source)
        except TemplateError as error:
            raise DataError(f"invalid chat template: {error}") from error

    def now(self) -> datetime:
        """The time for templates with a date."""
        return self._clock()

    def render(
        self,
        messages: Sequence[JsonObject],
        tools: Sequence[JsonObject] | None,
        args: Mapping[str, Any],
        *,
        add_generation_prompt: bool,
        now: datetime | None = None,
    ) -> str:
        """Render a conversation. Raises NotRenderable with the template's reason."""
        time = now or self.now()
        variables = {**self.variables, "documents": None, "strftime_now": time.strftime, **args}
        try:
            return self._template.render(
                **{**variables, "messages": list(messages), "tools": list(tools) if tools else None},
                add_generation_prompt=add_generation_prompt,
            )
        except (TemplateError, TypeError, AttributeError, LookupError, ValueError) as error:
            raise NotRenderable(f"the chat template cannot render this conversation: {error}") from error


class _TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, quick for what templates do all the time: `message.role` where the message is a dict."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        # As the sandbox resolves it: not an attribute, therefore a key, which it does not check.
        if type(obj) is dict and attribute in obj and attribute not in _DICT_ATTRIBUTES:
            return obj[attribute]
        return super().getattr(obj, attribute)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = _TemplateEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlocks, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    return environment


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates pass it by position
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    return _escape_non_ascii(text) if ensure_ascii else text


def _escape_non_ascii(text: str) -> str:
    """Escape all but ASCII and private-use characters, which are marks."""
    return "".join(
        character if character < "\x80" or character > "\U0010efff" else json.dumps(character)[1:-1]
        for character in text
    )


def _local_time() -> datetime:
    return datetime.now().astimezone()
