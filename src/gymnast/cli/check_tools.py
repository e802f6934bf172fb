"""`gymnast check tools`: tool schemas that constrained decoding refuses, found before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.checks.tools import ToolReport


def tools(
    data: Annotated[Path, typer.Argument(help="JSONL file of rows.", show_default=False)],
    backend: Annotated[
        list[str] | None,
        typer.Option("--backend", help="Only what this one does: xgrammar, outlines or guidance. Repeatable."),
    ] = None,
    rows: Annotated[
        Path | None, typer.Option("--rows", help="Write a JSONL line for each row about which there is something.")
    ] = None,
    compile_too: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Compile with the libraries that are installed.")
    ] = True,
    as_json: shared.JsonOutput = False,
) -> int:
    """Check the tools of every row against what constrained-decoding backends take. Exit 1 if one refuses a row.

    refused: the request fails before anything is generated. loosened: it is taken, but part of it is not enforced.
    slow: compiling may take long. Each different tool is looked at once; needs no network and none of the libraries.
    """
    from contextlib import ExitStack

    import orjson

    from gymnast.checks.tool_backends import BACKENDS
    from gymnast.checks.tools import check_tools
    from gymnast.errors import suggest
    from gymnast.store.replacing import replaced

    for name in backend or ():
        if name not in BACKENDS:
            raise typer.BadParameter(f"there is no backend '{name}': {suggest(name, BACKENDS)}", param_hint="--backend")
    with ExitStack() as stack:
        out = stack.enter_context(replaced(rows)) if rows is not None else None
        report = check_tools(
            data,
            backends=backend or BACKENDS,
            compile_too=compile_too,
            on_row=(lambda row: out.write(orjson.dumps(row) + b"\n")) if out is not None else None,
        )
    if as_json:
        print(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        _print(report)
    return 0 if report.ok else 1


def _print(report: ToolReport) -> None:
    for key, tally in report.ranked():
        print(f"{key.effect}  {key.backend}: {key.rule} ({tally.rows} rows)")
        for one in tally.first:
            tool = f" tool '{one['tool']}'" if one["tool"] else ""
            print(f"  line {one['line']}{tool} {one['where']}: {one['what']}".replace(" : ", ": "))
        print(f"  next: {tally.first[0]['next']}")
    compiled = f"; compiled with {', '.join(report.compiled_with)}" if report.compiled_with else ""
    print(
        f"{report.rows} rows, {report.rows_with_tools} with tools, {report.schemas} different tools{compiled}: "
        + (f"{report.bad_rows} rows would be refused" if report.bad_rows else "nothing would be refused")
    )
