"""`gymnast check`: the conformance suite of an environment, and checks of rows, tools, endpoints and whole runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import check_endpoint, check_rows, check_run, check_tools
from gymnast.cli import options as shared
from gymnast.cli.click_classes import old_names

if TYPE_CHECKING:
    import asyncio

    from gymnast.checks.environment import CheckTarget

app = typer.Typer(
    help="Check an environment, rows, tools, an endpoint or a run.", no_args_is_help=True, rich_markup_mode=None
)
app.command("tools", cls=old_names(rows="output"))(check_tools.tools)
app.command("rows")(check_rows.rows)
app.command("run")(check_run.run)
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
