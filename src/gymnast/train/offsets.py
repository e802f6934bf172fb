"""Any row of a JSONL file by its number, without reading the file into memory.

Where lines begin is written once to a file in the cache folder, and mapped. Whoever uses it pays for the rows that are
read, at 10 MB as at 10 GB.
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
from gymnast.store.replacing import replacing

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

_FORM: Final = 1
_HEAD: Final = 3
"""Numbers before the offsets: form, size and time of change of the file."""
_BLOCK: Final = 1 << 20


class JsonlRows:
    """The rows of a file. Can be pickled: a worker opens the file for itself."""

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
        """A row as it is written, without its newline."""
        if not 0 <= number < len(self):
            raise IndexError(f"row {number} of {len(self)} in {self.path}")
        begin, end = int(self._offsets[number]), int(self._offsets[number + 1])
        return os.pread(self._file, end - begin, begin).rstrip()

    def close(self) -> None:
        """Let go of the file."""
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
        head = np.array([_FORM, status.st_size, status.st_mtime_ns], dtype=np.uint64)
        name = hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:24]
        place = read_environ().cache_dir / "offsets" / f"{name}.u64"
        found = _mapped(place, head)
        if found is None:
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                _write_offsets(self._file, place, head)
            except OSError as error:
                said = f"cannot write the index of its lines: {error.strerror or error}"
                next_step = f"make room in {place.parent}, or name another folder with GYMNAST_CACHE_DIR"
                raise DataError(said, where=str(self.path), next=next_step) from error
            found = _mapped(place, head)
            assert found is not None, "written just now"
        return found


def _mapped(place: Path, head: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint64]] | None:
    """The offsets of an index that was made for this file as it is now."""
    try:
        found = np.memmap(place, dtype=np.uint64, mode="r")
    except (OSError, ValueError):  # not there, or empty
        return None
    fits = len(found) >= _HEAD and bool((found[:_HEAD] == head).all())
    return found[_HEAD:] if fits else None


def _write_offsets(file: int, place: Path, head: np.ndarray[Any, Any]) -> None:
    """Where each line that holds something begins, and where the last one ends."""
    own = place.with_name(f"{place.name}.{os.getpid()}")  # ranks of a trainer may all be at it at once
    with replacing(own) as out:
        out.write(head.tobytes())
        begin = at = 0
        blank = True
        while block := os.pread(file, _BLOCK, at):
            starts: list[int] = []
            left = 0
            while (end := block.find(b"\n", left)) >= 0:
                blank = blank and not block[left:end].strip()
                if not blank:
                    starts.append(begin)
                begin, blank, left = at + end + 1, True, end + 1
            blank = blank and not block[left:].strip()
            out.write(np.array(starts, dtype=np.uint64).tobytes())
            at += len(block)
        out.write(np.array([at] if blank else [begin, at], dtype=np.uint64).tobytes())
    own.replace(place)
