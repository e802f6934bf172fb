"""`gymnast agents`: the agents that `--agent` can name, with their commands and whether they can run here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.config.agent_recipes import AgentRecipe, ListedRecipe


def command(
    name: Annotated[
        str | None, typer.Argument(help="Show one recipe: its file and what it runs.", show_default=False)
    ] = None,
    *,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """List the agents that --agent can name.

    A recipe (agents/NAME.yaml in --search-dir, in this folder or among the built-ins) runs with any environment:
    gymnast collect -e ENVIRONMENT --agent NAME. Nothing is started.
    """
    from gymnast.config import read_environ
    from gymnast.config.agent_recipes import find_recipe, list_recipes
    from gymnast.config.roots import Roots

    shared.warn_of_missing(search_dirs)
    roots = Roots((*(search_dirs or ()), *read_environ().extra_roots), Path.cwd())
    if name is not None:
        return _show(find_recipe(name, roots, []), as_json=as_json)
    listed = list_recipes(roots)
    if as_json:
        shared.print_json([_entry(item) for item in listed])
        return 0
    width = max((len(item.name) for item in listed), default=0)
    for item in listed:
        entry = _entry(item)
        print(f"{item.name:<{width}}  {entry['description'] or 'cannot be used'}; {entry['state']}")
        if item.problem:
            shared.say(f"{item.name}: {item.problem}")
    return 0


def _show(recipe: AgentRecipe, *, as_json: bool) -> int:
    if as_json:
        settings = dict(recipe.settings)
        shared.print_json({"name": recipe.name, "path": str(recipe.path), "settings": settings})
        return 0
    shared.say(f"# {recipe.path}")
    print(recipe.path.read_text(encoding="utf-8").rstrip())
    return 0


def _entry(item: ListedRecipe) -> dict[str, Any]:
    recipe = item.recipe
    problem = item.problem if recipe is None else _find_problem(recipe)
    return {
        "name": item.name,
        "path": str(item.path),
        "description": recipe.description if recipe is not None else None,
        "command": recipe.settings.get("command") if recipe is not None else None,
        "install": recipe.settings.get("install") if recipe is not None else None,
        "can_run": problem is None,
        "state": "runs here" if problem is None else f"not here: {problem.splitlines()[0]}",
    }


def _find_problem(recipe: AgentRecipe) -> str | None:
    """Why the recipe's program cannot be started; the install command, if the recipe has one."""
    import shutil
    from importlib.util import find_spec

    command, install = recipe.settings.get("command"), recipe.settings.get("install")
    if not isinstance(command, list) or not command:
        return None
    program = str(recipe.settings.get("python") or "{python}") if command[0] == "{python}" else str(command[0])
    if program == "{python}":
        packages = [str(name).partition(".")[0] for name in recipe.settings.get("python_packages") or ()]
        is_missing = any(find_spec(package) is None for package in packages)
    else:
        is_missing = "{" not in program and shutil.which(program) is None
    return str(install or f"'{program}' was not found") if is_missing else None
