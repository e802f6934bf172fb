"""The identity of rollouts and the reserved keys of a row. The rest of a row is author's data, which we never read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

PARAMS: Final = "responses_create_params"
AGENT_REF: Final = "agent_ref"
TASK_SOURCE: Final = "task_source"
"""The instance that lists the row's dataset; in rows that newer versions of NeMo Gym prepare, instead of an agent."""
TASK_INDEX: Final = "_ng_task_index"
ROLLOUT_INDEX: Final = "_ng_rollout_index"
ATTEMPT_INDEX: Final = "_ng_attempt_index"
ROLLOUT_ID: Final = "_ng_rollout_id"
SKILLS_REF: Final = "skills_ref"
FAILURE_CLASS: Final = "_ng_failure_class"
JUDGE_ERROR: Final = "_ng_failure_judge_error"
FAILURE_TERMINAL: Final = "_ng_failure_terminal"
NO_PERSIST: Final = "_ng_no_persist"
MASK: Final = "mask_sample"
"""True on records that must not be trained on."""
INSTANCE: Final = "instance_config"
"""An object of a record, in which NeMo RL looks for `mask_sample`."""
ALTERED: Final = "gymnast_altered_values"
"""The values of a record that JSON cannot hold, and what became of them."""
NOT_ATTEMPTS: Final = ("_ng_omitted_rollout", "_ng_unrouted_run_error")
"""Marks of newer versions of NeMo Gym on rows of failures files that are evidence, not attempts."""
INPUT_LINE: Final = "input_line"

# The keys that are copied from an input row to its result.
IDENTITY_KEYS: Final = (TASK_INDEX, ROLLOUT_INDEX, AGENT_REF, SKILLS_REF, ATTEMPT_INDEX, ROLLOUT_ID)

_ROLLOUT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class RolloutKey(NamedTuple):
    """One rollout of a run: the task and the index of the repeat."""

    task: int
    rollout: int

    def __str__(self) -> str:
        return f"{self.task}:{self.rollout}"

    @property
    def packed(self) -> int:
        """The key as one integer, which takes a third of the memory of a tuple."""
        return (self.task << 32) | self.rollout


def key_of(row: JsonObject) -> RolloutKey | None:
    """The rollout that a row belongs to, or None for a row without indexes."""
    task, rollout = row.get(TASK_INDEX), row.get(ROLLOUT_INDEX)
    if isinstance(task, int) and isinstance(rollout, int):
        return RolloutKey(task, rollout)
    return None


def correlation_id(row: JsonObject) -> str | None:
    """The id under which calls of this attempt are correlated (contract: explicit id, else task-rollout, plus -aN)."""
    base = row.get(ROLLOUT_ID)
    if base is not None:
        if not isinstance(base, str) or not _ROLLOUT_ID.fullmatch(base):
            return None
    else:
        task, rollout = row.get(TASK_INDEX), row.get(ROLLOUT_INDEX)
        if not isinstance(task, int) or not isinstance(rollout, int):
            return None
        base = f"{task}-{rollout}"
    attempt = row.get(ATTEMPT_INDEX)
    return f"{base}-a{attempt}" if isinstance(attempt, int) and attempt > 0 else base


def agent_name_of(row: JsonObject) -> str | None:
    """The agent instance a row is routed to."""
    ref = row.get(AGENT_REF)
    name = ref.get("name") if isinstance(ref, dict) else None
    return name if isinstance(name, str) else None
