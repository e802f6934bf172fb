"""`data render`: applies a prompt template to a dataset and writes the result as a new dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from gymnast.data.pending_files import PendingFiles
from gymnast.data.problems import FileProblem, Problems
from gymnast.data.row import BadRow, read_row
from gymnast.errors import UserError
from gymnast.rollouts.prompt import read_template
from gymnast.store.row_files import read_lines

if TYPE_CHECKING:
    from pathlib import Path

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
