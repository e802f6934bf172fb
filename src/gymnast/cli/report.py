"""`gymnast report`: one or more runs as an HTML file or in the terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.report.run_view import RunView
    from gymnast.types.task import RolloutKey

Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN", help=shared.RUN_HELP, parser=shared.run_output, show_default=False)
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="HTML file to write. [default: x_report.html, after the first run]"),
]
Transcripts = Annotated[
    int,
    typer.Option("--transcripts", min=0, help="Number of transcripts to include, the most informative first."),
]
Terminal = Annotated[bool, typer.Option("--terminal", help="Print tables and plots instead of writing a file.")]
Show = Annotated[
    str | None,
    typer.Option("--show", metavar="TASK:ROLLOUT", help="Print the full transcript of this rollout instead."),
]


def command(
    runs: Runs,
    *,
    output: Output = None,
    transcripts: Transcripts = 500,
    terminal: Terminal = False,
    show: Show = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Write an HTML report of one or more runs.

    Shows the headline with intervals, plots, the tasks to look at first, and transcripts. The file opens offline, loads
    nothing and executes nothing that a model wrote. Several runs share the same plots. Unfinished runs are fine: the
    report states what is missing.
    """
    if terminal and (as_json or output is not None):
        raise typer.BadParameter("--terminal cannot be combined with --json or --output")
    if show is not None:
        return _show(runs, show)
    from gymnast.report.run_view import view_runs

    views = view_runs(runs)
    if terminal:
        return _print(views)
    return _write(views, output, transcripts, as_json=as_json)


def _write(views: list[RunView], output: Path | None, transcripts: int, *, as_json: bool) -> int:
    from gymnast.report.build import default_output, summary, write_report

    report = write_report(views, output or default_output(views), limit=transcripts)
    if as_json:
        import orjson

        runs = [summary(view) for view in views]
        print(orjson.dumps({"report": str(report.path), "size_bytes": report.size_bytes, "runs": runs}).decode())
        return 0
    from gymnast.report.terminal import headline_lines

    _print_lines(line for view in views for line in headline_lines(view))
    size = f"{report.size_bytes / 1e6:.1f} MB"
    _print_lines([f"report  {report.path}  ({size}, {report.transcripts} transcripts)"])
    return 0


def _print(views: list[RunView]) -> int:
    import shutil

    from gymnast.report.terminal import report_lines

    width = min(100, shutil.get_terminal_size((80, 24)).columns) if sys.stdout.isatty() else 80
    _print_lines(report_lines(views, width))
    return 0


def _show(runs: list[Path], show: str) -> int:
    from gymnast.report.transcript_text import transcript_lines
    from gymnast.store.paths import RunPaths

    if len(runs) != 1:
        raise typer.BadParameter("--show takes exactly one run")
    _print_lines(transcript_lines(RunPaths(runs[0]), _key(show)))
    return 0


def _print_lines(lines: Iterable[str]) -> None:
    """Print lines of any Unicode text; characters that standard output cannot encode are replaced."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    for line in lines:
        print(line)


def _key(text: str) -> RolloutKey:
    from gymnast.types.task import RolloutKey

    task, _, rollout = text.partition(":")
    if not task.isdecimal() or not rollout.isdecimal():
        raise typer.BadParameter(f"expected TASK:ROLLOUT, for example 41:3, got '{text}'", param_hint="--show")
    return RolloutKey(int(task), int(rollout))
