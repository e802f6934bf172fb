"""What a family is, and the shared reading of generated ids as texts and tags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from gymnast.tokens.spelling import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gymnast.tokens.rendering import Said
    from gymnast.tokens.tokenizer import Tokenizer
    from gymnast.types.json import JsonObject


@dataclass(frozen=True, slots=True)
class Tag:
    """A control token (or, where the vocabulary has none for it, its text) that means something to the parser."""

    name: str


Script: TypeAlias = "list[str | Tag]"
"""A generation as texts and tags, in order."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a generation says, and whether it ended inside a thought."""

    said: Said
    thought_open: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """What a parser may have to know beside the script."""

    in_thought: bool = False
    """The prompt ended in an open thought."""
    texts: frozenset[tuple[str, str]] = frozenset()
    """Tools and their parameters that are declared to be texts: bare values of these are never numbers."""


class Parser(Protocol):
    """Reads a script without its stop token."""

    def __call__(self, script: Script, context: Context) -> Parsed: ...


def declared_texts(tools: Sequence[JsonObject]) -> frozenset[tuple[str, str]]:
    """Tools and their parameters that are declared to be texts."""
    found = set()
    for tool in tools:
        function = tool.get("function") or {}
        properties = (function.get("parameters") or {}).get("properties") or {}
        for name, schema in properties.items():
            if isinstance(schema, dict) and schema.get("type") == "string":
                found.add((str(function.get("name")), str(name)))
    return frozenset(found)


def _same(messages: Sequence[JsonObject]) -> list[JsonObject]:
    return list(messages)


@dataclass(frozen=True, slots=True)
class Family:
    """One way of writing turns."""

    name: str
    parse: Parser
    stops: tuple[str, ...]
    """Tokens that end a generation, as far as the vocabulary has them."""
    closes: tuple[str, ...] = ()
    """Further tokens that a template may write at the end of a turn."""
    tags: tuple[str, ...] = ()
    """What the parser reads."""
    spoken: tuple[str, ...] = ()
    """Tags that may stand in an assistant's given words and are then control tokens again."""
    thinks: bool = False
    """Thoughts stand in <think> tags, if the template knows them."""
    prepare: Callable[[Sequence[JsonObject]], list[JsonObject]] = _same
    """Messages as the template wants them."""
    tool_template: str | None = None
    """Written by us, for models whose own template has no place for tools."""


class Reader:
    """Cuts generated ids into a script.

    A tag that is a control token of the vocabulary is only that token: text that merely spells it is text. A tag
    that the vocabulary has no token for is found by its text.
    """

    def __init__(self, tokenizer: Tokenizer, tags: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        controls = tokenizer.control_tokens
        self._by_id = {controls[tag]: tag for tag in tags if tag in controls}
        spelled = [tag for tag in tags if tag not in controls]
        self._spelled = compiled(spelled) if spelled else None

    def script(self, ids: Sequence[int]) -> Script:
        """Texts and tags; empty texts are left out."""
        script: Script = []
        start = 0
        for at, token_id in enumerate(ids):
            if token_id in self._by_id:
                script += [*self._texts(ids[start:at]), Tag(self._by_id[token_id])]
                start = at + 1
        return [*script, *self._texts(ids[start:])]

    def _texts(self, ids: Sequence[int]) -> Iterator[str | Tag]:
        if not ids:
            return
        text = self._tokenizer.decode(ids)
        if self._spelled is None:
            yield text
            return
        at = 0
        for match in self._spelled.finditer(text):
            if match.start() > at:
                yield text[at : match.start()]
            yield Tag(match[0])
            at = match.end()
        if at < len(text):
            yield text[at:]


def written(script: Sequence[str | Tag]) -> str:
    """The script as one text, tags spelled out."""
    return "".join(piece.name if isinstance(piece, Tag) else piece for piece in script)


def index_of(script: Sequence[str | Tag], name: str, start: int = 0) -> int | None:
    """Where a tag stands first."""
    return next((at for at in range(start, len(script)) if script[at] == Tag(name)), None)


def is_blank(piece: str | Tag) -> bool:
    """Nothing but whitespace."""
    return isinstance(piece, str) and not piece.strip()
