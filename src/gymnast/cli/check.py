"""`gymnast check`: whether an environment holds to what every environment must."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import check_endpoint, check_rows, check_tools
from gymnast.cli import options as shared

if TYPE_CHECKING:
    import asyncio

    from gymnast.authoring.check import Candidate

app = typer.Typer(
    help="Check an environment, rows, tools or an endpoint before anything is spent.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("tools")(check_tools.tools)
app.command("rows")(check_rows.rows)
app.command("endpoint")(check_endpoint.endpoint)


@app.callback()
def group() -> None:
    """Check an environment, rows, tools or an endpoint before anything is spent."""


@app.command("env")
def env(
    name: Annotated[str, typer.Argument(help="The environment: NAME or NAME/FLAVOR.", show_default=False)],
    overrides: shared.Overrides = None,
    *,
    config_files: shared.ConfigFiles = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Rollouts at once.")] = 256,
    blocking_ms: Annotated[
        float, typer.Option("--blocking-ms", min=1, help="How long the event loop may be held up.")
    ] = 50.0,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Run only this check, e.g. blocking. Repeatable.")
    ] = None,
    case: Annotated[
        str | None, typer.Option("--case", help="Play this verifier case only, and print what it is answered.")
    ] = None,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Run the conformance suite on an environment. Exit 1 if it finds anything.

    Verifier cases (data/verifier_cases.jsonl) end as they say, the same request has the same reward, rollouts do not
    see each other, sessions expire, broken bodies and outputs are answered, the event loop is not held up. Where the
    environment needs a judge, data/check.yaml configures a scripted one for the check.
    """
    import asyncio

    from gymnast.authoring.check import check_candidate, find_environment
    from gymnast.kit.conformance import SuiteOptions
    from gymnast.runtime.listener import loop_factory

    candidate = find_environment(
        name, overrides=overrides or (), config_paths=config_files or (), search_dirs=search_dirs or ()
    )
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        if case is not None:
            return _play(runner, candidate, case)
        options = SuiteOptions(concurrency, blocking_ms, _checks(only))
        report = runner.run(check_candidate(candidate, options))
    if as_json:
        import orjson

        print(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        print(report)
    return 0 if report.ok else 1


def _checks(only: list[str] | None) -> frozenset[str]:
    from gymnast.errors import suggest
    from gymnast.kit.conformance.suite import CHECKS

    for name in only or ():
        if name not in CHECKS:
            raise typer.BadParameter(f"there is no check '{name}': {suggest(name, CHECKS)}", param_hint="--only")
    return frozenset(only or CHECKS)


def _play(runner: asyncio.Runner, candidate: Candidate, case: str) -> int:
    import orjson

    from gymnast.authoring.check import play_case

    outcome = runner.run(play_case(candidate, case))
    shared.say(str(outcome))
    print(orjson.dumps(outcome.body, option=orjson.OPT_INDENT_2, default=str).decode())
    return 0 if outcome.reward is not None else 1
