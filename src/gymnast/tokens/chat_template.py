"""Chat templates: jinja2 in a sandbox, with the names and habits that Hugging Face gives its templates."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gymnast.errors import DataError
from gymnast.tokens.rendering import NotRenderable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jinja2.parser import Parser

    from gymnast.types.json import JsonObject


class GenerationBlocks(Extension):
    """`{% generation %}` marks what a model wrote in some training templates; it renders as what it holds."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class ChatTemplate:
    """One compiled template and the variables it may name."""

    def __init__(
        self, source: str, variables: Mapping[str, str] | None = None, *, clock: Callable[[], datetime] | None = None
    ) -> None:
        self.source = source
        self.variables = dict(variables or {})
        self._clock = clock or _local_time
        try:
            self._template = _environment().from_string(source)
        except TemplateError as error:
            raise DataError(f"the chat template is no valid template: {error}") from error

    def now(self) -> datetime:
        """The clock that templates with a date see."""
        return self._clock()

    def render(
        self,
        messages: Sequence[JsonObject],
        tools: Sequence[JsonObject] | None,
        args: Mapping[str, Any],
        *,
        to_generate: bool,
        now: datetime | None = None,
    ) -> str:
        """The text of a conversation. Raises NotRenderable with the template's own reason."""
        at = now or self.now()
        given = {**self.variables, "documents": None, "strftime_now": at.strftime, **args}
        try:
            return self._template.render(
                **{**given, "messages": list(messages), "tools": list(tools) if tools else None},
                add_generation_prompt=to_generate,
            )
        except (TemplateError, TypeError, AttributeError, LookupError, ValueError) as error:
            raise NotRenderable(f"the chat template cannot write this conversation: {error}") from error


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlocks, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    return environment


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - called so by templates
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    return _escaped(text) if ensure_ascii else text


def _escaped(text: str) -> str:
    """As JSON in ASCII, but for private-use characters: they stand for marks that must be found again."""
    return "".join(
        character if character < "\x80" or character > "\U0010efff" else json.dumps(character)[1:-1]
        for character in text
    )


def _local_time() -> datetime:
    return datetime.now().astimezone()
