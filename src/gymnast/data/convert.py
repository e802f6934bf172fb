"""`data convert` and `data render`: rows of other files, or of a dataset, as a new dataset with prompts."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from gymnast.data.formats import detect_format, find_format
from gymnast.data.pending_files import PendingFiles
from gymnast.data.problems import FileProblem, Problems
from gymnast.data.row import BadRow, parse_line, read_row
from gymnast.errors import DataError, UserError
from gymnast.rollouts.prompt import read_template
from gymnast.store.row_files import read_lines, row_suffix

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.rollouts.prompt import PromptTemplate
    from gymnast.rollouts.row_map import RowMap


@dataclass(frozen=True, slots=True)
class ConvertRequest:
    """What to convert, and how."""

    source: Path
    target: Path
    row_map: RowMap | None = None
    template: PromptTemplate | None = None
    format: str | None = None
    """A format of another program; None looks at the first row, unless there is a map or a prompt."""
    limit: int | None = None
    overwrite: bool = False


@dataclass(slots=True)
class ConversionResult:
    """The result of a conversion."""

    rows: int = 0
    format: str | None = None


def convert(request: ConvertRequest) -> ConversionResult:
    """Write the converted rows. If any row is bad, raises a DataError that lists them, and writes nothing."""
    _check_target(request)
    result, problems = ConversionResult(format=request.format), Problems()
    with PendingFiles() as files:
        out = files.open(request.target)
        compressed = request.target.name.lower().endswith(".gz")
        for position, (number, line) in enumerate(read_lines(request.source), 1):
            if request.limit is not None and position > request.limit:
                break
            try:
                row = _convert_line(line, request, result, is_first=position == 1)
            except BadRow as error:
                problems.add("row", FileProblem(str(request.source), number, str(error)))
                continue
            out.write(gzip.compress(row) if compressed else row)
            result.rows += 1
        problems.raise_if_any("nothing was converted")
        if not result.rows:
            raise DataError("the input has no rows", where=str(request.source))
        files.commit()
    return result


def _convert_line(line: bytes, request: ConvertRequest, result: ConversionResult, *, is_first: bool) -> bytes:
    if is_first and result.format is None and request.row_map is None and request.template is None:
        result.format = detect_format(parse_line(line))
    if result.format is not None:
        try:
            line = orjson.dumps(find_format(result.format)(parse_line(line)))
        except ValueError as error:
            raise BadRow("schema", str(error)) from error
    return orjson.dumps(read_row(line, request.template, request.row_map).data) + b"\n"


def _check_target(request: ConvertRequest) -> None:
    if row_suffix(request.target) != ".jsonl":
        raise UserError("a dataset is written as JSONL", where=str(request.target), next="call it .jsonl or .jsonl.gz")
    if request.target.exists() and request.source.exists() and request.target.samefile(request.source):
        raise UserError("the output would overwrite the input", where=str(request.target), next="choose another file")
    if request.target.exists() and not request.overwrite:
        raise UserError("the output file exists", where=str(request.target), next="choose another, or pass --overwrite")


TEMPLATE_USED: Final = "prompt_config_used"


def render(source: Path, template_path: Path, target: Path) -> int:
    """Write every row with its input rendered from the template; returns the count.

    If any row is bad, raises a DataError that lists the bad rows, and writes nothing.
    """
    if target.exists() and target.samefile(source):
        raise UserError("the output would overwrite the input", where=str(target), next="choose another output file")
    template, problems, rows = read_template(template_path), Problems(), 0
    used = str(template_path.resolve())
    with PendingFiles() as files:
        out = files.open(target)
        for number, line in read_lines(source):
            try:
                row = read_row(line, template).data
            except BadRow as error:
                problems.add("row", FileProblem(str(source), number, str(error)))
                continue
            out.write(orjson.dumps({**row, TEMPLATE_USED: used}) + b"\n")
            rows += 1
        problems.raise_if_any("nothing was rendered")
        files.commit()
    return rows
