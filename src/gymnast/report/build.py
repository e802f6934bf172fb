"""Builds a report: one HTML file, and the numbers it shows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import UserError
from gymnast.report.html_page import render_page
from gymnast.report.payload import MAX_TRANSCRIPT_BYTES, collect_transcripts, make_columns
from gymnast.report.transcript_items import Limits
from gymnast.store.atomic import atomic_output

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gymnast.report.run_view import RunView
    from gymnast.types.json import JsonObject

TRANSCRIPTS: Final = 500
"""The default number of transcripts in a report."""


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """A report on disk."""

    path: Path
    size_bytes: int
    transcripts: int


def write_report(runs: Sequence[RunView], output: Path, *, limit: int = TRANSCRIPTS) -> WrittenReport:
    """Write the report of these runs. `limit`: the number of transcripts to include, divided among the runs."""
    _check_output(runs, output)
    share = max(1, limit // len(runs)) if limit else 0
    max_bytes = MAX_TRANSCRIPT_BYTES // len(runs)
    transcripts = [collect_transcripts(run, share, max_bytes, Limits()) for run in runs]
    text = render_page(runs, [make_columns(run) for run in runs], transcripts).encode()
    with atomic_output(output) as out:
        out.write(text)
    return WrittenReport(output, len(text), sum(map(len, transcripts)))


def default_output(runs: Sequence[RunView]) -> Path:
    """A file next to the first run, named after all runs."""
    first = runs[0].paths.output
    names = "_and_".join(run.paths.output.stem for run in runs[:3]) + ("_and_more" if len(runs) > 3 else "")
    return first.with_name(f"{names}_report.html")


def summary(run: RunView) -> JsonObject:
    """The numbers of a run: its headline from the profile, and what the report adds."""
    head: dict[str, Any] = asdict(run.headline)
    for agent in head["agents"]:
        del agent["metrics"]
    effect = head.pop("failure_effect")
    return {
        "run": run.name,
        "path": str(run.paths.output),
        "mean_reward": effect["excluded"],
        **head,
        "excluded": run.excluded,
        "is_binary": run.is_binary,
        "pass_at": [{"k": k, **asdict(estimate)} for k, estimate in run.curve],
        "failure_effect": {name: value for name, value in effect.items() if name != "excluded"},
        "failed_attempts": dict(run.loaded.failures.attempts),
        "uncertain_tasks": [int(run.tasks.ids[row]) for row in run.tasks.most_uncertain(10)],
        "slowest_tasks": [int(run.tasks.ids[row]) for row in run.tasks.slowest(10)],
    }


def _check_output(runs: Sequence[RunView], output: Path) -> None:
    run_files = {path.resolve() for run in runs for path in run.paths.all()}
    if output.resolve() in run_files or output.is_dir():
        kind = "a folder" if output.is_dir() else "a file of the run"
        raise UserError(f"cannot write the report here: this is {kind}", where=str(output), next="pass --output")
