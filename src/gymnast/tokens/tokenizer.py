"""What rendering asks of a tokenizer. Text and control tokens are two things: text never becomes a control token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Tokenizer(Protocol):
    """Text to ids and back."""

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Every added token (special or not) by the text that writes it."""
        ...

    @property
    def digest(self) -> str:
        """Changes whenever encoding could."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of plain text. Text that spells a control token is encoded as the characters it is."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, control tokens written out. Broken UTF-8 shows as U+FFFD."""
        ...
