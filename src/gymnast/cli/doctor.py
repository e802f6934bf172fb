"""`gymnast doctor`: which layer failed, on what evidence, and what to do next. It only reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.doctor.examine import Subject
    from gymnast.doctor.facts import ProbeFacts


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
    from gymnast.doctor.examine import examine, subject_of

    if run is None and not logs and job is None and not live and head is None:
        raise typer.BadParameter("name a run, logs (--logs), a job (--job), or what is running (--live, --head)")
    subject = subject_of(run, logs or (), job=job, data=data, stuck_after_s=stuck_after_s)
    report = examine(asyncio.run(_with_what_runs(subject, head, live=live, probe=probe)))
    if as_json:
        import orjson

        print(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        from gymnast.doctor.render import lines_of

        print("\n".join(lines_of(report, with_steps=steps)))
    return 0 if report.is_healthy else 1


async def _with_what_runs(subject: Subject, head: str | None, *, live: bool, probe: bool) -> Subject:
    """The subject, with what processes say of themselves."""
    from dataclasses import replace

    if subject.run is not None and (live or subject.run.socket.exists()):
        status, stacks = await _ask_run(subject.run.socket, wants=live)
        subject = replace(subject, live=status, stacks=tuple(stacks))
    if head is not None or (live and subject.run is None):
        subject = replace(subject, servers=await _ask_servers(head))
    if probe and subject.run is not None:
        from gymnast.doctor.examine import endpoints_of

        subject = replace(subject, probes=await _probe(endpoints_of(subject.run)))
    return subject


async def _ask_run(socket: Path, *, wants: bool) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """What a running collection says. One that is gone says nothing, which is no error unless it was asked for."""
    from gymnast.errors import UserError
    from gymnast.rollouts.control import ask

    try:
        status = await ask(socket, {"command": "status"})
        stacks = await ask(socket, {"command": "stacks"}) if wants else []
    except UserError as error:
        if wants:
            shared.say(f"not running: {error.what}; looking at its files")
        return None, []
    return status, stacks


async def _ask_servers(head: str | None) -> tuple[ProbeFacts, ...]:
    from gymnast.cli.status import find_heads
    from gymnast.doctor.facts import ProbeFacts
    from gymnast.errors import UserError
    from gymnast.runtime.remote import health_of, read_head
    from gymnast.wire.http_client import HttpClient

    found: list[ProbeFacts] = []
    async with HttpClient() as client:
        for url, token in find_heads(head, None):
            try:
                remote = await read_head(client, url, token)
            except UserError as error:
                found.append(ProbeFacts("head server", url, ok=False, said=error.what))
                continue
            found += [
                ProbeFacts(entry.name, entry.url, ok=entry.healthy, said=f"{entry.status} {entry.said}".strip())
                for entry in await health_of(client, remote)
            ]
    return tuple(found)


async def _probe(endpoints: list[str]) -> tuple[ProbeFacts, ...]:
    from gymnast.doctor.facts import ProbeFacts
    from gymnast.runtime.probe import probe
    from gymnast.wire.http_client import HttpClient

    found: list[ProbeFacts] = []
    async with HttpClient() as client:
        for url in endpoints:
            page = f"{url.rstrip('/')}/models"
            answer = await probe(client, page, timeout_s=5.0)
            listed = answer.body.get("data") if isinstance(answer.body, dict) else None
            models = tuple(str(entry.get("id")) for entry in listed or () if isinstance(entry, dict))
            found.append(ProbeFacts("policy", page, answer.ok or answer.code is not None, answer.said, models))
    return tuple(found)
