"""`data render`: a dataset with a prompt template applied, as a dataset of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from gymnast.data.findings import Finding, Findings
from gymnast.data.pending import PendingFiles
from gymnast.data.row import BadRow, read_row
from gymnast.errors import UserError
from gymnast.rollouts.prompt import read_template
from gymnast.store.lines import numbered_lines

if TYPE_CHECKING:
    from pathlib import Path

TEMPLATE_USED: Final = "prompt_config_used"


def render(source: Path, template_path: Path, target: Path) -> int:
    """Write every row with its input made from the template. Returns how many; bad rows are all named, then none is
    written."""
    if target.exists() and target.samefile(source):
        raise UserError("the output is the input file", where=str(target), next="give the output another name")
    template, findings, rows = read_template(template_path), Findings(), 0
    used = str(template_path.resolve())
    with PendingFiles() as files:
        out = files.open(target)
        for number, line in numbered_lines(source):
            try:
                row = read_row(line, template).data
            except BadRow as error:
                findings.add("row", Finding(str(source), number, str(error)))
                continue
            out.write(orjson.dumps({**row, TEMPLATE_USED: used}) + b"\n")
            rows += 1
        findings.refuse("nothing was rendered")
        files.commit()
    return rows
