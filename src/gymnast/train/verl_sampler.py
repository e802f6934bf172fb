"""verl's replay buffer with Gymnast's figures and errors, for the trainer that reads from TransferQueue (v1).

    trainer.v1.sampler.custom_sampler: {path: pkg://gymnast.train.verl_sampler, name: make_sampler}

It samples as verl's own does. The figures of the rollouts that a step trains on go to verl's log. With `trainer_mode:
sync` it waits for the step's rollouts, inside verl's timer `timing_s/gen`, and raises if they failed.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from gymnast.train.errors import StepFailedError
from gymnast.train.verl_figures import ERROR, FACTS, step_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_POLL_S: Final = 0.2
_UNFINISHED: Final = frozenset({"pending", "running"})
_VALIDATION: Final = "val"


def make_sampler(trainer_mode: str, sampler_kwargs: Any = None, **kwargs: Any) -> ReplayBuffer:
    """The sampler of a trainer. verl passes a custom sampler no filter: `sampler_kwargs` has its settings."""
    options = dict(sampler_kwargs or {})
    filter_groups = options.get("filter_groups") or {}
    arguments = {
        "trainer_mode": trainer_mode,
        "sampler_kwargs": sampler_kwargs,
        "filter_groups_metric": filter_groups.get("metric") if filter_groups.get("enable") else None,
        **kwargs,
    }
    if trainer_mode != "sync":
        return GymnastReplayBufferAsync(**arguments)
    return GymnastReplayBuffer(
        train_batch_size=options.get("train_batch_size"),
        gen_batch_size=1,
        poll_interval=_POLL_S,
        max_inflight_gen_batches=filter_groups.get("max_inflight_gen_batches") or 1,
        **arguments,
    )


class GymnastReplayBuffer(ReplayBuffer):  # type: ignore[misc] # verl ships with the extra
    """Waits for the rollouts of a step, then samples as verl does."""

    def __init__(
        self, *args: Any, refill_fn: Callable[[int], Any] | None = None, queue: Any = None, **kwargs: Any
    ) -> None:
        self._queue = queue if queue is not None else import_module("transfer_queue")
        self._trainer_refill = refill_fn
        super().__init__(*args, refill_fn=self._refill if refill_fn is not None else None, **kwargs)

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Sample a batch. Raises StepFailedError with the cause if its rollouts failed."""
        self._wait(partition_id)
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        return batch, {**metrics, **figures_of(self._queue, batch, global_steps)}

    def _refill(self, count: int) -> None:
        assert self._trainer_refill is not None
        self._trainer_refill(count)
        self._wait("train")

    def _wait(self, partition_id: str) -> None:
        while True:
            tags = (self._queue.kv_list(partition_id) or {}).get(partition_id, {})
            require_rollouts(tags)
            if not any(tag.get("is_prompt") and tag.get("status") in _UNFINISHED for tag in tags.values()):
                return
            time.sleep(self.poll_interval)


class GymnastReplayBufferAsync(ReplayBufferAsync):  # type: ignore[misc] # verl ships with the extra
    """Samples as verl does in its asynchronous modes."""

    def __init__(self, *args: Any, queue: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._queue = queue if queue is not None else import_module("transfer_queue")

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Sample a batch."""
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        return batch, {**metrics, **figures_of(self._queue, batch, global_steps)}


def require_rollouts(tags: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise StepFailedError if rollouts of a prompt failed."""
    text = next((tag[ERROR] for tag in tags.values() if tag.get(ERROR)), None)
    if text is not None:
        raise StepFailedError(text)


def figures_of(queue: Any, batch: Any, step: int) -> dict[str, float]:
    """The figures of a batch in TransferQueue; none of a validation, which measures what training does not."""
    if batch.partition_id == _VALIDATION or not batch.keys:
        return {}
    entries = queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
    extras = [getattr(extra, "data", extra) for extra in entries["extra_fields"]]
    return step_figures([extra[FACTS] for extra in extras if extra.get(FACTS)], step)
