"""What both of verl's trainers need of Gymnast: servers that stay up, asked for batches from whatever thread calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from omegaconf import OmegaConf

from gymnast import Collector
from gymnast.errors import UserError
from gymnast.train.background import Background
from gymnast.train.batch import collect_all, require_something_to_train
from gymnast.train.verl_dataset import ROW
from gymnast.train.verl_engine import VerlEngine
from gymnast.train.verl_settings import SECTION, model_overrides, read_settings, task_of, window_of
from gymnast.wire.http_client import raise_fd_limit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.train.samples import Batch
    from gymnast.train.verl_engine import LlmClient
    from gymnast.types.json import JsonObject


class VerlCollecting:
    """The environments that verl's configuration names, with verl's engines as their policy. Close it."""

    def __init__(self, config: Any, llm_client: LlmClient) -> None:
        whole: Any = OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config
        self.settings = read_settings(whole.get(SECTION))
        self.rollout: Mapping[str, Any] = whole["actor_rollout_ref"]["rollout"]
        path = str(whole["actor_rollout_ref"]["model"]["path"])
        self._empty_groups = 0
        raise_fd_limit()  # engines and environments are connections; how many are allowed bounds the concurrency
        self.background = Background("gymnast-verl")
        try:
            engine = self.background.enter(VerlEngine(llm_client, window=window_of(self.rollout)))
            self._collector = self.background.enter(
                Collector(
                    environments=self.settings.environments,
                    config_paths=self.settings.config_paths,
                    overrides=model_overrides(self.settings, path, self.rollout, engine.token),
                    model_type="vllm_model",
                    model=path,
                    model_url=engine.url,
                    workers=self.settings.workers,
                    log_dir=self.settings.log_dir,
                )
            )
        except BaseException:
            self.background.close()
            raise

    async def collect(self, tasks: Sequence[JsonObject], generations: int, *, validate: bool, step: int = 1) -> Batch:
        """Every rollout that was asked for. Raises FewerRolloutsError.

        Raises NothingToTrainError when `step` groups or more in a row were without a token to be trained on, unless it
        validates. `step`: how many groups a step of the trainer has, where it asks for some of them at a time.
        """
        batch = await collect_all(self._collector, tasks, generations=generations, options=self.settings.batch)
        if not validate:
            is_empty = not any(sample.is_trainable for sample in batch.samples)
            self._empty_groups = self._empty_groups + len(batch.groups) if is_empty else 0
            if self._empty_groups >= step:
                require_something_to_train(batch)
        return batch

    def masked_vote(self, *, validate: bool) -> bool:
        """Whether masked rollouts have their own reward as a score: in validation it is what is measured."""
        return validate or self.settings.masked_vote

    def tasks(self, columns: Mapping[str, Sequence[Any]], *, validate: bool) -> list[JsonObject]:
        """The rows of a batch that verl made of our dataset, with the sampling parameters of this step."""
        if ROW not in columns:
            raise UserError(
                f"the batch has no column '{ROW}'",
                where="verl's dataset",
                next="data.custom_cls: {path: pkg://gymnast.train.verl_dataset, name: GymnastDataset}",
            )
        sampled = columns.get("__do_sample__", [True] * len(columns[ROW]))
        return [
            task_of(orjson.loads(text), self.rollout, validate=validate, greedy=not is_sampled)
            for text, is_sampled in zip(columns[ROW], sampled, strict=True)
        ]

    def close(self) -> None:
        """End the servers."""
        self.background.close()


def pad_id_of(tokenizer_folder: str) -> int:
    """The id that fills rows up: the tokenizer's padding token, or else its end token."""
    from transformers import AutoTokenizer  # noqa: PLC0415 - takes seconds, and only the manager needs it

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    found = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    if found is None:
        raise UserError("the tokenizer has neither a padding nor an end token", where=tokenizer_folder)
    return int(found)
