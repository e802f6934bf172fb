"""`gymnast check rows`: whether a dataset has the fields that an environment reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.checks.rows import RowReport


def rows(
    data: Annotated[Path, typer.Argument(help="JSONL file of rows.", show_default=False)],
    overrides: shared.Overrides = None,
    *,
    against: Annotated[str, typer.Option("--against", help="The environment: NAME or NAME/FLAVOR.")],
    prompt_config: Annotated[
        str | None, typer.Option("--prompt-config", help="Check the rows as this prompt template renders them.")
    ] = None,
    config_files: shared.ConfigFiles = None,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Check every row against the task of an environment, field by field. Exit 1 if a row does not fit.

    Names fields that are missing, wrongly typed or never read, with how many rows and the first lines.
    """
    from gymnast.authoring.check import find_environment
    from gymnast.checks.rows import agents_of, check_rows, task_model
    from gymnast.rollouts.prompt import read_template

    found = find_environment(
        against, overrides=overrides or (), config_paths=config_files or (), search_dirs=search_dirs or ()
    )
    roots = found.config.roots
    template = read_template(roots.require(prompt_config, "the prompt template")) if prompt_config else None
    agents = agents_of(found.config, found.instance)
    report = check_rows(data, task_model(found.instance), found.instance.name, agents, template)
    if as_json:
        import orjson

        print(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        _print(report)
    return 0 if report.ok else 1


def _print(report: RowReport) -> None:
    print(f"{report.environment} reads:")
    for name, facts in report.declared.items():
        need = "required" if facts["required"] else "optional"
        print(f"  {name}: {facts['type']} ({need}; in {facts['present']} of {report.rows} rows)")
    said = (
        ("missing", report.missing),
        ("wrong", report.wrong),
        ("other", report.other),
        ("never read", report.extra),
    )
    for heading, tallies in said:
        for what, tally in sorted(tallies.items(), key=lambda entry: -entry[1].rows):
            first = tally.first[0]
            example = f", e.g. {first['value']}" if "value" in first else ""
            lines = ", ".join(str(one["line"]) for one in tally.first)
            print(f"{heading}: {what} ({tally.rows} rows; lines {lines}{example})")
    for hint in report.hints():
        print(f"hint: {hint}")
    fit = report.rows - report.bad_rows
    print(f"{fit} of {report.rows} rows fit {report.environment}")
