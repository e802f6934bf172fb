"""`gymnast check rows`: whether the rows of a dataset fit an environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gymnast.cli import options as shared


def rows(
    data: Annotated[Path, typer.Argument(help="Rows: JSONL, JSON, CSV, Parquet, or a folder.", show_default=False)],
    overrides: shared.Overrides = None,
    *,
    against: Annotated[str, typer.Option("--against", "--environment", "-e", help="Environment NAME[/FLAVOR].")],
    prompt_config: shared.PromptConfig = None,
    prompt: shared.Prompt = None,
    map: shared.Map = None,  # noqa: A002 - as the option is called
    config_files: shared.ConfigFiles = None,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Check rows against the task model of an environment.

    Lists the fields that are missing, have the wrong type or are never read, and rows to which no answer can be right,
    with the number of rows and the first lines, and shows the first row as the model will see it. Exit 1 if a row does
    not fit, or if the environment has tools and no row offers any.
    """
    from gymnast.checks.environment import agents_of, find_environment
    from gymnast.checks.rows import check_rows, task_model
    from gymnast.rollouts.options import find_template
    from gymnast.rollouts.row_map import parse_map
    from gymnast.rollouts.tool_modes import environment_tools, tool_modes

    target = find_environment(
        against, overrides=overrides or (), config_paths=config_files or (), search_dirs=search_dirs or ()
    )
    template = find_template(target.config, prompt_config, prompt)
    agents = [agent.name for agent in agents_of(target.config, target.instance)]
    modes = tool_modes(target.config.instances.values())
    result = check_rows(
        data,
        task_model(target.instance),
        target.instance.name,
        agents,
        template,
        parse_map(map),
        environment_tools(target.instance),
        offers_tools=not agents or any(modes.get(agent) == "auto" for agent in agents),
    )
    if as_json:
        shared.print_json(result.as_json())
    else:
        print("\n".join(result.lines()))
    return 0 if result.ok else 1
