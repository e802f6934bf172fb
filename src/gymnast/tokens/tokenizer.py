"""The tokenizer interface. Text and control tokens are separate: text never becomes a control token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Tokenizer(Protocol):
    """Text to ids and back."""

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Every added token (special or not) by its text."""
        ...

    @property
    def digest(self) -> str:
        """A digest that changes whenever encoding could."""
        ...

    def encode(self, text: str) -> list[int]:
        """Encode plain text. A control token's text is encoded as ordinary characters."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids, control tokens included. Invalid UTF-8 becomes U+FFFD."""
        ...
