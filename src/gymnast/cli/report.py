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
    str | None,
    typer.Option(
        "--transcripts",
        metavar="N|all",
        help="Number of transcripts to include, or 'all'. [default: as many as fit into 10 MB]",
        show_default=False,
    ),
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
    transcripts: Transcripts = None,
    terminal: Terminal = False,
    show: Show = None,
    label: shared.Label = None,
    not_label: shared.NotLabel = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Write an HTML report of one or more runs.

    Shows the headline with intervals, plots, the tasks to look at first, and transcripts. The file opens offline, loads
    nothing and executes nothing that a model wrote. Several runs share the same plots. Unfinished runs are fine: the
    report states what is missing. Transcripts are included up to 10 MB, failures first and some of every task; the page
    says what was left out. An explicit number, or `all`, is honoured whatever its size. --label and --not-label choose
    rollouts by labels given in the studio.
    """
    if terminal and (as_json or output is not None):
        raise typer.BadParameter("--terminal cannot be combined with --json or --output")
    if show is not None:
        return _show(runs, show)
    from gymnast.report.run_view import view_runs
    from gymnast.store.labels import LabelFilter

    limit = _limit(transcripts)
    views = view_runs(runs, LabelFilter(tuple(label or ()), tuple(not_label or ())))
    if terminal:
        return _print(views)
    return _write(views, output, limit, as_json=as_json, fits=transcripts is None)


def _write(views: list[RunView], output: Path | None, transcripts: int | None, *, as_json: bool, fits: bool) -> int:
    from gymnast.report.build import default_output, summary, write_report
    from gymnast.report.transcripts import MAX_TRANSCRIPT_BYTES

    max_bytes = MAX_TRANSCRIPT_BYTES if fits else None
    report = write_report(views, output or default_output(views), limit=transcripts, max_bytes=max_bytes)
    if as_json:
        import orjson

        data = {
            "report": str(report.path),
            "size_bytes": report.size_bytes,
            "transcripts": report.transcripts,
            "rollouts": report.rollouts,
            "runs": [summary(view) for view in views],
        }
        print(orjson.dumps(data).decode())
        return 0
    from gymnast.report.terminal import headline_lines

    _print_lines(line for view in views for line in headline_lines(view))
    size = f"{report.size_bytes / 1e6:.1f} MB"
    _print_lines([f"report  {report.path}  ({size}, {report.transcripts:,} of {report.rollouts:,} transcripts)"])
    return 0


def _limit(transcripts: str | None) -> int | None:
    """The number of transcripts; None for no such limit."""
    if transcripts is None or transcripts == "all":
        return None
    if not transcripts.isdecimal():
        raise typer.BadParameter(f"expected a number or 'all', got '{transcripts}'", param_hint="--transcripts")
    return int(transcripts)


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
