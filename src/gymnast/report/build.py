"""Builds a report: one HTML file, and the numbers it shows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final, cast

from gymnast.errors import UserError
from gymnast.report.html_page import write_page
from gymnast.report.payload import make_columns
from gymnast.report.transcripts import MAX_TRANSCRIPT_BYTES, collect_transcripts
from gymnast.store.atomic import atomic_output

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gymnast.report.run_view import RunView
    from gymnast.types.json import JsonObject


_IN_MEMORY: Final = 32 << 20
"""Transcripts to keep in memory; more are kept in a temporary file."""


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """A report on disk."""

    path: Path
    size_bytes: int
    transcripts: int
    rollouts: int
    """Rollouts on record, whether their transcripts are included or not."""


def write_report(
    runs: Sequence[RunView],
    output: Path,
    *,
    limit: int | None = None,
    max_bytes: int | None = MAX_TRANSCRIPT_BYTES,
) -> WrittenReport:
    """Write the report of these runs.

    `limit`: the number of transcripts to include; `max_bytes`: their size. Both are divided among the runs; None for no
    limit.
    """
    _check_output(runs, output)
    share_bytes = max_bytes if max_bytes is None else max_bytes // len(runs)
    with SpooledTemporaryFile(max_size=_IN_MEMORY) as spool, atomic_output(output) as out:
        chunks = cast("IO[bytes]", spool)
        transcripts = [
            collect_transcripts(run, chunks, limit=_share(limit, run.number, len(runs)), max_bytes=share_bytes)
            for run in runs
        ]
        write_page(out, runs, [make_columns(run) for run in runs], transcripts)
    included, total = sum(map(len, transcripts)), sum(run.total for run in runs)
    return WrittenReport(output, output.stat().st_size, included, total)


def _share(limit: int | None, number: int, runs: int) -> int | None:
    """The part of the limit that one of several runs gets."""
    return limit if limit is None else limit // runs + (number < limit % runs)


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
        "models": dict(run.setup.models),
        "sampling": {name: dict(values) for name, values in run.setup.sampling.items()},
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
