"""`gymnast env`: create a new environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gymnast.cli.click_classes import old_names

app = typer.Typer(help="Create a new environment.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Create a new environment."""


@app.command("new", cls=old_names(dir="output_dir"))
def new(
    name: Annotated[str, typer.Argument(help="Name of the environment, e.g. crossword.", show_default=False)],
    *,
    kind: Annotated[
        str, typer.Option("--kind", help="single-turn (one answer), tools (with a session) or step (turn by turn).")
    ] = "single-turn",
    folder: Annotated[Path, typer.Option("--output-dir", help="Folder for resources_servers/NAME.")] = Path(),
) -> int:
    """Create a working environment to start from.

    Writes code, a config, rows, verifier cases, a README and tests.
    """
    from gymnast.authoring.scaffold import KINDS, scaffold, write_scaffold
    from gymnast.errors import suggest

    if kind not in KINDS:
        raise typer.BadParameter(f"unknown kind '{kind}': {suggest(kind, KINDS)}", param_hint="--kind")
    for path in write_scaffold(scaffold(name, kind), folder):
        print(path)
    search_dir = "" if folder == Path() else f" --search-dir {folder}"
    print(f"\nnext  gymnast check env {name}{search_dir}")
    print(f"      read {folder / 'resources_servers' / name / 'README.md'}; edit rules.py, app.py, data/")
    return 0
