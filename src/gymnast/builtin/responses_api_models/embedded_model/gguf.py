"""Reads GGUF files: metadata, and tensors of any supported type as 32-bit floats.

Supports what small Llama-shaped models use: F32, F16, Q8_0, Q4_0 and Q4_1. Other types are rejected.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gymnast.kit import DataError

Floats = NDArray[np.float32]
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_BLOCK: Final = 32
"""Values per scale."""


@dataclass(frozen=True, slots=True)
class _Entry:
    shape: tuple[int, ...]
    kind: int
    offset: int


class GgufFile:
    """A file, read lazily: tensors are decoded on access."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = np.memmap(path, np.uint8, "r")
        reader = _Reader(self._data)
        if bytes(self._data[:4]) != b"GGUF":
            raise DataError("not a GGUF file", where=str(path))
        reader.at = 4
        self.version = reader.scalar("I")
        tensors, values = reader.scalar("Q"), reader.scalar("Q")
        self.metadata: dict[str, Any] = dict(reader.pair() for _ in range(values))
        self._entries = dict(reader.entry() for _ in range(tensors))
        alignment = self.metadata.get("general.alignment", 32)
        self._start = -(-reader.at // alignment) * alignment

    @property
    def tensor_names(self) -> list[str]:
        return list(self._entries)

    def tensor(self, name: str) -> Floats:
        """A tensor as (out, in)."""
        entry = self._entries[name]
        if entry.kind not in _KINDS:
            known = ", ".join(str(kind) for kind in _KINDS)
            raise DataError(
                f"tensor {name} has unsupported type {entry.kind}; supported: {known}", where=str(self._path)
            )
        per_block, block_bytes, decode = _KINDS[entry.kind]
        start, count = self._start + entry.offset, prod(entry.shape) // per_block
        blocks = np.asarray(self._data[start : start + count * block_bytes]).reshape(count, block_bytes)
        return decode(blocks).reshape(entry.shape)


class _Reader:
    """Reads the header sequentially."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data = data
        self.at = 0

    def scalar(self, code: str) -> Any:
        size = struct.calcsize(f"<{code}")
        self.at += size
        return struct.unpack(f"<{code}", self._data[self.at - size : self.at].tobytes())[0]

    def text(self) -> str:
        size = self.scalar("Q")
        self.at += size
        return self._data[self.at - size : self.at].tobytes().decode()

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind == _LIST:
            inner, count = self.scalar("I"), self.scalar("Q")
            return [self.value(inner) for _ in range(count)]
        return self.scalar(_SCALARS[kind])

    def pair(self) -> tuple[str, Any]:
        name = self.text()
        return name, self.value(self.scalar("I"))

    def entry(self) -> tuple[str, _Entry]:
        name = self.text()
        dimensions = [self.scalar("Q") for _ in range(self.scalar("I"))]
        return name, _Entry(tuple(reversed(dimensions)), self.scalar("I"), self.scalar("Q"))


def _halves(blocks: NDArray[np.uint8], index: int) -> Floats:
    """The 16-bit number at an index of every block."""
    column: Floats = np.ascontiguousarray(blocks[:, index : index + 2]).view("<f2").astype(np.float32)
    return column


def _nibbles(packed: NDArray[np.uint8]) -> Floats:
    """The low halves of all bytes, then the high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32)


def _f32(blocks: NDArray[np.uint8]) -> Floats:
    return np.ascontiguousarray(blocks).view("<f4").astype(np.float32)


def _f16(blocks: NDArray[np.uint8]) -> Floats:
    return np.ascontiguousarray(blocks).view("<f2").astype(np.float32)


def _q4_0(blocks: NDArray[np.uint8]) -> Floats:
    return (_nibbles(blocks[:, 2:]) - np.float32(8)) * _halves(blocks, 0)


def _q4_1(blocks: NDArray[np.uint8]) -> Floats:
    return _nibbles(blocks[:, 4:]) * _halves(blocks, 0) + _halves(blocks, 2)


def _q8_0(blocks: NDArray[np.uint8]) -> Floats:
    return np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32) * _halves(blocks, 0)


_KINDS: Final[dict[int, tuple[int, int, Callable[[NDArray[np.uint8]], Floats]]]] = {
    0: (1, 4, _f32),
    1: (1, 2, _f16),
    2: (_BLOCK, 18, _q4_0),
    3: (_BLOCK, 20, _q4_1),
    8: (_BLOCK, 34, _q8_0),
}
"""Types by number: values and bytes per block, and the decoder."""
