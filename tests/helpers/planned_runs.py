"""Runs planned in chunks as a submit plans them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gymnast.cluster.order import ConfigNames
from gymnast.cluster.planning import InChunks, PlannedRun, plan_run
from gymnast.config import compose, read_environ
from gymnast.rollouts.plan import PlanOptions
from gymnast.rollouts.run import CollectRequest
from tests.helpers.jsonl import example_rows, write_jsonl

DEMO: Final = ("responses_api_models/scripted_model/configs/demo.yaml",)
NAMES: Final = ConfigNames(environments=("mcqa",), config_paths=DEMO)


def plan_examples(folder: Path, how: InChunks | None = None, **request: Any) -> PlannedRun:
    """Plan a run of the example rows in chunks, eight rollouts each."""
    config = compose(read_environ(), environments=NAMES.environments, config_paths=DEMO).checked()
    source = folder / "tasks.jsonl"
    if not source.exists():
        write_jsonl(source, example_rows("mcqa"))
    options = PlanOptions(agent="mcqa_simple_agent", repeats=8)
    wanted = replace(CollectRequest(source, folder / "x.jsonl", options), **request)
    return plan_run(wanted, config, NAMES, how or InChunks(workers=2, lease_s=5.0))
