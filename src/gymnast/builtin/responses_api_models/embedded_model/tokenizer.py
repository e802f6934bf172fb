"""A byte-level BPE tokenizer in pure Python, read from a Hugging Face `tokenizer.json`.

Digits are separate tokens. Text is split by a pattern of ASCII classes only, so that other implementations give the
same ids for the same file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final

PATTERN: Final = r"[0-9]| ?[A-Za-z]+|\n+| ?[^ \nA-Za-z0-9]+| +"
_CACHED_PIECES: Final = 50_000


def byte_characters() -> list[str]:
    """The printable character that represents each byte in byte-level vocabularies."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


class ByteLevelTokenizer:
    """Text to ids and back. Text never becomes a control token."""

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        control_tokens: Mapping[str, int],
        pattern: str = PATTERN,
        split: Callable[[str], Iterable[str]] | None = None,
    ) -> None:
        """`split` cuts text into pieces, if a single pattern cannot."""
        self.control_tokens: Mapping[str, int] = MappingProxyType(dict(control_tokens))
        self._vocabulary = vocabulary
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        self._split = split or re.compile(pattern).findall
        self._characters = byte_characters()
        byte_of = {character: byte for byte, character in enumerate(self._characters)}
        self._bytes = {index: bytes(byte_of[character] for character in token) for token, index in vocabulary.items()}
        self._bytes |= {index: text.encode() for text, index in control_tokens.items()}
        self._pieces: dict[str, tuple[int, ...]] = {}
        content = json.dumps([sorted(vocabulary.items()), list(merges), sorted(control_tokens.items()), pattern])
        self.digest = hashlib.sha256(content.encode()).hexdigest()

    @classmethod
    def read(cls, path: Path) -> ByteLevelTokenizer:
        """Read a `tokenizer.json`."""
        content = json.loads(path.read_text())
        model = content["model"]
        pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        merges = [(left, right) for left, right in pairs]
        control = {token["content"]: token["id"] for token in content["added_tokens"]}
        vocabulary = {token: index for token, index in model["vocab"].items() if token not in control}
        return cls(vocabulary, merges, control, content["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"])

    @property
    def size(self) -> int:
        """The number of ids."""
        return max(self._bytes) + 1

    def encode(self, text: str) -> list[int]:
        """Encode plain text. Text that spells a control token is encoded as its characters."""
        ids: list[int] = []
        for piece in self._split(text):
            known = self._pieces.get(piece)
            ids += self._encode_piece(piece) if known is None else known
        return ids

    def encode_spans(self, text: str) -> list[tuple[int, int]]:
        """The ids, each with the index of the character in which it starts."""
        spans: list[tuple[int, int]] = []
        characters = 0
        for index in self.encode(text):
            data = self._bytes[index]
            inside = data[0] & 0xC0 == 0x80  # the rest of a character that an earlier token started
            spans.append((index, characters - inside))
            characters += sum(byte & 0xC0 != 0x80 for byte in data)
        return spans

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids, with control tokens written out. Invalid UTF-8 becomes U+FFFD."""
        known = self._bytes.get
        return b"".join([known(index, b"") for index in ids]).decode(errors="replace")

    def _encode_piece(self, piece: str) -> tuple[int, ...]:
        parts = [self._characters[byte] for byte in piece.encode(errors="replace")]
        while len(parts) > 1:
            best = min(pairwise(parts), key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            parts = _merge_pair(parts, best)
        ids = tuple(self._vocabulary[part] for part in parts)
        if len(self._pieces) < _CACHED_PIECES:
            self._pieces[piece] = ids
        return ids


def _merge_pair(parts: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Join every occurrence of the pair, from left to right."""
    joined: list[str] = []
    index = 0
    while index < len(parts):
        if index + 1 < len(parts) and (parts[index], parts[index + 1]) == pair:
            joined.append(parts[index] + parts[index + 1])
            index += 2
        else:
            joined.append(parts[index])
            index += 1
    return joined
