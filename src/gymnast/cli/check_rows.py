"""`gymnast check rows`: whether the rows of a dataset fit an environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gymnast.cli import options as shared


def rows(
    data: Annotated[Path, typer.Argument(help="JSONL file of rows.", show_default=False)],
    overrides: shared.Overrides = None,
    *,
    against: Annotated[str, typer.Option("--against", "--environment", "-e", help="Environment NAME[/FLAVOR].")],
    prompt_config: shared.PromptConfig = None,
    config_files: shared.ConfigFiles = None,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Check rows against the task model of an environment.

    Lists the fields that are missing, have the wrong type or are never read, with the number of rows and the first
    lines. Exit 1 if a row does not fit.
    """
    from gymnast.checks.environment import agents_of, find_environment
    from gymnast.checks.rows import check_rows, task_model
    from gymnast.rollouts.prompt import read_template

    target = find_environment(
        against, overrides=overrides or (), config_paths=config_files or (), search_dirs=search_dirs or ()
    )
    roots = target.config.roots
    template = read_template(roots.require(prompt_config, "the prompt template")) if prompt_config else None
    agents = [agent.name for agent in agents_of(target.config, target.instance)]
    result = check_rows(data, task_model(target.instance), target.instance.name, agents, template)
    if as_json:
        shared.print_json(result.as_json())
    else:
        print("\n".join(result.lines()))
    return 0 if result.ok else 1
