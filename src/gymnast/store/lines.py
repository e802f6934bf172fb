"""Reading JSONL files line by line, in order, without holding them in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymnast.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Every line without its newline, numbered from 1."""
    try:
        with path.open("rb", buffering=1 << 20) as stream:
            for number, line in enumerate(stream, 1):
                yield number, line.rstrip(b"\r\n")
    except OSError as error:
        raise DataError(f"cannot read the input file: {error.strerror or error}", where=str(path)) from error
