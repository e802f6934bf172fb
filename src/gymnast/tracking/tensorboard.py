"""Event files of TensorBoard, written without it: TFRecords of hand-encoded `Event` messages."""

from __future__ import annotations

import math
import os
import socket
import struct
import time
from typing import TYPE_CHECKING, Any, Final

from gymnast.tracking import protobuf as pb

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_POLYNOMIAL: Final = 0x82F63B78
_MASK_DELTA: Final = 0xA282EAD8
_DT_STRING: Final = 7
_DATA_CLASS_TENSOR: Final = 2


def _make_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ _POLYNOMIAL if crc & 1 else crc >> 1
        table.append(crc)
    return tuple(table)


_TABLE: Final = _make_table()


def crc32c(data: bytes) -> int:
    """The CRC with Castagnoli's polynomial, which zlib does not have."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def frame_record(data: bytes) -> bytes:
    """A TFRecord: length, checksum of it, data, checksum of it."""
    length = struct.pack("<Q", len(data))
    return length + _masked_crc(length) + data + _masked_crc(data)


def _masked_crc(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF)


class EventFile:
    """Appends to a new event file in a folder; TensorBoard reads all files of a folder as one run."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.gymnast"
        self.path = folder / name
        self._stream = self.path.open("ab", buffering=0)
        self._write([pb.double(1, time.time()), pb.text(3, "brain.Event:2")])

    def write_scalars(self, step: int, at: float, figures: Mapping[str, float]) -> None:
        values = [
            pb.message(1, [pb.text(1, tag), pb.float32(2, number)])
            for tag, number in figures.items()
            if math.isfinite(number)
        ]
        self._write([pb.double(1, at), pb.integer(2, step), pb.message(5, values)])

    def write_text(self, step: int, at: float, tag: str, markdown: str) -> None:
        tensor = [pb.integer(1, _DT_STRING), pb.message(2, [pb.message(2, [pb.integer(1, 1)])])]
        tensor.append(pb.text(8, markdown))
        metadata = [pb.message(1, [pb.text(1, "text")]), pb.integer(4, _DATA_CLASS_TENSOR)]
        value = [pb.text(1, tag), pb.message(9, metadata), pb.message(8, tensor)]
        self._write([pb.double(1, at), pb.integer(2, step), pb.message(5, [pb.message(1, value)])])

    def close(self) -> None:
        self._stream.close()

    def _write(self, parts: list[bytes]) -> None:
        self._stream.write(frame_record(b"".join(parts)))


def as_markdown(values: Mapping[str, Any]) -> str:
    """A table of flat values."""
    rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in values.items()]
    return "\n".join(["| name | value |", "|---|---|", *rows])


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
