"""Runs planned in chunks as a submit plans them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gymnast.chunks.planning import ChunkingOptions, PlannedRun, plan_run
from gymnast.chunks.worker_spec import ConfigArguments
from gymnast.config import compose, read_environ
from gymnast.rollouts.options import RunOptions
from gymnast.rollouts.plan import PlanOptions
from tests.helpers.jsonl import example_rows, write_jsonl

DEMO: Final = ("responses_api_models/scripted_model/configs/demo.yaml",)
NAMES: Final = ConfigArguments(environments=("mcqa",), config_paths=DEMO)


def plan_examples(folder: Path, chunking: ChunkingOptions | None = None, **options: Any) -> PlannedRun:
    """Plan a run of the example rows in chunks, eight rollouts each."""
    config = compose(read_environ(), environments=NAMES.environments, config_paths=DEMO).require_valid()
    source = folder / "tasks.jsonl"
    if not source.exists():
        write_jsonl(source, example_rows("mcqa"))
    plan = PlanOptions(agent="mcqa_simple_agent", repeats=8)
    run_options = replace(RunOptions(source=source, output=folder / "x.jsonl", plan=plan), **options)
    return plan_run(run_options, config, NAMES, chunking or ChunkingOptions(workers=2, lease_s=5.0))
