"""`gymnast.Collector`: servers that stay up while many batches of rows run through them, e.g. for a trainer.

Rows go in and come out with their records, in the order in which they finish. Retries and deadlines are the engine's.
Only logs are written to disk.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import orjson

from gymnast.config import compose, read_environ
from gymnast.errors import CallError, DataError, suggest
from gymnast.rollouts.budget import Budget, require_prices
from gymnast.rollouts.engine import EngineOptions
from gymnast.rollouts.exit_status import parse_allowance
from gymnast.rollouts.observer import RunObserver
from gymnast.rollouts.options import RunOptions, check_truncated_policy, only_agent
from gymnast.rollouts.record_stream import RecordStream
from gymnast.rollouts.retry import DEFAULT_ATTEMPTS, DEFAULT_GIVE_UP_AFTER_S, DEFAULT_ROLLOUT_TIMEOUT_S, RetryPolicy
from gymnast.rollouts.row_lines import RowLines
from gymnast.rollouts.run_engine import run_engine
from gymnast.rollouts.run_store import MemoryRunStore
from gymnast.rollouts.servers import connect_servers, start_servers
from gymnast.runtime.find_head import Head, parse_head_url
from gymnast.runtime.logs import log_folder
from gymnast.tracking.telemetry import report_run
from gymnast.types.events import InstanceDied
from gymnast.types.failure import Stage
from gymnast.types.task import AGENT_REF, PARAMS, ROLLOUT_INDEX, TASK_INDEX, RolloutKey, agent_name_of
from gymnast.types.telemetry import DEFAULT_TRACE_SAMPLE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

    from gymnast.config import Config
    from gymnast.rollouts.engine import Listen
    from gymnast.rollouts.record import Record
    from gymnast.rollouts.servers import Servers
    from gymnast.rollouts.traced_runner import Tracer
    from gymnast.types.events import Event
    from gymnast.types.json import JsonObject
    from gymnast.types.truncation import TruncatedPolicy
    from gymnast.wire.calls import Calls

_MAX_LISTED = 20


class Collector:
    """Use as `async with Collector(environments=["mcqa"], model_url=…) as collector`, then `collector.run(rows)`.

    With `head` nothing is started: it uses the agents of a running `gymnast serve` or of a NeMo Gym head server.
    `trace` sends a share `trace_sample` of the rollouts as traces to the OTLP/HTTP collector with this URL. For figures
    of a training loop, see `gymnast.tracking.training.TrainingTracker`.
    """

    def __init__(
        self,
        *,
        environments: Sequence[str] = (),
        config_paths: Sequence[str] = (),
        overrides: Sequence[str] = (),
        model_type: str | None = None,
        model: str | None = None,
        model_url: str | None = None,
        model_key_name: str | None = None,
        config: Config | None = None,
        head: str | None = None,
        token: str | None = None,
        workers: int = 0,
        log_dir: str | Path | None = None,
        on_note: Callable[[str], None] | None = None,
        trace: str | None = None,
        trace_sample: float = DEFAULT_TRACE_SAMPLE,
    ) -> None:
        self._config = config
        self._names: dict[str, Any] = {
            "environments": environments,
            "config_paths": config_paths,
            "overrides": overrides,
            "model_type": model_type,
            "model": model,
            "model_url": model_url,
            "model_key_name": model_key_name,
        }
        self._head, self._token = head, token
        self._workers = workers
        self._log_dir = Path(log_dir) if log_dir is not None else None
        self._say = on_note or (lambda _: None)
        self._stack = AsyncExitStack()
        self._running: Servers | None = None
        self._trace, self._trace_sample = trace, trace_sample
        self._tracer: Tracer | None = None
        self._has_scored = False

    @property
    def agents(self) -> list[str]:
        """The agents that rows may name."""
        return self._servers.agents

    @property
    def calls(self) -> Calls:
        """The instances, for calls outside of rollouts, e.g. of an environment that another program steps through."""
        return self._servers.calls

    @property
    def _servers(self) -> Servers:
        assert self._running is not None, "use the collector as `async with`"
        return self._running

    async def __aenter__(self) -> Self:
        try:
            reporting = report_run((), self._trace, self._trace_sample, self._say)
            self._tracer = (await self._stack.enter_async_context(reporting)).tracer
            self._running = await (self._connect(self._head) if self._head is not None else self._start())
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def run(
        self,
        rows: Iterable[Mapping[str, Any]],
        *,
        concurrency: int | None = None,
        max_attempts: int = DEFAULT_ATTEMPTS,
        max_failed: int | str = 0,
        rollout_timeout_s: float = DEFAULT_ROLLOUT_TIMEOUT_S,
        give_up_after_s: float = DEFAULT_GIVE_UP_AFTER_S,
        max_cost: float | None = None,
        max_tokens: int | None = None,
        truncated: TruncatedPolicy = "score",
        preflight: bool = True,
        on_event: Listen | None = None,
    ) -> AsyncGenerator[tuple[JsonObject, Record]]:
        """Run rows and yield each with its record, in the order in which they finish.

        Every row is yielded once, scored or permanently failed. A run that cannot succeed stops early without yielding
        the remaining rows. If more than `max_failed` rows have no reward, for whatever reason, it ends with
        `MissingRolloutsError`. A row without a task index belongs to the task of the first row that is equal to it.
        `max_cost` (which needs `prices`) and `max_tokens` limit what these rows may use. `truncated` is the policy for
        truncated rollouts, as in `gymnast.collect`. Until rows were scored once, `preflight` runs the first ones one at
        a time, so that a run which cannot succeed ends early.
        """
        budget = Budget(max_cost, max_tokens)
        require_prices(budget, self._servers.instances)
        stamped = stamp_rows([dict(row) for row in rows], self.agents)
        lines = RowLines(map(orjson.dumps, stamped))
        retry = RetryPolicy(max_attempts=max_attempts)
        policy = check_truncated_policy(truncated)
        options = RunOptions(
            engine=EngineOptions(
                *(concurrency, rollout_timeout_s, retry, give_up_after_s),
                budget=budget,
                truncated=policy,
                preflight=preflight and not self._has_scored,
            )
        )
        stream = RecordStream()
        store = MemoryRunStore(secrets.token_hex(8), lines, stream.put)
        observer = RunObserver(on_event or (lambda _: None), self._say, stream.watch, tracer=self._tracer)
        names = sorted({agent_name_of(row) or "" for row in stamped})
        running = asyncio.create_task(run_engine(store, self._servers, options, observer, agents=names))
        try:
            async for record in stream.records(running, parse_allowance(str(max_failed))):
                self._has_scored = self._has_scored or record.is_scored
                row = stamped[record.key.task]
                yield row, replace(record, key=RolloutKey(row[TASK_INDEX], row[ROLLOUT_INDEX]))
        finally:
            await stream.end(running)

    def outage(self) -> tuple[float, str] | None:
        """For how many seconds a model server has reached none of its endpoints, and its last error; None if it does.

        Known for model servers in this process. Rollouts wait for endpoints to come back until `give_up_after_s`.
        """
        return self._servers.runner.signals.longest_outage(time.monotonic())

    async def find_problems(self, *, timeout_s: float = 5.0) -> list[str]:
        """The instances that do not answer now, and model endpoints that cannot be reached. Empty if all is well."""
        calls = self._servers.calls

        async def find_problem(name: str) -> str | None:
            try:
                await calls.call(name, "/", method="GET", timeout_s=timeout_s)
            except CallError as error:
                return f"{name} does not answer: {error.detail.message}"
            return None

        names = [instance.name for instance in self._servers.instances] if not self._workers else []
        problems = [problem for problem in await asyncio.gather(*map(find_problem, names)) if problem]
        outage = self.outage()
        return problems + ([f"unreachable for {outage[0]:.0f} s: {outage[1]}"] if outage is not None else [])

    async def ask(self, instance: str, path: str, body: Any = None, *, timeout_s: float = 600.0) -> Any:
        """Call an instance outside of rollouts, e.g. to make a policy load other weights, and return its reply.

        Raises CallError on failure. With `workers` only the instances that all of them share can be called.
        """
        return await self._servers.calls.expect(instance, path, body, stage=Stage.AGENT, timeout_s=timeout_s)

    # --- starting ----------------------------------------------------------------------------------------------------

    async def _connect(self, head_url: str) -> Servers:
        options = RunOptions(serve=Head(parse_head_url(head_url), self._token))
        return await self._stack.enter_async_context(connect_servers(options))

    async def _start(self) -> Servers:
        environ = read_environ()
        config = self._config or compose(environ, **self._names)
        config.require_valid()
        log_dir = self._log_dir or self._stack.enter_context(log_folder())
        options, observer = RunOptions(workers=self._workers), RunObserver(self._report_death, self._say)
        observer.warn(config.warnings)
        observer.note(config.notes)
        instances = list(config.instances.values())
        starting = start_servers(instances, config, environ, options, observer, log_dir=log_dir)
        return await self._stack.enter_async_context(starting)

    def _report_death(self, event: Event) -> None:
        if isinstance(event, InstanceDied):
            self._say(event.note)


def stamp_rows(rows: list[JsonObject], agents: Sequence[str]) -> list[JsonObject]:
    """Rows with agent, task and rollout index. One error lists all bad rows, before anything is spent."""
    default = only_agent(agents)
    tasks: dict[bytes, int] = {}
    rollouts: dict[int, int] = {}
    indices = {row[TASK_INDEX] for row in rows if isinstance(row.get(TASK_INDEX), int)}
    free = (number for number in range(len(rows) + len(indices)) if number not in indices)
    problems: list[str] = []
    for position, row in enumerate(rows):
        text = orjson.dumps(row)
        if default is not None:
            row.setdefault(AGENT_REF, {"name": default})
        problem = _find_problem(row, agents)
        if problem is not None:
            task = f" (task {row[TASK_INDEX]})" if isinstance(row.get(TASK_INDEX), int) else ""
            problems.append(f"row {position}{task}: {problem}")
            continue
        if TASK_INDEX not in row:
            if text not in tasks:
                tasks[text] = next(free)
            row[TASK_INDEX] = tasks[text]
        task = row[TASK_INDEX]
        row.setdefault(ROLLOUT_INDEX, rollouts.get(task, 0))
        rollouts[task] = rollouts.get(task, 0) + 1
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems[:_MAX_LISTED])
        raise DataError(f"{len(problems)} of {len(rows)} rows cannot be run:\n{listed}")
    return rows


def _find_problem(row: JsonObject, agents: Sequence[str]) -> str | None:
    params, name = row.get(PARAMS), agent_name_of(row)
    if not isinstance(params, dict) or "input" not in params:
        return f"needs {PARAMS}.input"
    if name is None:
        return f"names no agent ({AGENT_REF}.name)"
    if name not in agents:
        return f"no agent '{name}'; {suggest(name, agents)}"
    if not all(isinstance(row.get(key, 0), int) for key in (TASK_INDEX, ROLLOUT_INDEX)):
        return f"{TASK_INDEX} and {ROLLOUT_INDEX} must be whole numbers"
    return None
