"""A rollout function for TRL's GRPOTrainer: turns, tools, environment and reward are Gymnast's, training is TRL's.

    with TrlRollouts(Collector(…), rows) as rollouts:
        GRPOTrainer(model, rollouts.reward, args, train_dataset=rollouts.dataset(), rollout_func=rollouts.rollout)

TRL passes prompts only. Each carries the number of its row, so a task's fields never have to fit a chat message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from gymnast.errors import UserError
from gymnast.train.background import Background
from gymnast.train.batch import collect_batch
from gymnast.train.gathering import BatchOptions
from gymnast.train.metrics import batch_metrics
from gymnast.train.sequences import generations_of, reason_of, whole_rows
from gymnast.types.task import PARAMS, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from gymnast.train.asking import Rollouts
    from gymnast.train.samples import Sample
    from gymnast.types.json import JsonObject


class TrlRollouts:
    """Rows of a dataset, and the servers that run them. `rows` may be a list or `gymnast.train.offsets.JsonlRows`."""

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
        self.background = Background("gymnast-trl")
        self.rollouts: Rollouts | None = None
        self.figures: dict[str, float] = {}
        """Of the last batch; the reward function adds them to the trainer's log."""

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
        """The prompts as a dataset for the trainer; what its logs show are the messages."""
        from datasets import Dataset  # noqa: PLC0415 - heavy, and TRL's

        return Dataset.from_list(list(self._prompts()))

    def rollout(self, prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        """TRL's `rollout_func`: one completion for each prompt. Raises FewerRolloutsError when some are missing.

        `before` is called first with the trainer and this, e.g. to hand new weights to the policy.
        """
        assert self.rollouts is not None, "use it as `with TrlRollouts(…)`"
        if self._before is not None:
            self._before(trainer, self)
        places = [_place_of(prompt) for prompt in prompts]
        generations = generations_of(places)
        tasks = [{TASK_INDEX: place, **self._rows[place]} for place in places[::generations]]
        batch = self.background.run(collect_batch(self.rollouts, tasks, generations=generations, options=self._options))
        self.figures = batch_metrics(batch.samples)
        return columns(list(batch.samples), places, pad_id=pad_id_of(trainer))

    def ask(self, instance: str, path: str, body: Any = None) -> Any:
        """What a server answers to a request beside the rollouts; see `gymnast.Collector.ask`."""
        rollouts: Any = self.rollouts
        return self.background.run(rollouts.ask(instance, path, body))

    def reward(
        self,
        gymnast_reward: list[float | None],
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """The reward function. None leaves a rollout out of its group's baseline and of the loss."""
        if log_metric is not None:
            for name, value in self.figures.items():
                log_metric(f"gymnast/{name}", value)
        return gymnast_reward

    def _prompts(self) -> Iterator[JsonObject]:
        for place in range(len(self._rows)):
            given = self._rows[place][PARAMS]["input"]
            messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
            shown = [{"role": str(one.get("role", "user")), "content": _text(one)} for one in messages]
            yield {"prompt": [{**one, TASK_INDEX: place} for one in shown]}


def columns(samples: Sequence[Sample], places: Sequence[int], *, pad_id: int) -> dict[str, list[Any]]:
    """What TRL takes: ids, logprobs, the mask of what was sampled, and for the reward function the reward.

    TRL has one row for each prompt. A rollout of several segments does not fit one and is masked.
    """
    rows = whole_rows(samples, places, pad_id)
    return {
        "prompt_ids": [row.prompt.tolist() for row in rows],
        "completion_ids": [row.response.tolist() for row in rows],
        "logprobs": [row.logprobs.tolist() for row in rows],
        "env_mask": [row.mask.tolist() for row in rows],
        "gymnast_reward": [row.sample.reward if row.sample.is_trainable else None for row in rows],
        "gymnast_mask_reason": [reason_of(row) for row in rows],
    }


def pad_id_of(trainer: Any) -> int:
    """The id with which a trainer fills rows up."""
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    found = tokenizer.pad_token_id
    return int(found if found is not None else tokenizer.eos_token_id)


def _place_of(prompt: Any) -> int:
    place = prompt[0].get(TASK_INDEX) if isinstance(prompt, list) and prompt else None
    if not isinstance(place, int):
        raise UserError(
            "a prompt does not say which task it is", where="TRL's dataset", next="train_dataset=rollouts.dataset()"
        )
    return place


def _text(message: JsonObject) -> str:
    content = message.get("content", "")
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
