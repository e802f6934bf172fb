"""Encodes Protocol Buffers by hand: the few wire types that event files of TensorBoard and OTLP use."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Part = bytes


def varint(number: int) -> bytes:
    """A non-negative number of up to 64 bits."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def integer(field: int, number: int) -> Part:
    """An int64, uint64, bool or enum field; negative numbers in two's complement."""
    return varint(field << 3) + varint(number & 0xFFFFFFFFFFFFFFFF)


def fixed64(field: int, number: int) -> Part:
    return varint(field << 3 | 1) + struct.pack("<Q", number)


def double(field: int, number: float) -> Part:
    return varint(field << 3 | 1) + struct.pack("<d", number)


def float32(field: int, number: float) -> Part:
    """A float field. What exceeds its range becomes infinite."""
    try:
        return varint(field << 3 | 5) + struct.pack("<f", number)
    except OverflowError:
        return float32(field, float("inf") if number > 0 else float("-inf"))


def data(field: int, value: bytes) -> Part:
    """A bytes field, or an encoded message."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def text(field: int, value: str) -> Part:
    """A string field. Lone surrogates, which UTF-8 cannot hold, are replaced."""
    return data(field, value.encode("utf-8", errors="replace"))


def message(field: int, parts: Iterable[Part]) -> Part:
    return data(field, b"".join(parts))
