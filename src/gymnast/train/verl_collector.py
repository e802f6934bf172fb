"""What both of verl's trainers need: servers that stay up, and batches collected from any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from omegaconf import OmegaConf

from gymnast import Collector
from gymnast.errors import UserError
from gymnast.train.background_loop import BackgroundLoop
from gymnast.train.batch import EmptyGroups, collect_batch
from gymnast.train.verl_dataset import ROW
from gymnast.train.verl_endpoint import VerlEndpoint
from gymnast.train.verl_settings import SECTION, model_overrides, read_settings, task_of, window_of
from gymnast.wire.http_client import raise_fd_limit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.train.samples import Batch
    from gymnast.train.verl_endpoint import LlmClient
    from gymnast.types.json import JsonObject


class VerlCollector:
    """The environments that verl's configuration names, with verl's inference servers as the policy. Must be closed."""

    def __init__(self, config: Any, llm_client: LlmClient) -> None:
        values: Any = OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config
        self.settings = read_settings(values.get(SECTION))
        self.rollout: Mapping[str, Any] = values["actor_rollout_ref"]["rollout"]
        path = str(values["actor_rollout_ref"]["model"]["path"])
        self._empty_groups = EmptyGroups()
        raise_fd_limit()  # every rollout holds connections, so the limit bounds the concurrency
        self.background = BackgroundLoop("gymnast-verl")
        try:
            endpoint = self.background.enter(VerlEndpoint(llm_client, window=window_of(self.rollout)))
            self._collector = self.background.enter(
                Collector(
                    environments=self.settings.environments,
                    config_paths=self.settings.config_paths,
                    overrides=model_overrides(self.settings, path, self.rollout, endpoint.token),
                    model_type="vllm_model",
                    model=path,
                    model_url=endpoint.url,
                    workers=self.settings.workers,
                    log_dir=self.settings.log_dir,
                )
            )
        except BaseException:
            self.background.close()
            raise

    async def collect(self, tasks: Sequence[JsonObject], generations: int, *, validate: bool, step: int = 1) -> Batch:
        """Collect every requested rollout. Raises FewerRolloutsError if any is missing.

        In training, raises NothingToTrainError after `step` consecutive groups without a trainable token. `step`: the
        number of groups in a training step, if the trainer requests them in parts.
        """
        batch = await collect_batch(
            self._collector, tasks, generations=generations, options=self.settings.batch, allow_untrainable=True
        )
        if not validate:
            self._empty_groups.take(batch, step)
        return batch

    def masked_vote(self, *, validate: bool) -> bool:
        """True if masked rollouts are scored by their own reward; always in validation, which measures it."""
        return validate or self.settings.masked_vote

    def tasks(self, columns: Mapping[str, Sequence[Any]], *, validate: bool) -> list[JsonObject]:
        """The rows of a batch that verl built from our dataset, with this step's sampling parameters."""
        if ROW not in columns:
            raise UserError(
                f"the batch has no column '{ROW}'",
                where="verl's dataset",
                next="data.custom_cls: {path: pkg://gymnast.train.verl_dataset, name: GymnastDataset}",
            )
        do_sample = columns.get("__do_sample__", [True] * len(columns[ROW]))
        return [
            task_of(orjson.loads(text), self.rollout, validate=validate, greedy=not is_sampled)
            for text, is_sampled in zip(columns[ROW], do_sample, strict=True)
        ]

    def close(self) -> None:
        """Stop the servers."""
        self.background.close()


def pad_id_of(tokenizer_folder: str) -> int:
    """The id that rows are padded with: the tokenizer's padding token, else its end token."""
    from transformers import AutoTokenizer  # noqa: PLC0415 - slow import that only the manager needs

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    if pad_id is None:
        raise UserError("the tokenizer has neither a padding nor an end token", where=tokenizer_folder)
    return int(pad_id)
