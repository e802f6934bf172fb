"""`gymnast env`: begin an environment of your own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Environments of your own.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Environments of your own."""


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Name of the environment, e.g. crossword.", show_default=False)],
    *,
    kind: Annotated[
        str, typer.Option("--kind", help="single-turn (one answer), tools (with a session) or step (turn by turn).")
    ] = "single-turn",
    folder: Annotated[Path, typer.Option("--dir", help="Where resources_servers/NAME goes.")] = Path(),
) -> int:
    """Write a new environment that works as it is: code, config, rows, verifier cases, README, tests."""
    from gymnast.authoring.scaffold import KINDS, scaffold, write_scaffold
    from gymnast.errors import suggest

    if kind not in KINDS:
        raise typer.BadParameter(f"'{kind}' is no kind: {suggest(kind, KINDS)}", param_hint="--kind")
    written = write_scaffold(scaffold(name, kind), folder)
    for path in written:
        print(path)
    here = "" if folder == Path() else f" --search-dir {folder}"
    print(f"\nnext  gymnast check env {name}{here}")
    print(f"      read {folder / 'resources_servers' / name / 'README.md'}; change rules.py, app.py, data/")
    return 0
