"""The profile's files: one line a task, one object an agent. Written to another name and moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import orjson

from gymnast.profile.groups import described, rollout_infos
from gymnast.store.replacing import replaced
from gymnast.types.task import TASK_INDEX

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.profile.groups import Groups
    from gymnast.profile.plan_index import PlanIndex
    from gymnast.types.json import JsonObject


def write_task_profiles(path: Path, groups: Groups, plan: PlanIndex) -> None:
    """`x_reward_profiling.jsonl`."""
    expected, integers = plan.expected(), groups.table.is_integer
    with replaced(path) as out, plan.samples() as samples:
        for task, rows in groups:
            line = task_profile(groups, task, rows, expected[task], samples.fragment(task), integers=integers)
            out.write(orjson.dumps(line) + b"\n")


def task_profile(
    groups: Groups, task: int, rows: slice, expected: int, sample: object, *, integers: bool
) -> JsonObject:
    """One line of the profile."""
    count = rows.stop - rows.start
    return {
        TASK_INDEX: task,
        **described(groups.table, rows, integers=integers),
        "sample": sample,
        "num_rollouts": count,
        "expected_num_rollouts": expected,
        "missing_num_rollouts": expected - count,
        "reward_profile_completion_pct": 100.0 * count / expected,
        "rollout_infos": rollout_infos(groups.table, rows),
    }


def write_agent_metrics(path: Path, groups: Groups) -> None:
    """`x_agent_metrics.json`: the same statistics over all rollouts of each agent."""
    table = groups.table
    entries = []
    for number, name in enumerate(table.agent_names):
        mine = table.chosen(np.flatnonzero(table.agents == number))
        entries.append({**described(mine, slice(0, len(mine)), integers=table.is_integer), "agent_ref": {"name": name}})
    with replaced(path) as out:
        out.write(orjson.dumps(entries))
