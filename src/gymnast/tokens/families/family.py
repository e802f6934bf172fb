"""The definition of a model family, and the lexer that splits generated ids into texts and tags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from gymnast.tokens.literal_match import compile_literals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gymnast.tokens.rendering import ParsedTurn
    from gymnast.tokens.tokenizer import Tokenizer
    from gymnast.types.json import JsonObject


@dataclass(frozen=True, slots=True)
class Tag:
    """A control token that the parser understands, or its text if the vocabulary has no such token."""

    name: str


TaggedText: TypeAlias = "list[str | Tag]"
"""A generation as texts and tags, in order."""


@dataclass(frozen=True, slots=True)
class ParseResult:
    """A parsed generation, and whether it ended inside a thought."""

    turn: ParsedTurn
    is_thought_open: bool = False


@dataclass(frozen=True, slots=True)
class ParseContext:
    """What a parser needs besides the generation."""

    in_thought: bool = False
    """The prompt ended in an open thought."""
    tools: Sequence[JsonObject] = ()
    """The tools of the request, in the form of Chat Completions."""

    def is_string(self, name: str, parameter: str) -> bool:
        """Whether a tool's parameter has type string: its bare values are never numbers."""
        for tool in self.tools:
            function = tool.get("function") or {}
            if str(function.get("name")) == name:
                schema = ((function.get("parameters") or {}).get("properties") or {}).get(parameter)
                if isinstance(schema, dict) and schema.get("type") == "string":
                    return True
        return False


class Parser(Protocol):
    """Parses a generation without its stop token."""

    def __call__(self, pieces: TaggedText, context: ParseContext) -> ParseResult: ...


@dataclass(frozen=True, slots=True)
class Family:
    """The format of a model family's turns."""

    name: str
    parse: Parser
    stops: tuple[str, ...]
    """Tokens that end a generation; the vocabulary may lack some."""
    turn_ends: tuple[str, ...] = ()
    """Other tokens that a template may write at the end of a turn."""
    tags: tuple[str, ...] = ()
    """Tags that the parser understands."""
    assistant_tags: tuple[str, ...] = ()
    """Tags that become control tokens again in the text of assistant messages."""
    thinks: bool = False
    """Thoughts are in <think> tags, if the template supports them."""
    prepare: Callable[[Sequence[JsonObject]], list[JsonObject]] = list
    """Puts messages in the form that the template expects."""
    tool_template: str | None = None
    """Our template for models whose own does not support tools."""


class TagLexer:
    """Splits generated ids into texts and tags.

    A tag that is a control token of the vocabulary matches only that token, never the same characters as text. A tag
    without a token is matched by its text.
    """

    def __init__(self, tokenizer: Tokenizer, tags: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        controls = tokenizer.control_tokens
        self._by_id = {controls[tag]: tag for tag in tags if tag in controls}
        text_tags = [tag for tag in tags if tag not in controls]
        self._text_tags = compile_literals(text_tags) if text_tags else None

    def split(self, ids: Sequence[int]) -> TaggedText:
        """Texts and tags, without empty texts."""
        pieces: TaggedText = []
        start = 0
        for index in [index for index, token_id in enumerate(ids) if token_id in self._by_id]:
            if index > start:
                pieces += self._split_text(ids[start:index])
            pieces.append(Tag(self._by_id[ids[index]]))
            start = index + 1
        if start < len(ids):
            pieces += self._split_text(ids[start:])
        return pieces

    def _split_text(self, ids: Sequence[int]) -> TaggedText:
        text = self._tokenizer.decode(ids)
        if self._text_tags is None:
            return [text]
        pieces: TaggedText = []
        start = 0
        for match in self._text_tags.finditer(text):
            if match.start() > start:
                pieces.append(text[start : match.start()])
            pieces.append(Tag(match[0]))
            start = match.end()
        if start < len(text):
            pieces.append(text[start:])
        return pieces


def to_text(pieces: Sequence[str | Tag]) -> str:
    return "".join(piece.name if isinstance(piece, Tag) else piece for piece in pieces)


def find_tag(pieces: Sequence[str | Tag], name: str, start: int = 0) -> int | None:
    """The index of a tag's first occurrence."""
    tag = Tag(name)
    for index in range(start, len(pieces)):
        if pieces[index] == tag:
            return index
    return None


def is_blank(piece: str | Tag) -> bool:
    """Whether the piece is only whitespace."""
    return isinstance(piece, str) and not piece.strip()
