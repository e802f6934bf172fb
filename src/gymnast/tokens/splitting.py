"""Rendered text to ids: control tokens by name, the text between them as plain text."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from gymnast.tokens.literal_match import compile_literals
from gymnast.tokens.marking import Marks, append_run, source_runs
from gymnast.tokens.rendering import Rendered
from gymnast.types.tokens import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.tokens.tokenizer import Tokenizer


@runtime_checkable
class SpanTokenizer(Protocol):
    """A tokenizer that knows where each token starts in the text."""

    def encode_spans(self, text: str) -> list[tuple[int, int]]: ...


class Splitter:
    """Finds the control tokens of one vocabulary in rendered text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._controls = compile_literals(tokenizer.control_tokens)
        self._span_tokenizer = tokenizer if isinstance(tokenizer, SpanTokenizer) else None

    def tokenise(self, text: str, marks: Marks) -> Rendered:
        """Ids and sources of escaped text, marked or not."""
        ids: list[int] = []
        runs: list[tuple[Source, int]] = []
        for piece, control in self._pieces(text):
            clean = marks.clean(piece)
            spans = self._spans(clean.text)
            ids += [token_id for token_id, _ in spans]
            for source, count in source_runs([start for _, start in spans], clean):
                append_run(runs, source, count)
            if control is not None:
                ids.append(control)
                append_run(runs, Source.TEMPLATE, 1)
        return Rendered(tuple(ids), tuple(runs))

    def find_controls(self, text: str, start: int) -> Iterator[tuple[int, int]]:
        """The positions and ids of control tokens."""
        for match in self._controls.finditer(text, start):
            yield match.start(), self._tokenizer.control_tokens[match[0]]

    def _pieces(self, text: str) -> Iterator[tuple[str, int | None]]:
        start = 0
        for match in self._controls.finditer(text):
            yield text[start : match.start()], self._tokenizer.control_tokens[match[0]]
            start = match.end()
        if start < len(text):
            yield text[start:], None

    def _spans(self, text: str) -> list[tuple[int, int]]:
        if not text:
            return []
        if self._span_tokenizer is not None:
            return self._span_tokenizer.encode_spans(text)
        ids = self._tokenizer.encode(text)
        # Tokens with part of a character count as one character: accurate enough to tell sources apart.
        lengths = (len(self._tokenizer.decode([token_id])) for token_id in ids)
        return list(zip(ids, accumulate(lengths, initial=0), strict=False))
