"""Random access to the rows of a JSONL file without reading it into memory.

Line offsets are written once to a file in the cache folder and memory-mapped, so the cost depends on the rows that are
read, not on the size of the file.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import orjson

from gymnast.config import read_environ
from gymnast.errors import DataError
from gymnast.store.atomic import atomic_writer

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

_FORMAT: Final = 1
_HEADER: Final = 3
"""Numbers before the offsets: format version, size and modification time of the file."""
_BLOCK: Final = 1 << 20


class JsonlRows:
    """The rows of a file. Can be pickled: each process opens the file again."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._file = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise DataError(f"cannot read the dataset: {error.strerror}", where=str(self.path)) from error
        self._offsets = self._index()

    def __len__(self) -> int:
        return max(len(self._offsets) - 1, 0)

    def __getitem__(self, number: int) -> JsonObject:
        line = self.line(number)
        try:
            row: Any = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise DataError(f"not JSON: {error}", where=f"{self.path} row {number}") from error
        if not isinstance(row, dict):
            raise DataError("a row must be a JSON object", where=f"{self.path} row {number}")
        return row

    def line(self, number: int) -> bytes:
        """A row as written in the file, without its newline."""
        if not 0 <= number < len(self):
            raise IndexError(f"row {number} of {len(self)} in {self.path}")
        start, end = int(self._offsets[number]), int(self._offsets[number + 1])
        return os.pread(self._file, end - start, start).rstrip()

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            self.close()

    def __reduce__(self) -> tuple[type[JsonlRows], tuple[Path]]:
        return type(self), (self.path,)

    def _index(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        status = os.fstat(self._file)
        header = np.array([_FORMAT, status.st_size, status.st_mtime_ns], dtype=np.uint64)
        name = hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:24]
        path = read_environ().cache_dir / "offsets" / f"{name}.u64"
        offsets = _map_offsets(path, header)
        if offsets is None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                _write_offsets(self._file, path, header)
            except OSError as error:
                message = f"cannot write the line index: {error.strerror or error}"
                hint = f"free space in {path.parent}, or set GYMNAST_CACHE_DIR to another folder"
                raise DataError(message, where=str(self.path), next=hint) from error
            offsets = _map_offsets(path, header)
            assert offsets is not None, "just written"
        return offsets


def _map_offsets(path: Path, header: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint64]] | None:
    """The offsets of an index that matches the file's current version."""
    try:
        offsets = np.memmap(path, dtype=np.uint64, mode="r")
    except (OSError, ValueError):  # missing or empty
        return None
    is_current = len(offsets) >= _HEADER and bool((offsets[:_HEADER] == header).all())
    return offsets[_HEADER:] if is_current else None


def _write_offsets(file: int, path: Path, header: np.ndarray[Any, Any]) -> None:
    """Write the start of each non-blank line, and the end of the last one."""
    own = path.with_name(f"{path.name}.{os.getpid()}")  # several ranks of a trainer may write it at the same time
    with atomic_writer(own) as out:
        out.write(header.tobytes())
        start = at = 0
        blank = True
        while block := os.pread(file, _BLOCK, at):
            starts: list[int] = []
            left = 0
            while (end := block.find(b"\n", left)) >= 0:
                blank = blank and not block[left:end].strip()
                if not blank:
                    starts.append(start)
                start, blank, left = at + end + 1, True, end + 1
            blank = blank and not block[left:].strip()
            out.write(np.array(starts, dtype=np.uint64).tobytes())
            at += len(block)
        out.write(np.array([at] if blank else [start, at], dtype=np.uint64).tobytes())
    own.replace(path)
