"""`nemo_gym.rollout_collection`: collect through running servers, row by row for trainers or as a whole run."""

from asyncio import Semaphore
from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import orjson
from pydantic import BaseModel, Field, field_validator, model_validator

from gymnast.compat.nemo_gym.config_types import BaseServerConfig
from gymnast.compat.nemo_gym.example_runner import ExampleRunner, Result
from gymnast.compat.nemo_gym.example_runner import RolloutFailedError as RolloutFailedError
from gymnast.compat.nemo_gym.global_config import get_global_config_dict as get_global_config_dict
from gymnast.compat.nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status, token_for
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.compat.nemo_gym.trajectories import attach_trajectory
from gymnast.config import read_environ
from gymnast.rollouts.aggregate import metrics_entry, strip_row
from gymnast.rollouts.engine import EngineOptions
from gymnast.rollouts.observer import RunObserver
from gymnast.rollouts.options import RunOptions
from gymnast.rollouts.plan import Planner, PlanOptions
from gymnast.rollouts.prompt import read_template
from gymnast.rollouts.retry import DEFAULT_ROLLOUT_TIMEOUT_S, RetryPolicy
from gymnast.rollouts.run import collect_with
from gymnast.rollouts.runner import LocalRunner
from gymnast.rollouts.servers import Servers, connect_servers
from gymnast.rollouts.skills import skills_ref
from gymnast.runtime.find_head import Head
from gymnast.store.atomic import atomic_write
from gymnast.store.lines import numbered_lines
from gymnast.store.paths import RunPaths
from gymnast.types.task import FAILURE_CLASS, FAILURE_TERMINAL, NO_PERSIST, agent_name_of, key_of
from gymnast.wire.calls import Calls
from gymnast.wire.http_connection import TransportError
from gymnast.wire.message import Reply, Request
from gymnast.wire.progress import Signals

NG_FAILURE_CLASS_KEY: Final = FAILURE_CLASS
NG_TERMINAL_KEY: Final = FAILURE_TERMINAL
NG_NO_PERSIST_KEY: Final = NO_PERSIST


class SkillsConfig(BaseModel):
    """The folder of skills."""

    path: str | None = None


class SharedRolloutCollectionConfig(BaseModel):
    """Settings of every collection."""

    output_jsonl_fpath: str
    num_samples_in_parallel: int | None = None
    responses_create_params: dict[str, Any] = Field(default_factory=dict)
    disable_aggregation: bool = False
    upload_rollouts: bool = True


class RolloutCollectionConfig(SharedRolloutCollectionConfig):
    """Settings of a collection from a file."""

    agent_name: str | None = None
    agent_map: dict[str, str] = Field(default_factory=dict)
    input_jsonl_fpath: str
    limit: int | None = None
    num_repeats: int | dict[str, int] = 1
    num_repeats_add_seed: bool = False
    resume_from_cache: bool = False
    prompt_config: str | None = None
    skills: SkillsConfig | None = None

    @field_validator("num_repeats", mode="before")
    @classmethod
    def _coerce_null_num_repeats(cls, v: Any) -> Any:
        return 1 if v is None else v

    @model_validator(mode="after")
    def _validate_num_repeats(self) -> "RolloutCollectionConfig":
        counts = self.num_repeats.values() if isinstance(self.num_repeats, dict) else [self.num_repeats]
        if any(count < 1 for count in counts):
            raise ValueError("num_repeats must be at least 1")
        return self

    @property
    def materialized_jsonl_fpath(self) -> Path:
        return RunPaths(Path(self.output_jsonl_fpath)).materialized_inputs

    def plan(self) -> PlanOptions:
        """These settings as the engine's plan options."""
        skills = self.skills.path if self.skills is not None else None
        return PlanOptions(
            agent=self.agent_name,
            agent_map=self.agent_map,
            repeats=self.num_repeats,
            limit=self.limit,
            add_seed=self.num_repeats_add_seed,
            params=self.responses_create_params,
            deep_merge=False,
            template=read_template(Path(self.prompt_config)) if self.prompt_config else None,
            skills=skills_ref(Path(skills), skills) if skills else None,
        )


