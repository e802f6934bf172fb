"""Converts CSV to a list of objects guided by a schema: CSV alone does not distinguish text, numbers and nulls.

The first line names the fields. Each line has exactly as many cells, and no two fields have the same name.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from .documents import DocumentError
from .xml_documents import Reader


def read_csv(text: str, schema: Any) -> list[dict[str, Any]]:
    """Parse a table with a header. Cells become the integers, numbers, booleans and nulls of the schema of its rows."""
    reader = Reader(schema if isinstance(schema, dict) else {}, coerce=True)
    try:
        lines = _lines(text)
    except csv.Error as error:
        raise DocumentError(f"no CSV: {error}") from error
    header = next(lines, (0, []))[1]
    if len(set(header)) < len(header):
        raise DocumentError("a field of the header occurs twice")
    return [_row(number, header, cells, reader) for number, cells in lines]


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    table = csv.reader(io.StringIO(text.strip(), newline=""), strict=True)
    return iter([(table.line_num, cells) for cells in table if cells])


def _row(number: int, header: list[str], cells: list[str], reader: Reader) -> dict[str, Any]:
    if len(cells) != len(header):
        raise DocumentError(f"line {number} has {len(cells)} cells, the header {len(header)}")
    return {name: reader.cell(name, cell) for name, cell in zip(header, cells, strict=True)}
