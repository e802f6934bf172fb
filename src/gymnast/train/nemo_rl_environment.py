"""An environment for NeMo RL with the interface of its NeMo Gym environment: rows in, results with exact tokens out.

Groups arrive in order of completion, each row with its index. An incomplete group raises an error that can be pickled.
`actor_of` runs the environment in a Ray actor.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, contextmanager
from dataclasses import fields, replace
from functools import partial
from importlib import import_module
from itertools import groupby
from math import gcd
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast import Collector
from gymnast.config import compose, read_environ
from gymnast.errors import UserError, suggest
from gymnast.rollouts.tool_modes import offer_row_tools
from gymnast.train.arguments import require_switch
from gymnast.train.batch_progress import BatchOptions
from gymnast.train.causes import unavailable
from gymnast.train.errors import FewerRolloutsError, RolloutsUnavailableError
from gymnast.train.group_stream import stream
from gymnast.train.nemo_rl_results import ROW_INDEX, TurnMarks, group_batch, group_results
from gymnast.train.sample_reader import SampleOptions
from gymnast.train.shared_rollouts import SharedRollouts
from gymnast.train.stream_options import StreamOptions
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

    from gymnast.config import Config
    from gymnast.train.batch_request import Rollouts
    from gymnast.train.nemo_rl_results import Decoder
    from gymnast.train.samples import Group
    from gymnast.types.json import JsonObject

SECTION: Final = "gymnast"
_MODEL: Final = "policy_model.responses_api_models.vllm_model"
_DEFAULT_CONCURRENCY: Final = 1024


class GymnastEnvironment:
    """Plain Python: `await start()`, then `run_rollouts`. `cfg` is what NeMo RL passes to its own environment:

    `model_name`, `base_urls`, and `initial_global_config_dict` with `config_paths` and other NeMo Gym settings.
    `invalid_tool_call_patterns` and `thinking_tags` are the texts that mark a turn. The section `gymnast`, in the
    mapping (`env.nemo_gym.gymnast` in NeMo RL's YAML) or at the top level of `cfg`, may set the fields of
    `BatchOptions`, `masked_vote`, and `tokenizer`: a folder, for inference servers that accept token ids.
    """

    def __init__(self, cfg: Mapping[str, Any], rollouts: Rollouts | None = None) -> None:
        self._cfg = cfg
        section = {**(_gym_config(cfg).get(SECTION) or {}), **(cfg.get(SECTION) or {})}
        self._tokenizer_folder = section.pop("tokenizer", None)
        self._masked_vote = section.pop("masked_vote", False)
        require_switch("masked_vote", self._masked_vote)
        known = {field.name for field in fields(BatchOptions)} - {"sample"}
        unknown = sorted(section.keys() - known)
        if unknown:
            raise UserError(
                f"unknown setting: {', '.join(unknown)}",
                where=f"the section '{SECTION}' of NeMo RL's config",
                next=suggest(unknown[0], known | {"masked_vote", "tokenizer"}),
            )
        self.options = BatchOptions(**section, sample=SampleOptions(keep_line=True))
        self._marks = TurnMarks.from_config(cfg)
        self._rollouts = rollouts
        self._concurrency = self.options.concurrency or _DEFAULT_CONCURRENCY
        self._shared: SharedRollouts | None = None
        self._stack = AsyncExitStack()
        self._tokenizer: Decoder | None = None
        self._pad_id = 0
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Start the servers, unless they are running."""
        async with self._starting:
            if self._rollouts is None:
                self._rollouts = await self._stack.enter_async_context(
                    Collector(config=config_of(self._cfg, self._tokenizer_folder))
                )
            if self._shared is None:
                self._shared = SharedRollouts(self._rollouts, self._concurrency)

    async def _spinup(self) -> None:
        """NeMo RL's name for `start`."""
        await self.start()

    async def health_check(self) -> None:
        """Raise RuntimeError if the servers are not running, one of them is down or the policy cannot be reached."""
        if self._rollouts is None:
            raise RuntimeError("the servers are not running: _spinup() was never called on this instance")
        if isinstance(self._rollouts, Collector):
            problems = await self._rollouts.find_problems()
            if problems:
                raise RuntimeError("; ".join(problems))

    def set_tokenizer(self, tokenizer: Any) -> None:
        """Set it once per actor instead of passing it with every call. Used for texts in logs, never for token ids."""
        self._tokenizer = tokenizer
        self._pad_id = next((i for i in (tokenizer.pad_token_id, tokenizer.eos_token_id) if i is not None), 0)

    async def run_rollouts(
        self,
        rows: Sequence[JsonObject],
        timer_prefix: str = "timing/rollout",
        deduplicate_multimodal_data: bool = False,  # noqa: FBT001, FBT002 - NeMo RL passes it by position
        *,
        num_generations: int | None = None,
    ) -> AsyncGenerator[tuple[int, JsonObject, dict[str, float] | None]]:
        """Yield each row's index (`_rowidx`, else its position), its result, and timings with the last one.

        Raises FewerRolloutsError if any is lost; RolloutsUnavailableError if the tasks are not the cause. Without
        `num_generations`, consecutive rows of the same task form a group. Images stay in the rows that the trainer has:
        results never repeat them, whatever `deduplicate_multimodal_data` says.
        """
        size = num_generations or group_size(rows)
        timer = _Timer(timer_prefix)
        left = len(rows)
        async for group, results in self._groups(rows, size, timer):
            for position, result in enumerate(results, group.task * size):
                index = rows[position].get(ROW_INDEX, position)
                result["full_result"][ROW_INDEX] = index
                left -= 1
                yield index, result, None if left else timer.metrics()

    async def run_groups(
        self, rows: Sequence[JsonObject], num_generations: int, *, max_length: int | None = None
    ) -> AsyncGenerator[JsonObject]:
        """Yield groups with their batch and metrics, in the form of NeMo RL's accumulator."""
        async for group, results in self._groups(rows, num_generations):
            yield group_batch(group, results, max_length=max_length)

    async def step(self, *_: Any) -> None:
        raise NotImplementedError("Gymnast runs the turns: call run_rollouts")

    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, float]]:
        return batch, {}

    async def shutdown(self) -> None:
        """Stop the servers."""
        await self._stack.aclose()
        self._rollouts = self._shared = None

    async def _groups(
        self, rows: Sequence[JsonObject], generations: int, timer: _Timer | None = None
    ) -> AsyncGenerator[tuple[Group, list[JsonObject]]]:
        tasks = tasks_of(rows, generations)
        await self.start()
        assert self._shared is not None
        options = StreamOptions(
            replace(self.options, concurrency=min(self._concurrency, generations)),
            groups_in_flight=max(1, self._concurrency // generations),
            groups_ready=len(tasks),
            split_agents=False,  # NeMo RL takes one result for each row
        )
        make_results = partial(
            group_results,
            pad_id=self._pad_id,
            tokenizer=self._tokenizer,
            masked_vote=self._masked_vote,
            marks=self._marks,
        )
        timer = timer or _Timer("")
        done: set[int] = set()
        async with stream(self._shared, tasks, generations=generations, options=options) as groups:
            try:
                async for group in groups:
                    done.add(group.task)
                    with timer.time_postprocessing():
                        results = make_results(group)
                    yield group, results
            except FewerRolloutsError as error:
                raise unavailable(error) from None  # its causes need not survive pickling
        missing = [f"{task}:{index}" for task in range(len(tasks)) if task not in done for index in range(generations)]
        if missing:
            text = f"{len(rows) - len(missing)} of {len(rows)} rollouts came back; missing: {', '.join(missing[:20])}"
            raise RolloutsUnavailableError(text, len(rows), len(rows) - len(missing), {}, missing)


class _Timer:
    """The timings of a batch under the names that NeMo RL logs."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._started = time.perf_counter()
        self._postprocess_s = 0.0

    @contextmanager
    def time_postprocessing(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._postprocess_s += time.perf_counter() - started

    def metrics(self) -> dict[str, float]:
        total = time.perf_counter() - self._started
        return {
            f"{self._prefix}/await_results": total - self._postprocess_s,
            f"{self._prefix}/postprocess_results": self._postprocess_s,
            f"{self._prefix}/postprocess_results_pct": 100 * self._postprocess_s / total,
        }


def tasks_of(rows: Sequence[JsonObject], generations: int) -> list[JsonObject]:
    """One task per group of rows. Raises UserError unless the rows form complete groups of the same task."""
    if not rows or len(rows) % generations:
        raise UserError(
            f"{len(rows)} rows do not form complete groups of {generations}", next="check num_generations_per_prompt"
        )
    tasks = [_without_indexes(row) for row in rows]
    for position, task in enumerate(tasks):
        if task != tasks[position - position % generations]:
            raise UserError(
                f"row {position} belongs to a different task than the first row of its group",
                next="repeat each task consecutively",
            )
    return tasks[::generations]


def group_size(rows: Sequence[JsonObject]) -> int:
    """The number of consecutive rows of the same task: the largest that fits all tasks, one of which may come twice."""
    tasks = groupby(orjson.dumps(_without_indexes(row), option=orjson.OPT_SORT_KEYS) for row in rows)
    return gcd(*(len(list(run)) for _, run in tasks)) or 1


def _without_indexes(row: JsonObject) -> JsonObject:
    return {name: value for name, value in row.items() if name not in {ROW_INDEX, TASK_INDEX, ROLLOUT_INDEX}}


def _gym_config(cfg: Mapping[str, Any]) -> Mapping[str, Any]:
    return cfg.get("initial_global_config_dict") or {}


def config_of(cfg: Mapping[str, Any], tokenizer: str | None = None) -> Config:
    """The servers that NeMo RL's configuration names, with its inference servers as the policy."""
    values = {name: value for name, value in _gym_config(cfg).items() if name != SECTION}
    paths = [str(path) for path in values.pop("config_paths", ())]
    overrides = [f"++{_MODEL}.return_token_id_information=true"]
    policy = {
        "policy_base_url": [str(url) for url in cfg["base_urls"]],
        "policy_api_key": "dummy_key",
        "policy_model_name": str(cfg["model_name"]),
    }
    if tokenizer:
        overrides.append(f'++{_MODEL}.tokenizer="{tokenizer}"')
    has_model = any("responses_api_models" in path for path in paths)
    config = compose(
        read_environ(),
        config_paths=paths,
        values={**values, **policy},
        overrides=overrides,
        model_type=None if has_model else "vllm_model",
    )
    return offer_row_tools(config)  # as NeMo Gym, in whose place it runs


def actor_of(cfg: Mapping[str, Any], **options: Any) -> Any:
    """Start the environment in a Ray actor. `options` are Ray's; `num_returns="streaming"` streams a call."""
    try:
        actor: Any = import_module("gymnast.train.nemo_rl_actor").GymnastActor
    except ImportError as error:
        raise UserError("running in an actor needs Ray", next="pip install 'gymnast[ray]'") from error
    return actor.options(**options).remote(cfg)
