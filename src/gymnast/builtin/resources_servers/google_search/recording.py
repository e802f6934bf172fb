"""A recording of searches and pages: a file of JSON lines, replayed without the network and appended to with it.

{"search": "boiling point of helium", "result": "…"} or {"browse": "https://…", "result": "…"}; the last line of a
request counts. Failures are not recorded.
"""

from __future__ import annotations

import fcntl
import json
import os
import unicodedata
from pathlib import Path
from typing import IO, Final, Literal, Self

from gymnast.kit import DataError, NotFoundError

Kind = Literal["search", "browse"]
_KINDS: Final[tuple[Kind, ...]] = ("search", "browse")


class UnrecordedError(Exception):
    """A request that is not in the recording."""


class Recording:
    """The results of a file, by request."""

    def __init__(self, path: Path, results: dict[tuple[Kind, str], str]) -> None:
        self.path = path
        self._results = results

    @classmethod
    def load(cls, path: Path, *, must_exist: bool) -> Self:
        """Read a recording. Raises a user error that names the line that cannot be read."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            if must_exist:
                raise NotFoundError(
                    f"the recording '{path}' does not exist",
                    next="set recording, or google_api_key and google_cx with backend: record to make one",
                ) from None
            return cls(path, {})
        except OSError as error:
            raise DataError(f"cannot read the recording '{path}': {error.strerror}") from error
        results: dict[tuple[Kind, str], str] = {}
        for number, line in enumerate(_complete_lines(data), start=1):
            if line.strip():
                kind, request, result = _parse(line, f"{path}, line {number}")
                results[kind, request] = result
        return cls(path, results)

    def __len__(self) -> int:
        return len(self._results)

    def find(self, kind: Kind, request: str) -> str | None:
        """The recorded result, or None."""
        return self._results.get((kind, normalize(kind, request)))

    def add(self, kind: Kind, request: str, result: str) -> None:
        """Append a result, after the last complete line."""
        line = json.dumps({kind: request, "result": result}, ensure_ascii=False).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # several processes may record to one file
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                if file.read(1) != b"\n":
                    _drop_torn_line(file)
            file.write(line)
        self._results[kind, normalize(kind, request)] = result


def _complete_lines(data: bytes) -> list[bytes]:
    """All lines; without the last one if a process was killed while it wrote it."""
    lines = data.split(b"\n")
    return lines if _is_json(lines[-1]) else lines[:-1]


def _drop_torn_line(file: IO[bytes]) -> None:
    file.seek(0)
    data = file.read()
    last = data[data.rfind(b"\n") + 1 :]
    if _is_json(last):
        file.write(b"\n")
    else:
        file.truncate(len(data) - len(last))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def normalize(kind: Kind, request: str) -> str:
    """What makes two requests the same: a query in any case and spacing, an address without its fragment."""
    text = " ".join(unicodedata.normalize("NFC", request).split())
    return text.casefold() if kind == "search" else text.partition("#")[0]


def _parse(line: bytes, where: str) -> tuple[Kind, str, str]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise DataError(f"not JSON: {error}", where=where) from error
    kinds = [kind for kind in _KINDS if isinstance(entry, dict) and isinstance(entry.get(kind), str)]
    if len(kinds) != 1 or not isinstance(entry.get("result"), str):
        raise DataError('expected {"search": QUERY, "result": TEXT} or {"browse": URL, "result": TEXT}', where=where)
    return kinds[0], normalize(kinds[0], entry[kinds[0]]), entry["result"]
