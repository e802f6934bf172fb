"""`gymnast check`: the conformance suite of an environment, and checks of rows, tools, endpoints and whole runs.

`check rows` says whether the rows of a dataset fit an environment, `check tools` which tool schemas constrained
decoding rejects, and `check run`, with the options of `gymnast collect`, what will go wrong in a run.
"""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gymnast.cli import check_endpoint, collect
from gymnast.cli import options as shared
from gymnast.cli.click_classes import old_names

if TYPE_CHECKING:
    import asyncio

    from gymnast.checks.environment import CheckTarget
    from gymnast.checks.run import Explanation
    from gymnast.store.paths import RunPaths


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


_ABOUT_EARLIER_RUNS: Final = ("resume", "fork", "extend", "force", "retry_failed", "overwrite")
"""Options about what is in the output already: a check does not look there."""


@wraps(collect.command, assigned=("__annotations__",))
def run(**given: Any) -> int:
    """Check a run before it starts; takes the options of collect.

    Plans the rows, sends a few tiny requests to each model endpoint, compares the longest row with the context length,
    runs one short rollout of it through agent, tools, sandbox, verifier and judge, and looks at disk, memory and open
    files. Writes nothing. Exit 1 if the run would fail.
    """
    import asyncio

    from gymnast.checks.run import check_run
    from gymnast.config import read_environ
    from gymnast.runtime.listener import loop_factory

    if given["via_serve"] or given["head"] is not None:
        raise typer.BadParameter("a running serve is checked with gymnast doctor --head URL", param_hint="--head")
    options, config = collect.load_run({**given, **dict.fromkeys(_ABOUT_EARLIER_RUNS, False)})
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        result = runner.run(check_run(options, config, read_environ(), _explain))
    if given["as_json"]:
        shared.print_json(result.as_json())
    else:
        print("\n".join(result.lines()))
    return 0 if result.ok else 1


def _explain(paths: RunPaths) -> Explanation | None:
    """What doctor finds first in a run."""
    from gymnast.checks.run import Explanation
    from gymnast.doctor.examine import Target, examine

    findings = examine(Target(paths)).findings
    if not findings:
        return None
    return Explanation(f"{findings[0].symptom}: {findings[0].cause}", findings[0].action)


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


app = typer.Typer(
    help="Check an environment, rows, tools, an endpoint or a run.", no_args_is_help=True, rich_markup_mode=None
)
app.command("tools", cls=old_names(rows="output"))(tools)
app.command("rows")(rows)
app.command("run")(run)
app.command("endpoint", cls=old_names(need="require"))(check_endpoint.endpoint)


@app.command("env")
def env(
    name: Annotated[str, typer.Argument(help="Environment NAME[/FLAVOR].", show_default=False)],
    overrides: shared.Overrides = None,
    *,
    config_files: shared.ConfigFiles = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Concurrent rollouts.")] = 256,
    blocking_ms: Annotated[
        float, typer.Option("--blocking-ms", min=1, help="Milliseconds that the event loop may be blocked.")
    ] = 50.0,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Run only this check, e.g. blocking. Repeatable.")
    ] = None,
    case: Annotated[
        str | None, typer.Option("--case", help="Run only this verifier case, and print the reply.")
    ] = None,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Run the conformance suite on an environment.

    Checks that verifier cases (data/verifier_cases.jsonl) get the expected reward, equal requests get equal rewards,
    rollouts are isolated, sessions expire, malformed requests and outputs are handled, and the event loop is not
    blocked. If the environment needs a judge, data/check.yaml configures a scripted one. Exit 1 on any problem.
    """
    import asyncio

    from gymnast.checks.conformance import SuiteOptions
    from gymnast.checks.environment import check_target, find_environment
    from gymnast.runtime.listener import loop_factory

    target = find_environment(
        name, overrides=overrides or (), config_paths=config_files or (), search_dirs=search_dirs or ()
    )
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        if case is not None:
            return _play(runner, target, case)
        options = SuiteOptions(concurrency, blocking_ms, _checks(only))
        result = runner.run(check_target(target, options))
    if as_json:
        shared.print_json(result.as_json())
    else:
        print(result)
    return 0 if result.ok else 1


def _checks(only: list[str] | None) -> frozenset[str]:
    from gymnast.checks.conformance.suite import CHECKS
    from gymnast.errors import suggest

    for name in only or ():
        if name not in CHECKS:
            raise typer.BadParameter(f"unknown check '{name}': {suggest(name, CHECKS)}", param_hint="--only")
    return frozenset(only or CHECKS)


def _play(runner: asyncio.Runner, target: CheckTarget, case: str) -> int:
    import orjson

    from gymnast.checks.environment import play_case

    outcome = runner.run(play_case(target, case))
    shared.say(str(outcome))
    print(orjson.dumps(outcome.body, option=orjson.OPT_INDENT_2, default=str).decode())
    return 0 if outcome.reward is not None else 1
