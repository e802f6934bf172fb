"""A matrix of runs (`--agent a,b --model x,y`): one run per cell, one table at the end.

Cells run one after the other, each in its own folder. A cell that fails does not end the others; Ctrl-C does. The
result so far is in matrix.json, and `--resume` finishes what is missing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.cli.options import say

if TYPE_CHECKING:
    from rich.table import Table

    from gymnast.types.events import RunFinished

ROLLOUTS: Final = "rollouts.jsonl"
_FILE: Final = "matrix.json"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME: Final = 120
_HEADINGS: Final = (
    *("scored", "failed", "truncated", "mean reward", "95% interval", "tokens in", "tokens out", "cost", "state"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a matrix; None is what the configuration says."""

    agent: str | None
    model: str | None
    folder: str

    @property
    def title(self) -> str:
        return " × ".join(name for name in (self.agent, self.model) if name is not None)


class CellResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """The figures of a cell's run. `error` says why there are none."""

    agent: str | None
    model: str | None
    benchmark: str | None = None
    state: str
    """complete, incomplete, failed (no run was made) or not_run."""
    exit_code: int | None = None
    output: str | None = None
    requested: int = 0
    scored: int = 0
    failed: dict[str, int] = {}
    mean_reward: float | None = None
    low: float | None = None
    high: float | None = None
    tasks: int = 0
    truncated: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    seconds: float | None = None
    metrics: dict[str, float] = {}
    error: str | None = None


RunCell = Callable[[Cell], tuple[int, list[CellResult]]]


def make_cells(agent: str | None, model: str | None) -> list[Cell]:
    """The cells of the options `--agent` and `--model`, each a list with commas. One cell is not a matrix."""
    agents, models = _split(agent, "--agent"), _split(model, "--model")
    cells, folders = list[Cell](), set[str]()
    for agent_name in agents:
        for model_name in models:
            parts = [Path(agent_name).stem if agent_name and agent_name.endswith((".yaml", ".yml")) else agent_name]
            folder = _folder_name([*parts, model_name], folders)
            folders.add(folder)
            cells.append(Cell(agent_name, model_name, folder))
    return cells


def run_matrix(cells: Sequence[Cell], folder: Path, run_cell: RunCell, *, as_json: bool) -> int:
    """Run every cell, print the table, return the worst exit code of the cells."""
    from gymnast.cli.main import INTERRUPTED

    results: list[CellResult] = []
    worst = 0
    for number, cell in enumerate(cells, start=1):
        say(f"run {number} of {len(cells)}: {cell.title}")
        code, cell_results = _run_guarded(cell, run_cell)
        results += cell_results
        worst = max(worst, code)
        rest = cells[number:]
        _write(folder, [*results, *(_not_run(other) for other in rest)])
        if code == INTERRUPTED:
            results += [_not_run(other) for other in rest]
            break
    _print(results, folder, as_json=as_json)
    return worst


def _run_guarded(cell: Cell, run_cell: RunCell) -> tuple[int, list[CellResult]]:
    """Run a cell; an error becomes its result."""
    from gymnast.cli.main import INTERRUPTED, explain

    try:
        return run_cell(cell)
    except KeyboardInterrupt:
        return INTERRUPTED, [_not_run(cell)]
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the boundary of a cell: the others go on
        code = explain(error)
        text = str(error) or type(error).__name__
        return code, [CellResult(agent=cell.agent, model=cell.model, state="failed", exit_code=code, error=text)]


def make_result(
    cell: Cell,
    finished: RunFinished,
    code: int,
    *,
    benchmark: str | None = None,
    metrics: dict[str, float] | None = None,
) -> CellResult:
    """The figures of a run that ended."""
    from gymnast.results.run import load

    reward = load(finished.output).mean_reward if finished.scored else None
    is_known = reward is not None and reward.n > 0
    return CellResult(
        agent=cell.agent,
        model=cell.model,
        benchmark=benchmark,
        state="complete" if not finished.owed else "incomplete",
        exit_code=code,
        output=finished.output,
        requested=finished.requested,
        scored=finished.scored,
        failed=finished.failed,
        mean_reward=reward.value if reward is not None and is_known else None,
        low=reward.low if reward is not None and is_known else None,
        high=reward.high if reward is not None and is_known else None,
        tasks=reward.n if reward is not None else 0,
        truncated=sum(stats.truncated for stats in finished.agents.values()),
        input_tokens=finished.spent.input_tokens,
        output_tokens=finished.spent.output_tokens,
        cost=finished.spent.cost,
        seconds=round(finished.seconds, 3),
        metrics=metrics or {},
    )


