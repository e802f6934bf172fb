"""Writes the profile's files: one line per task, one object per agent. Writes are atomic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import orjson

from gymnast.profile.groups import describe_rows, rollout_infos
from gymnast.store.atomic import atomic_output
from gymnast.types.task import TASK_INDEX

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.profile.groups import Groups
    from gymnast.profile.plan_index import PlanIndex
    from gymnast.types.json import JsonObject


def write_task_profiles(path: Path, groups: Groups, plan: PlanIndex) -> None:
    """Write `x_reward_profiling.jsonl`."""
    expected, integers = plan.expected(), groups.table.is_integer
    with atomic_output(path) as out, plan.samples() as samples:
        for task, rows in groups:
            line = task_profile(groups, task, rows, expected[task], samples.fragment(task), integers=integers)
            out.write(orjson.dumps(line) + b"\n")


def task_profile(
    groups: Groups, task: int, rows: slice, expected: int, sample: object, *, integers: bool
) -> JsonObject:
    """One line of the profile."""
    count = rows.stop - rows.start
    truncated = int(groups.table.truncated[rows].sum())
    return {
        TASK_INDEX: task,
        **describe_rows(groups.table, rows, integers=integers),
        "sample": sample,
        "num_rollouts": count,
        "expected_num_rollouts": expected,
        "missing_num_rollouts": expected - count,
        "reward_profile_completion_pct": 100.0 * count / expected,
        **({"num_truncated": truncated} if truncated else {}),
        "rollout_infos": rollout_infos(groups.table, rows),
    }


def write_agent_metrics(path: Path, groups: Groups) -> None:
    """Write `x_agent_metrics.json`: the same statistics over all rollouts of each agent."""
    table = groups.table
    entries = []
    for number, name in enumerate(table.agent_names):
        own = table.select(np.flatnonzero(table.agents == number))
        statistics = describe_rows(own, slice(0, len(own)), integers=table.is_integer)
        entries.append({**statistics, "agent_ref": {"name": name}})
    with atomic_output(path) as out:
        out.write(orjson.dumps(entries))
