"""`gymnast doctor`: which layer failed, on what evidence, and what to do next. It only reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from gymnast.cli import options as shared


def command(
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="A run (its output file), a log file, or a folder of logs.")
    ] = None,
    *,
    logs: Annotated[
        list[Path] | None, typer.Option("--logs", help="More logs: a file or a folder. Repeatable.")
    ] = None,
    job: Annotated[str | None, typer.Option("--job", help="A Slurm job: its state and its logs.")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="The input file, for runs that do not say where theirs is.")
    ] = None,
    task: Annotated[
        int | None,
        typer.Option("--task", min=0, help="What happened to this task: every attempt, evidence, next step."),
    ] = None,
    rollout: Annotated[int | None, typer.Option("--rollout", min=0, help="With --task: only this rollout.")] = None,
    head: shared.Head = None,
    live: Annotated[
        bool, typer.Option("--live", help="Ask what is running: the collection RUN, or else the serve.")
    ] = False,
    stuck_after_s: Annotated[
        float, typer.Option("--stuck-after", min=0, help="With --live: seconds after which a wait is too long.")
    ] = 60.0,
    probe: Annotated[bool, typer.Option("--probe", help="Ask the policy endpoints for /models.")] = False,
    steps: Annotated[bool, typer.Option("--steps", help="Show what each step of looking saw.")] = False,
    as_json: shared.JsonOutput = False,
) -> int:
    """Say which layer of a run failed, with evidence, cause and next step.

    Exit code 0: healthy; 1: there are findings; 2: there was nothing to look at. Reads files only; --live, --head and
    --probe also ask what is running.
    """
    from gymnast.cli.doctor_live import with_what_runs
    from gymnast.doctor.examine import examine, subject_of

    if run is None and not logs and job is None and not live and head is None:
        raise typer.BadParameter("name a run, logs (--logs), a job (--job), or what is running (--live, --head)")
    if task is None and rollout is not None:
        raise typer.BadParameter("say of which task: --task N --rollout R", param_hint="--rollout")
    subject = subject_of(run, logs or (), job=job, data=data, stuck_after_s=stuck_after_s)
    subject = asyncio.run(with_what_runs(subject, head, live=live, probe=probe))
    if task is not None:
        return _show_task(subject, task, rollout, as_json=as_json)
    report = examine(subject)
    if as_json:
        _print_json(report.as_json())
    else:
        from gymnast.doctor.render import lines_of

        print("\n".join(lines_of(report, with_steps=steps)))
    return 0 if report.is_healthy else 1


def _show_task(subject: Any, task: int, rollout: int | None, *, as_json: bool) -> int:
    from gymnast.doctor.render_task import lines_of_task
    from gymnast.doctor.task import examine_task

    story = examine_task(subject, task, rollout)
    if as_json:
        _print_json(story.as_json())
    else:
        print("\n".join(lines_of_task(story)))
    return 0 if story.is_scored else 1


def _print_json(value: Any) -> None:
    import orjson

    print(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