def _print(results: Sequence[CellResult], folder: Path, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(_document(results))).decode() + "\n")
        return
    from gymnast.cli.progress import fits, make_console

    console, table = make_console(), _table(results)
    if fits(table, console):
        console.print(table)
    else:
        headings = [str(column.header) for column in table.columns]
        for result in results:
            print(", ".join(f"{name} {text}" for name, text in zip(headings, _row(result, results), strict=True)))
    for result in results:
        if result.error is not None:
            print(f"{_title(result)}: {result.error.splitlines()[0]}")
    print(f"runs      {folder}")
    print(f"figures   {folder / _FILE}")


def _table(results: Sequence[CellResult]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    names = [name for name in ("agent", "model", "benchmark") if any(getattr(result, name) for result in results)]
    for name in names:
        table.add_column(name)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(*(escape(text) for text in _row(result, results)))
    return table


def _row(result: CellResult, results: Sequence[CellResult]) -> list[str]:
    from gymnast.cli.progress import format_count

    names = [name for name in ("agent", "model", "benchmark") if any(getattr(other, name) for other in results)]
    has_run = result.output is not None
    interval = "–" if result.low is None or result.high is None else f"{result.low:.3f} – {result.high:.3f}"
    return [
        *(str(getattr(result, name) or "–") for name in names),
        f"{result.scored} of {result.requested}" if has_run else "–",
        str(sum(result.failed.values())) if has_run else "–",
        str(result.truncated) if has_run else "–",
        "–" if result.mean_reward is None else f"{result.mean_reward:.3f}",
        "one task" if result.tasks == 1 and has_run else interval,
        format_count(result.input_tokens) if has_run else "–",
        format_count(result.output_tokens) if has_run else "–",
        "–" if result.cost is None else f"{result.cost:.4g}",
        result.state.replace("_", " "),
    ]


def _title(result: CellResult) -> str:
    return " × ".join(name for name in (result.agent, result.model) if name is not None)


def _not_run(cell: Cell) -> CellResult:
    return CellResult(agent=cell.agent, model=cell.model, state="not_run")


def _document(results: Sequence[CellResult]) -> dict[str, object]:
    return {"schema_version": 1, "cells": list(results)}


def _write(folder: Path, results: Sequence[CellResult]) -> None:
    from gymnast.errors import UserError
    from gymnast.store.atomic import atomic_write, make_folders

    path = folder / _FILE
    try:
        make_folders(folder)
        atomic_write(path, msgspec.json.format(msgspec.json.encode(_document(results))))
    except OSError as error:
        raise UserError(f"cannot write {path.name}: {error.strerror or error}", where=str(path)) from error


def _split(text: str | None, option: str) -> list[str | None]:
    if text is None:
        return [None]
    from gymnast.errors import UserError

    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UserError(f"an empty name in {option} '{text}'", next=f"for example {option} a,b")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{option} names '{twice}' twice", next="name each once; -n repeats rollouts")
    return list(names)


def _folder_name(parts: Sequence[str | None], folders: set[str]) -> str:
    """A folder for a cell; different cells have different folders, whatever characters their names have."""
    plain = "--".join(_UNSAFE.sub("-", part).strip("-.") or "cell" for part in parts if part is not None)[:_MAX_NAME]
    lowered = {name.lower() for name in folders}
    candidates = [plain, *(f"{plain}-{number}" for number in range(2, len(folders) + 3))]
    return next(name for name in candidates if name.lower() not in lowered)