class RolloutCollectionHelper(BaseModel):
    """Collects rollouts."""

    rollout_timeout_s: float = DEFAULT_ROLLOUT_TIMEOUT_S
    """A row that takes longer fails."""

    def run_examples(
        self,
        examples: list[dict[str, Any]],
        head_server_config: BaseServerConfig | None = None,
        semaphore: Semaphore | None = None,
    ) -> Iterator[Awaitable[Result]]:
        """Awaitables of (row, result) in order of completion. A permanent failure raises RolloutFailedError."""
        head = head_server_config or ServerClient.load_head_server_config()
        url = f"http://{head.host}:{head.port}"
        limit: AbstractAsyncContextManager[Any] = semaphore or nullcontext()
        retry = RetryPolicy(max_attempts=_get_max_rollout_attempts())
        return ExampleRunner(url, token_for(url), self.rollout_timeout_s, retry, limit).start(examples)

    def setup_server_client(self, head_server_config: BaseServerConfig | None = None) -> ServerClient:
        """A client of all servers that the head server knows."""
        return ServerClient.load_from_global_config(head_server_config)

    async def run_from_config(self, config: RolloutCollectionConfig) -> tuple[list[dict[str, Any]]]:
        """Collect a whole run with its files; returns the rows of its output."""
        options = RunOptions(
            source=Path(config.input_jsonl_fpath),
            output=Path(config.output_jsonl_fpath),
            plan=config.plan(),
            engine=EngineOptions(
                config.num_samples_in_parallel,
                self.rollout_timeout_s,
                RetryPolicy(max_attempts=_get_max_rollout_attempts()),
            ),
            existing="resume_if_planned" if config.resume_from_cache else "set_aside",
            aggregate=not config.disable_aggregation,
            token_form="items",
        )
        await self._collect(config, options)
        return (_rows(Path(config.output_jsonl_fpath)),)

    async def _collect(self, config: RolloutCollectionConfig, options: RunOptions) -> None:
        """Collect through the head server, or through the client of a subclass that makes its own."""
        if type(self).setup_server_client is RolloutCollectionHelper.setup_server_client:
            head = ServerClient.load_head_server_config()
            url = f"http://{head.host}:{head.port}"
            async with connect_servers(replace(options, serve=Head(url, token_for(url)))) as servers:
                await collect_with(servers, options, RunObserver())
            return
        rows = self._preprocess_rows_from_config(config)
        agents = sorted({name for row in rows if (name := agent_name_of(row)) is not None})
        servers = client_servers(self.setup_server_client(), agents)
        # One attempt for each call of run_from_config, as there: the client may be a test's.
        engine = replace(options.engine, retry=RetryPolicy(max_attempts=1))
        once = replace(options, aggregate=False, engine=engine, retry_failed=config.resume_from_cache)
        await collect_with(servers, once, RunObserver())
        if not config.disable_aggregation:
            output = Path(config.output_jsonl_fpath)
            planned = {key_of(row): row for row in _rows(options.paths.materialized_inputs)}
            results = _rows(output)
            await self._call_aggregate_metrics(results, [planned[key_of(row)] for row in results], output)

    def _preprocess_rows_from_config(self, config: RolloutCollectionConfig) -> list[dict[str, Any]]:
        planner = Planner(Path(config.input_jsonl_fpath), config.plan(), None)
        return [orjson.loads(line) for chunk in planner.chunks() for line in chunk.splitlines()]

    def _load_from_cache(
        self, config: RolloutCollectionConfig
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]], list[list[str]]]:
        """The rows left to do, the inputs of the results, the results, and the results as lines."""
        paths = RunPaths(Path(config.output_jsonl_fpath))
        planned = {key_of(row): row for row in _rows(paths.materialized_inputs)}
        results = _rows(paths.output)
        failed = _rows(paths.failures) if paths.failures.exists() else []
        tries = Counter(key_of(row) for row in failed)
        done = {key_of(row) for row in results} | {key_of(row) for row in failed if row.get(FAILURE_TERMINAL)}
        done |= {key for key, count in tries.items() if count >= _get_max_rollout_attempts()}
        left = [row for key, row in planned.items() if key not in done]
        inputs = [planned[key_of(row)] for row in results if key_of(row) in planned]
        return left, inputs, results, [[orjson.dumps(row).decode()] for row in results]

    async def _call_aggregate_metrics(
        self, results: list[dict[str, Any]], rows: list[dict[str, Any]], output_fpath: Path
    ) -> Path | None:
        client = self.setup_server_client()
        by_agent: dict[str, list[dict[str, Any]]] = {}
        for result, row in zip(results, rows, strict=True):
            by_agent.setdefault(agent_name_of(result) or agent_name_of(row) or "", []).append(strip_row(result))
        entries = []
        for name in sorted(by_agent):
            body = {"verify_responses": by_agent[name]}
            response = await client.post(server_name=name, url_path="/aggregate_metrics", json=body)
            await raise_for_status(response)
            entries.append(metrics_entry(name, cast("dict[str, Any]", await get_response_json(response))))
        target = RunPaths(Path(output_fpath)).aggregate_metrics
        atomic_write(target, orjson.dumps(entries, option=orjson.OPT_INDENT_2) + b"\n")
        return target


def _rows(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for _, line in numbered_lines(path)]


def _get_max_rollout_attempts() -> int:
    """Attempts per rollout (NEMO_GYM_MAX_ROLLOUT_ATTEMPTS)."""
    return read_environ().max_attempts


def _attach_trajectory_record(row: dict[str, Any], result: dict[str, Any]) -> None:
    """Attach the trajectory of a rollout to its result, if the agent reported one."""
    attach_trajectory(row, result)


__getattr__ = missing_from("nemo_gym.rollout_collection")


class ClientTransport:
    """Delivers calls with a client's `post`."""

    address = "a server client"

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name

    async def send(self, request: Request) -> Reply:
        """Deliver a call; whatever the client raises means that no reply came."""
        try:
            response = await self._client.post(
                server_name=self._name, url_path=request.path, json=request.body, cookies=dict(request.cookies) or None
            )
            return Reply(response.status, await get_response_json(response))
        except Exception as error:
            raise TransportError(f"{type(error).__name__}: {error}") from error


def client_servers(client: Any, agents: Iterable[str]) -> Servers:
    """Servers for a run whose agents are reached through this client."""
    names = list(agents)
    calls = Calls({name: ClientTransport(client, name) for name in names})
    return Servers(LocalRunner(calls, Signals()), calls, names, [])
