"""`gymnast env`: the environments that can be used here, and new ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared
from gymnast.cli.click_classes import old_names

if TYPE_CHECKING:
    from gymnast.checks.catalog import CatalogEntry

app = typer.Typer(help="List environments, or create a new one.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(
    query: Annotated[
        str | None, typer.Argument(help="Only environments with this in their name, purpose or domain.")
    ] = None,
    *,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """List environments: purpose, data, requirements, and whether they can run here.

    Looks in --search-dir, in this folder and among the built-ins. Nothing is started: gymnast check env NAME tries one.
    """
    from dataclasses import asdict

    from gymnast.checks.catalog import list_environments
    from gymnast.config import read_environ

    shared.warn_of_missing(search_dirs)
    entries = [entry for entry in list_environments(read_environ(), search_dirs or ()) if _mentions(entry, query)]
    if as_json:
        shared.print_json([{**asdict(entry), "can_run": entry.problem is None} for entry in entries])
        return 0
    _print_entries(entries)
    if not entries:
        shared.say(f"no environment mentions '{query}'" if query else "no environments found")
    return 0


def _mentions(entry: CatalogEntry, query: str | None) -> bool:
    texts = (entry.name, entry.purpose or "", entry.domain or "")
    return query is None or any(query.lower() in text.lower() for text in texts)


def _print_entries(entries: list[CatalogEntry]) -> None:
    width = max((len(entry.name) for entry in entries), default=0)
    for entry in entries:
        print(f"{entry.name:<{width}}  {entry.purpose or '(no description)'}")
        print(f"{'':<{width}}  data: {_data(entry)}; needs: {_needs(entry)}; {_state(entry)}")


def _data(entry: CatalogEntry) -> str:
    names = [
        f"{dataset.name}{'' if dataset.is_present else f' (not here, from {dataset.source})'}"
        if dataset.is_present or dataset.source
        else f"{dataset.name} (missing: {dataset.path})"
        for dataset in entry.data
    ]
    return ", ".join(names) or "none"


def _needs(entry: CatalogEntry) -> str:
    needs = [need if need == "sandbox" else f"gymnast[{need}]" for need in entry.needs]
    return ", ".join([*needs, *(["its own packages"] if entry.own_packages else [])]) or "nothing"


def _state(entry: CatalogEntry) -> str:
    if entry.problem is None:
        return "runs here"
    return f"cannot run here: {entry.problem}" + (f" ({entry.next})" if entry.next else "")


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
