"""`gymnast check run`: what will go wrong in a run, before it starts. Takes the options of `gymnast collect`."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import typer

from gymnast.cli import collect
from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.checks.run import Explanation
    from gymnast.store.paths import RunPaths

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
