"""`gymnast doctor`: which layer failed, the evidence, and what to do next. It only reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from gymnast.cli import options as shared


def command(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="The run: any of its files or its folder. Or a log file, a folder of logs."),
    ] = None,
    *,
    logs: Annotated[
        list[Path] | None, typer.Option("--logs", help="More logs: a file or a folder. Repeatable.")
    ] = None,
    job: Annotated[str | None, typer.Option("--job", help="Examine the state and logs of this Slurm job.")] = None,
    data: Annotated[
        Path | None, typer.Option("--input", "-i", help="The input file, if the run does not record it.")
    ] = None,
    task: Annotated[
        int | None,
        typer.Option("--task", min=0, help="Show every attempt at this task, with evidence and next step."),
    ] = None,
    rollout: Annotated[int | None, typer.Option("--rollout", min=0, help="With --task: only this rollout.")] = None,
    head: shared.Head = None,
    live: Annotated[
        bool, typer.Option("--live", help="Query the running collection RUN, or the running `gymnast serve`.")
    ] = False,
    stuck_after_s: Annotated[
        float | None,
        typer.Option(
            "--stuck-after",
            min=0,
            help="With --live: seconds after which a wait counts as stuck. [default: 60, and unusual for this run]",
        ),
    ] = None,
    probe: Annotated[bool, typer.Option("--probe", help="Query /models of the policy endpoints.")] = False,
    steps: Annotated[bool, typer.Option("--steps", help="Show what each diagnostic step saw.")] = False,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="ID", help="Explain a finding by its id, and stop.")
    ] = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Diagnose a run: failed layer, evidence, next step.

    Exit code 0: healthy; 1: there are findings; 2: nothing to examine. Reads files only; --live, --head and --probe
    also query running processes. If all rewards are the same, the environment is loaded to score a correct and a
    wrong answer.
    """
    from gymnast.cli.doctor_live import add_live_facts
    from gymnast.doctor.examine import examine, find_target

    if explain is not None:
        return _explain(explain, as_json=as_json)
    if run is None and not logs and job is None and not live and head is None:
        raise typer.BadParameter("pass a run, logs (--logs), a job (--job), or something running (--live, --head)")
    if task is None and rollout is not None:
        raise typer.BadParameter("needs a task: --task N --rollout R", param_hint="--rollout")
    target = find_target(run, logs or (), job=job, data=data, stuck_after_s=stuck_after_s)
    target = asyncio.run(add_live_facts(target, head, live=live, probe=probe))
    if task is not None:
        return _show_task(target, task, rollout, as_json=as_json)
    report = examine(target)
    if as_json:
        shared.print_json(report.as_json())
    else:
        from gymnast.doctor.render import render_diagnosis

        print("\n".join(render_diagnosis(report, with_steps=steps)))
    return 0 if report.is_healthy else 1


def _explain(name: str, *, as_json: bool) -> int:
    from gymnast.doctor.rules.registry import explain_rule

    explanation = explain_rule(name)
    if as_json:
        shared.print_json(explanation)
    else:
        print("\n".join(f"{key + ':':8} {value}" for key, value in explanation.items()))
    return 0


def _show_task(target: Any, task: int, rollout: int | None, *, as_json: bool) -> int:
    from gymnast.doctor.render import render_task_history
    from gymnast.doctor.task_history import examine_task

    history = examine_task(target, task, rollout)
    if as_json:
        shared.print_json(history.as_json())
    else:
        print("\n".join(render_task_history(history)))
    return 0 if history.is_scored else 1
