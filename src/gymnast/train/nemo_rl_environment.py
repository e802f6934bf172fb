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
from gymnast.errors import UserError
from gymnast.train.errors import FewerRolloutsError
from gymnast.train.gathering import BatchOptions
from gymnast.train.group_stream import StreamOptions, stream
from gymnast.train.nemo_rl_results import ROW_INDEX, group_batch, group_results
from gymnast.train.reading import SampleOptions
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from gymnast.train.asking import Rollouts
    from gymnast.train.nemo_rl_results import Decoder
    from gymnast.train.samples import Group
    from gymnast.types.json import JsonObject

_MODEL: Final = "policy_model.responses_api_models.vllm_model"
_ROLLOUTS_AT_ONCE: Final = 1024


class GymnastEnvironment:
    """Plain Python: `await start()`, then `run_rollouts`. `cfg` is what NeMo RL gives its own:

    `model_name`, `base_urls`, and `initial_global_config_dict` with `config_paths` and whatever else a NeMo Gym config
    says. `gymnast` in it may hold the names of `BatchOptions`, and `tokenizer`: a folder, for engines that take ids.
    """

    def __init__(self, cfg: Mapping[str, Any], rollouts: Rollouts | None = None) -> None:
        self._cfg = cfg
        own = dict(cfg.get("gymnast") or {})
        self._tokenizer_folder = own.pop("tokenizer", None)
        known = {one.name for one in fields(BatchOptions)} - {"sample"}
        unknown = sorted(own.keys() - known)
        if unknown:
            raise UserError(
                f"no setting of Gymnast: {', '.join(unknown)}", next=f"known are {', '.join(sorted(known))}"
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
                self._rollouts = await self._stack.enter_async_context(collector_of(self._cfg, self._tokenizer_folder))

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
        self, rows: Sequence[JsonObject], num_generations: int = 1, **_: Any
    ) -> AsyncGenerator[tuple[int, JsonObject]]:
        """Each row's index and result. Raises FewerRolloutsError when rollouts are missing."""
        async for group, results in self._groups(rows, num_generations):
            for place, result in enumerate(results):
                row = group.task * num_generations + place
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

    async def _groups(
        self, rows: Sequence[JsonObject], generations: int
    ) -> AsyncGenerator[tuple[Group, list[JsonObject]]]:
        tasks = tasks_of(rows, generations)
        await self.start()
        assert self._rollouts is not None
        options = StreamOptions(
            replace(self.options, concurrency=self.options.concurrency or generations),
            groups_in_flight=max(1, _ROLLOUTS_AT_ONCE // generations),
            groups_ready=len(tasks),
        )
        came: set[int] = set()
        async with stream(self._rollouts, tasks, generations=generations, options=options) as groups:
            async for group in groups:
                came.add(group.task)
                yield group, group_results(group, pad_id=self._pad_id, tokenizer=self._tokenizer)
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
    bare = [
        {name: value for name, value in row.items() if name not in {ROW_INDEX, TASK_INDEX, ROLLOUT_INDEX}}
        for row in rows
    ]
    for place, row in enumerate(bare):
        if row != bare[place - place % generations]:
            raise UserError(
                f"row {place} is another task than the first of its group", next="repeat each task in a row"
            )
    return bare[::generations]


def collector_of(cfg: Mapping[str, Any], tokenizer: str | None = None) -> Collector:
    """The servers that a configuration of NeMo RL names, with its engines as the policy."""
    given = dict(cfg.get("initial_global_config_dict") or {})
    paths = [str(path) for path in given.pop("config_paths", ())]
    own = [f"++{_MODEL}.return_token_id_information=true"]
    own += [f"++{_MODEL}.tokenizer={tokenizer}"] if tokenizer else []
    urls = [str(url) for url in cfg["base_urls"]]
    has_model = any("responses_api_models" in path for path in paths)
    return Collector(
        config_paths=paths,
        overrides=[
            *flat_overrides(given),
            f"++policy_base_url={orjson.dumps(urls).decode()}",
            "++policy_api_key=dummy_key",
            f"++policy_model_name={cfg['model_name']}",
            *own,
        ],
        model_type=None if has_model else "vllm_model",
    )


def flat_overrides(given: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Nested settings as overrides, one for each leaf."""
    found: list[str] = []
    for name, value in given.items():
        if isinstance(value, dict) and value:
            found += flat_overrides(value, f"{prefix}{name}.")
        else:
            found.append(f"++{prefix}{name}={orjson.dumps(value).decode()}")
    return found


def actor_of(cfg: Mapping[str, Any], **options: Any) -> Any:
    """The environment in a Ray actor. `options` are Ray's; a call streams with `num_returns="streaming"`."""
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise UserError("an actor needs Ray", next="pip install 'gymnast[ray]'") from error
    return ray.remote(**{"max_restarts": -1, "max_concurrency": 16, **options})(GymnastEnvironment).remote(cfg)
