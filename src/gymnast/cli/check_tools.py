"""`gymnast check tools`: tool schemas that constrained decoding rejects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gymnast.cli import options as shared


def tools(
    data: Annotated[Path, typer.Argument(help="JSONL file of rows.", show_default=False)],
    backend: Annotated[
        list[str] | None,
        typer.Option("--backend", help="Check only this backend: xgrammar, outlines or guidance. Repeatable."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="JSONL file with a line for each row that has a problem.")
    ] = None,
    compile_too: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Also compile the schemas with the installed libraries.")
    ] = True,
    as_json: shared.JsonOutput = False,
) -> int:
    """Check the tool schemas of rows against constrained decoding.

    refused: the request fails before anything is generated. loosened: it is accepted, but part of it is not enforced.
    slow: compiling may take long. Each distinct tool is checked once; no network or library is needed. Exit 1 if a
    backend refuses a row.
    """
    from contextlib import ExitStack

    import orjson

    from gymnast.checks.schema_rules import BACKENDS
    from gymnast.checks.tools import check_tools
    from gymnast.errors import suggest
    from gymnast.store.atomic import atomic_output

    for name in backend or ():
        if name not in BACKENDS:
            raise typer.BadParameter(f"unknown backend '{name}': {suggest(name, BACKENDS)}", param_hint="--backend")
    with ExitStack() as stack:
        out = stack.enter_context(atomic_output(output)) if output is not None else None
        result = check_tools(
            data,
            backends=backend or BACKENDS,
            compile_too=compile_too,
            on_row=(lambda row: out.write(orjson.dumps(row) + b"\n")) if out is not None else None,
        )
    if as_json:
        shared.print_json(result.as_json())
    else:
        print("\n".join(result.lines()))
    return 0 if result.ok else 1
