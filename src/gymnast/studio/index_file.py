"""The index of one run on disk: a SQLite file in the cache folder with blocks of columns and signatures.

It is only a cache. A file that is damaged, of another version or of another run is deleted and built again; two studios
may use the same one.
"""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from gymnast.studio.line_columns import FIXED_COLUMNS, Lines
from gymnast.studio.query_bits import match_parts
from gymnast.studio.text_signature import BITS, SIZE_BYTES, transpose

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from gymnast.studio.query_bits import Alternatives

_VERSION: Final = 6
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS blocks (number INTEGER PRIMARY KEY, lines INTEGER, columns BLOB, signatures BLOB);
"""
_DTYPES: Final = {
    "keys": "<i8",
    "sources": "<i4",
    "offsets": "<i8",
    "sizes": "<i8",
    "output_bytes": "<i8",
    "flags": "u1",
}


class Position(msgspec.Struct, array_like=True):
    """How far a file is indexed."""

    path: str
    end: int
    """Indexed bytes: whole lines only."""
    digest: bytes
    """Of the last bytes before the end: if they differ, the file is not the one that was indexed."""
    failures: bool


class _Block(msgspec.Struct, array_like=True):
    fixed: dict[str, bytes]
    numbers: dict[str, bytes]
    texts: dict[str, list[str | None]]
    positions: list[Position]
    """After this block."""


class IndexFile:
    """Blocks in the order they were added. Errors of SQLite are the caller's: they mean that the file is unusable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self._connection = self._open()
        except sqlite3.DatabaseError:
            self.delete_files()
            self._connection = self._open()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=10, isolation_level=None, check_same_thread=False)
        try:
            # A part of a block is found by walking its pages: with large ones there are few.
            connection.execute("PRAGMA page_size=65536")
            connection.execute("PRAGMA journal_mode=MEMORY")
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("PRAGMA cache_size=-4096")
            _check_version(connection)
            connection.executescript(_SCHEMA)
            connection.execute(f"PRAGMA user_version={_VERSION}")
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        self._connection.close()

    def delete_files(self) -> None:
        for suffix in ("", "-journal", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def clear(self) -> None:
        """Start over."""
        with suppress(sqlite3.Error):
            self._connection.execute("DELETE FROM blocks")
            return
        self.close()
        self.delete_files()
        self._connection = self._open()

    def add(self, number: int, lines: Lines, positions: Sequence[Position]) -> None:
        """Add a block. Another studio that added it first wins: both read the same bytes."""
        fixed = {name: getattr(lines, name).astype(_DTYPES[name]).tobytes() for name in FIXED_COLUMNS}
        numbers = {name: values.astype("<f8").tobytes() for name, values in lines.numbers.items()}
        texts = {name: _shorten(values) for name, values in lines.texts.items()}
        block = _Block(fixed, numbers, texts, list(positions))
        row = (number, len(lines), msgspec.msgpack.encode(block), transpose(lines.signatures))
        self._connection.execute("INSERT OR IGNORE INTO blocks VALUES (?, ?, ?, ?)", row)

    def read(self) -> Iterator[tuple[Lines, list[Position]]]:
        """Every block, without signatures, and the positions after it."""
        query = "SELECT number, columns FROM blocks ORDER BY number"
        with closing(self._connection.cursor()) as cursor:
            for expected, (number, data) in enumerate(cursor.execute(query)):
                if number != expected:
                    raise sqlite3.DatabaseError("a block is missing")
                block = msgspec.msgpack.decode(data, type=_Block)
                fixed: dict[str, Any] = {
                    name: np.frombuffer(block.fixed[name], _DTYPES[name]) for name in FIXED_COLUMNS
                }
                numbers = {name: np.frombuffer(values, "<f8") for name, values in block.numbers.items()}
                count = len(fixed["keys"])
                texts = {name: values * count if len(values) == 1 else values for name, values in block.texts.items()}
                yield Lines(**fixed, numbers=numbers, texts=texts), block.positions

    def match(self, number: int, count: int, parts: Sequence[Alternatives]) -> NDArray[np.bool_]:
        """Which of the lines of a block may have the words with these bits."""
        with self._connection.blobopen("blocks", "signatures", number, readonly=True) as blob:
            if len(blob) != count * SIZE_BYTES:
                raise sqlite3.DatabaseError("a block has an unexpected size")

            def column(byte: int) -> bytes:
                blob.seek(byte * count)
                return blob.read(count)

            return match_parts(column, parts, count)


def _shorten(values: list[str | None]) -> list[str | None]:
    """A single value if all are the same."""
    return values[:1] if values and values.count(values[0]) == len(values) else values


def _check_version(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA user_version").fetchone()[0] not in (0, _VERSION):
        raise sqlite3.DatabaseError("made by another version")


def index_path(cache: Path, output: Path) -> Path:
    """Where the index of a run is kept."""
    digest = hashlib.blake2b(str(output.resolve()).encode(errors="surrogateescape"), digest_size=12).hexdigest()
    return cache / "studio" / f"{digest}-{BITS}.sqlite"
