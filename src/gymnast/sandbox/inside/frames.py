"""Frames between us and the jail, and between the jail's server and a program: a JSON header followed by bytes."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

HEAD = struct.Struct("!II")


def pack_frame(header: dict[str, Any], blob: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return HEAD.pack(len(text), len(blob)) + text + blob


def read_exactly(fd: int, count: int) -> bytes | None:
    """None when the other side has closed the stream."""
    parts = bytearray()
    while len(parts) < count:
        part = os.read(fd, min(count - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def read_frame(fd: int) -> tuple[dict[str, Any], bytes] | None:
    head = read_exactly(fd, HEAD.size)
    if head is None:
        return None
    text_size, blob_size = HEAD.unpack(head)
    text, blob = read_exactly(fd, text_size), read_exactly(fd, blob_size)
    return None if text is None or blob is None else (json.loads(text), blob)


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
