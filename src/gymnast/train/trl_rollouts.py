"""A rollout function for TRL's GRPOTrainer: Gymnast runs turns, tools, environment and reward, TRL trains.

    with TrlRollouts(Collector(…), rows) as rollouts:
        GRPOTrainer(model, rollouts.reward, args, train_dataset=rollouts.dataset(), rollout_func=rollouts.rollout)

TRL passes prompts only. Each carries its row's index, so a task's fields do not have to fit into a chat message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from gymnast.errors import UserError
from gymnast.train.background_loop import BackgroundLoop
from gymnast.train.batch import collect_batch
from gymnast.train.batch_progress import BatchOptions
from gymnast.train.metrics import batch_metrics
from gymnast.train.prompt_files import prompt_messages
from gymnast.train.sequences import generations_of, reason_of, rollout_rows
from gymnast.types.task import PARAMS, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from gymnast.train.batch_request import Rollouts
    from gymnast.train.samples import Sample
    from gymnast.types.json import JsonObject


class TrlRollouts:
    """The rows of a dataset and the servers that run them. `rows`: a list, or `gymnast.train.offsets.JsonlRows`."""

    def __init__(
        self,
        rollouts: AbstractAsyncContextManager[Rollouts],
        rows: Sequence[JsonObject] | Any,
        options: BatchOptions | None = None,
        *,
        before: Callable[[Any, TrlRollouts], None] | None = None,
    ) -> None:
        self._resource = rollouts
        self._rows = rows
        self._options = options or BatchOptions()
        self._before = before
        self.background = BackgroundLoop("gymnast-trl")
        self.rollouts: Rollouts | None = None
        self.figures: dict[str, float] = {}
        """Metrics of the last batch; the reward function adds them to the trainer's log."""

    def __enter__(self) -> Self:
        try:
            self.rollouts = self.background.enter(self._resource)
        except BaseException:
            self.background.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.background.close()

    def dataset(self) -> Any:
        """The prompts as a dataset for the trainer; its logs show the messages."""
        from datasets import Dataset  # noqa: PLC0415 - heavy, comes with TRL

        return Dataset.from_list(list(self._prompts()))

    def rollout(self, prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        """TRL's `rollout_func`: one completion per prompt. Raises FewerRolloutsError if any is missing.

        In evaluation, masked rollouts keep their reward.

        Calls `before` first with the trainer and this object, e.g. to load new weights into the policy.
        """
        assert self.rollouts is not None, "use it as `with TrlRollouts(…)`"
        if self._before is not None:
            self._before(trainer, self)
        indexes = [_row_index(prompt) for prompt in prompts]
        generations = generations_of(indexes)
        tasks = [{TASK_INDEX: index, **self._rows[index]} for index in indexes[::generations]]
        is_evaluation = not getattr(getattr(trainer, "model", None), "training", True)
        work = collect_batch(
            self.rollouts, tasks, generations=generations, options=self._options, allow_untrainable=is_evaluation
        )
        batch = self.background.run(work)
        self.figures = batch_metrics(batch.samples)
        return columns(list(batch.samples), indexes, pad_id=pad_id_of(trainer), masked_vote=is_evaluation)

    def ask(self, instance: str, path: str, body: Any = None) -> Any:
        """Send a request to a server outside of rollouts; see `gymnast.Collector.ask`."""
        rollouts: Any = self.rollouts
        return self.background.run(rollouts.ask(instance, path, body))

    def reward(
        self,
        gymnast_reward: list[float | None],
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """The reward function. None excludes a rollout from its group's baseline and from the loss."""
        if log_metric is not None:
            for name, value in self.figures.items():
                log_metric(f"gymnast/{name}", value)
        return gymnast_reward

    def _prompts(self) -> Iterator[JsonObject]:
        for index in range(len(self._rows)):
            messages = prompt_messages(self._rows[index][PARAMS]["input"])
            yield {"prompt": [{**message, TASK_INDEX: index} for message in messages]}


def columns(
    samples: Sequence[Sample], indexes: Sequence[int], *, pad_id: int, masked_vote: bool = False
) -> dict[str, list[Any]]:
    """The columns that TRL expects: ids, logprobs, the mask of sampled tokens, and the reward.

    TRL has one row per prompt. A rollout with several segments does not fit and is masked. `masked_vote`: masked
    rollouts keep their reward.
    """
    rows = rollout_rows(samples, indexes, pad_id)
    return {
        "prompt_ids": [row.prompt.tolist() for row in rows],
        "completion_ids": [row.response.tolist() for row in rows],
        "logprobs": [row.logprobs.tolist() for row in rows],
        "env_mask": [row.mask.tolist() for row in rows],
        "gymnast_reward": [row.sample.reward if masked_vote or row.sample.is_trainable else None for row in rows],
        "gymnast_mask_reason": [reason_of(row) for row in rows],
    }


def pad_id_of(trainer: Any) -> int:
    """The id that a trainer pads rows with."""
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    pad_id = tokenizer.pad_token_id
    return int(pad_id if pad_id is not None else tokenizer.eos_token_id)


def _row_index(prompt: Any) -> int:
    index = prompt[0].get(TASK_INDEX) if isinstance(prompt, list) and prompt else None
    if not isinstance(index, int):
        raise UserError("a prompt has no task index", where="TRL's dataset", next="train_dataset=rollouts.dataset()")
    return index
