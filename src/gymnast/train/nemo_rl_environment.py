"""An environment for NeMo RL, called as its own NeMo Gym environment is: rows in, results with exact tokens out.

Groups come in the order in which they complete, every row with its index. A group is whole or the call raises, with an
error that can be pickled. `actor_of` puts it into a Ray actor.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast import Collector
from gymnast.config import compose, read_environ
from gymnast.errors import UserError
from gymnast.train.errors import FewerRolloutsError
from gymnast.train.gathering import BatchOptions
from gymnast.train.group_stream import StreamOptions, stream
from gymnast.train.nemo_rl_results import ROW_INDEX, group_batch, group_results
from gymnast.train.reading import SampleOptions
from gymnast.train.sequences import generations_of
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from gymnast.config import Config
    from gymnast.train.asking import Rollouts
    from gymnast.train.nemo_rl_results import Decoder
    from gymnast.train.samples import Group
    from gymnast.types.json import JsonObject

SECTION: Final = "gymnast"
_MODEL: Final = "policy_model.responses_api_models.vllm_model"
_ROLLOUTS_AT_ONCE: Final = 1024
"""Unless `concurrency` says it."""


class GymnastEnvironment:
    """Plain Python: `await start()`, then `run_rollouts`. `cfg` is what NeMo RL gives its own:

    `model_name`, `base_urls`, and `initial_global_config_dict` with `config_paths` and whatever else a NeMo Gym config
    says. `gymnast`, in the latter (`env.nemo_gym.gymnast` of NeMo RL's YAML) or beside it, may hold the names of
    `BatchOptions`, `masked_vote`, and `tokenizer`: a folder, for engines that take ids.
    """

    def __init__(self, cfg: Mapping[str, Any], rollouts: Rollouts | None = None) -> None:
        self._cfg = cfg
        own = {**(_given(cfg).get(SECTION) or {}), **(cfg.get(SECTION) or {})}
        self._tokenizer_folder = own.pop("tokenizer", None)
        self._masked_vote = bool(own.pop("masked_vote", False))
        known = {one.name for one in fields(BatchOptions)} - {"sample"}
        unknown = sorted(own.keys() - known)
        if unknown:
            raise UserError(
                f"no setting of Gymnast: {', '.join(unknown)}",
                where=f"the section '{SECTION}' of NeMo RL's config",
                next=f"known are {', '.join(sorted(known | {'masked_vote', 'tokenizer'}))}",
            )
        self.options = BatchOptions(**own, sample=SampleOptions(keep_line=True))
        self._rollouts = rollouts
        self._stack = AsyncExitStack()
        self._tokenizer: Decoder | None = None
        self._pad_id = 0
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Start the servers, unless they run."""
        async with self._starting:
            if self._rollouts is None:
                self._rollouts = await self._stack.enter_async_context(
                    Collector(config=config_of(self._cfg, self._tokenizer_folder))
                )

    async def _spinup(self) -> None:
        """The name under which NeMo RL asks for it."""
        await self.start()

    def health_check(self) -> bool:
        return True

    def set_tokenizer(self, tokenizer: Any) -> None:
        """Once for each actor, instead of with every call. It is used for texts in logs, never for ids."""
        self._tokenizer = tokenizer
        self._pad_id = next((i for i in (tokenizer.pad_token_id, tokenizer.eos_token_id) if i is not None), 0)

    async def run_rollouts(
        self, rows: Sequence[JsonObject], num_generations: Any = None, *_: Any, **__: Any
    ) -> AsyncGenerator[tuple[int, JsonObject]]:
        """Each row's index (`_rowidx`, else its place) and result. Raises FewerRolloutsError when some are missing.

        Unless `num_generations` says it, rows of one task that follow each other are a group. Other arguments, as
        trainers pass them for their own logs, are not needed.
        """
        size = num_generations if isinstance(num_generations, int) else group_size(rows)
        async for group, results in self._groups(rows, size):
            for place, result in enumerate(results, group.task * size):
                row = rows[place].get(ROW_INDEX, place)
                result["full_result"][ROW_INDEX] = row
                yield row, result

    async def run_groups(
        self, rows: Sequence[JsonObject], num_generations: int, *, max_length: int | None = None
    ) -> AsyncGenerator[JsonObject]:
        """Groups with their batch and metrics, as NeMo RL's accumulator puts them together."""
        async for group, results in self._groups(rows, num_generations):
            yield group_batch(group, results, max_length=max_length)

    async def step(self, *_: Any) -> None:
        raise NotImplementedError("turns are Gymnast's: call run_rollouts")

    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, float]]:
        return batch, {}

    async def shutdown(self) -> None:
        """End the servers."""
        await self._stack.aclose()
        self._rollouts = None

    def _results(self, group: Group) -> list[JsonObject]:
        return group_results(group, pad_id=self._pad_id, tokenizer=self._tokenizer, masked_vote=self._masked_vote)

    async def _groups(
        self, rows: Sequence[JsonObject], generations: int
    ) -> AsyncGenerator[tuple[Group, list[JsonObject]]]:
        tasks = tasks_of(rows, generations)
        await self.start()
        assert self._rollouts is not None
        at_once = self.options.concurrency or _ROLLOUTS_AT_ONCE
        options = StreamOptions(
            replace(self.options, concurrency=min(at_once, generations)),
            groups_in_flight=max(1, at_once // generations),
            groups_ready=len(tasks),
        )
        came: set[int] = set()
        async with stream(self._rollouts, tasks, generations=generations, options=options) as groups:
            async for group in groups:
                came.add(group.task)
                yield group, self._results(group)
        missing = [f"{task}:{place}" for task in range(len(tasks)) if task not in came for place in range(generations)]
        if missing:
            text = f"{len(rows) - len(missing)} of {len(rows)} rollouts came back: {', '.join(missing[:20])} did not"
            raise FewerRolloutsError(text, len(rows), len(rows) - len(missing), {}, missing)


def tasks_of(rows: Sequence[JsonObject], generations: int) -> list[JsonObject]:
    """One task for each group of rows. Raises UserError unless rows come in whole groups of the same task."""
    if not rows or len(rows) % generations:
        raise UserError(
            f"{len(rows)} rows are no whole groups of {generations}", next="check num_generations_per_prompt"
        )
    bare = [_bare(row) for row in rows]
    for place, row in enumerate(bare):
        if row != bare[place - place % generations]:
            raise UserError(
                f"row {place} is another task than the first of its group", next="repeat each task in a row"
            )
    return bare[::generations]


def group_size(rows: Sequence[JsonObject]) -> int:
    """How many rows of the same task follow each other, if it is as many everywhere; else 1."""
    return generations_of([orjson.dumps(_bare(row), option=orjson.OPT_SORT_KEYS) for row in rows])


def _bare(row: JsonObject) -> JsonObject:
    return {name: value for name, value in row.items() if name not in {ROW_INDEX, TASK_INDEX, ROLLOUT_INDEX}}


def _given(cfg: Mapping[str, Any]) -> Mapping[str, Any]:
    return cfg.get("initial_global_config_dict") or {}


def config_of(cfg: Mapping[str, Any], tokenizer: str | None = None) -> Config:
    """The servers that a configuration of NeMo RL names, with its engines as the policy."""
    given = {name: value for name, value in _given(cfg).items() if name != SECTION}
    paths = [str(path) for path in given.pop("config_paths", ())]
    tokens = [f"++{_MODEL}.return_token_id_information=true"]
    policy = {
        "policy_base_url": [str(url) for url in cfg["base_urls"]],
        "policy_api_key": "dummy_key",
        "policy_model_name": str(cfg["model_name"]),
    }
    if tokenizer:
        tokens.append(f'++{_MODEL}.tokenizer="{tokenizer}"')
    has_model = any("responses_api_models" in path for path in paths)
    return compose(
        read_environ(),
        config_paths=paths,
        values={**given, **policy},
        overrides=tokens,
        model_type=None if has_model else "vllm_model",
    )


def actor_of(cfg: Mapping[str, Any], **options: Any) -> Any:
    """The environment in a Ray actor. `options` are Ray's; a call streams with `num_returns="streaming"`."""
    try:
        actor: Any = import_module("gymnast.train.nemo_rl_actor").GymnastActor
    except ImportError as error:
        raise UserError("an actor needs Ray", next="pip install 'gymnast[ray]'") from error
    return actor.options(**options).remote(cfg)
