"""Building a report: read the runs, draw, write one file. Returns the numbers that it shows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import UserError
from gymnast.report.page import page
from gymnast.report.payload import BUDGET_BYTES, columns, transcripts
from gymnast.report.transcripts import Limits
from gymnast.store.replacing import replaced

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gymnast.report.run_view import RunView
    from gymnast.types.json import JsonObject

TRANSCRIPTS: Final = 500
"""How many transcripts a report carries, unless told."""


@dataclass(frozen=True, slots=True)
class Written:
    """A report on disk."""

    path: Path
    size_bytes: int
    transcripts: int


def write_report(runs: Sequence[RunView], output: Path, *, limit: int = TRANSCRIPTS) -> Written:
    """Write the page of these runs. `limit`: transcripts to carry, shared among the runs."""
    _refuse_run_files(runs, output)
    share = max(1, limit // len(runs)) if limit else 0
    room = BUDGET_BYTES // len(runs)
    chosen = [transcripts(run, share, room, Limits()) for run in runs]
    text = page(runs, [columns(run) for run in runs], chosen).encode()
    with replaced(output) as out:
        out.write(text)
    return Written(output, len(text), sum(map(len, chosen)))


def default_output(runs: Sequence[RunView]) -> Path:
    """Beside the first run, named after all of them."""
    first = runs[0].paths.output
    names = "_and_".join(run.paths.output.stem for run in runs[:3]) + ("_and_more" if len(runs) > 3 else "")
    return first.with_name(f"{names}_report.html")


def summary(run: RunView) -> JsonObject:
    """A run's numbers: its headline as the profile has it, and what the report adds."""
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
        "pass_at": [{"k": k, **asdict(found)} for k, found in run.curve],
        "failure_effect": {name: value for name, value in effect.items() if name != "excluded"},
        "failed_attempts": dict(run.loaded.failures.attempts),
        "uncertain_tasks": [int(run.tasks.ids[row]) for row in run.tasks.uncertain(10)],
        "slowest_tasks": [int(run.tasks.ids[row]) for row in run.tasks.slowest(10)],
    }


def _refuse_run_files(runs: Sequence[RunView], output: Path) -> None:
    taken = {path.resolve() for run in runs for path in run.paths.all()}
    if output.resolve() in taken or output.is_dir():
        what = "a folder" if output.is_dir() else "a file of the run"
        raise UserError(f"the report can't be written there: it is {what}", where=str(output), next="give an --output")
