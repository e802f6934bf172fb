"""Runs a trainer's rows through the agents of a serve: one awaitable per row, in the order of completion.

Attempts are those of the engine: they have a deadline, transient failures are retried, and a row that fails permanently
raises with its failure record. A failure never becomes a result. Masked results are marked where NeMo RL looks, too.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from gymnast.errors import CallError, DataError, MissingRolloutsError
from gymnast.rollouts.attempt import Failed, attempt, make_failure_object
from gymnast.rollouts.retry import DEFAULT_ROLLOUT_TIMEOUT_S, RetryPolicy
from gymnast.runtime.remote import read_head, remote_calls
from gymnast.types.failure import kind_named
from gymnast.types.task import INSTANCE, MASK, agent_name_of, key_of
from gymnast.wire.http_client import HttpClient, raise_fd_limit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

    from gymnast.types.failure import FailureDetail
    from gymnast.types.json import JsonObject
    from gymnast.types.tokens import RecordedTokens
    from gymnast.wire.calls import Calls

Result = tuple[dict[str, Any], dict[str, Any]]


class RolloutFailedError(CallError):
    """A row got no reward. `record` is the failure record that a run would have written.

    `status` is the HTTP status of the failed call. A failure without one gets 503 if a retry may help, because trainers
    count 5xx as an outage and no status as a fault of the row; else 422.
    """

    def __init__(self, detail: FailureDetail, record: JsonObject | None = None) -> None:
        super().__init__(detail)
        self.record = record or {}
        self.status = detail.status or (503 if kind_named(detail.kind).retryable else 422)

    def __reduce__(self) -> tuple[type[RolloutFailedError], tuple[FailureDetail, JsonObject]]:  # type: ignore[override] # with its record
        return (type(self), (self.detail, self.record))


@dataclass(slots=True)
class ExampleRunner:
    """Runs rows through the agents of a serve."""

    head_url: str
    token: str | None = None
    timeout_s: float = DEFAULT_ROLLOUT_TIMEOUT_S
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    limit: AbstractAsyncContextManager[Any] = field(default_factory=nullcontext)
    """A semaphore, held while a row runs."""

    def start(self, rows: Sequence[dict[str, Any]]) -> Iterator[Awaitable[Result]]:
        """Start all rows in the running event loop."""
        unassigned = [index for index, row in enumerate(rows) if agent_name_of(row) is None]
        if unassigned:
            first = ", ".join(map(str, unassigned[:10]))
            raise DataError(
                f"{len(unassigned)} of {len(rows)} examples have no agent (the first: {first})",
                next="add agent_ref: {type: responses_api_agents, name: <agent>} to each row",
            )
        raise_fd_limit()
        connecting = asyncio.ensure_future(self._open(len(rows)))
        tasks = [asyncio.ensure_future(self._one(connecting, row)) for row in rows]
        return _iter_completed(tasks, len(rows))

    async def _open(self, count: int) -> _Connection:
        """Open one client for all rows; it is closed after the last."""
        client = await HttpClient().__aenter__()
        try:
            head = await read_head(client, self.head_url, self.token)
        except BaseException:
            await client.__aexit__(None, None, None)
            raise
        return _Connection(client, remote_calls(client, head), head.tokens("items"), count)

    async def _one(self, connecting: asyncio.Future[_Connection], row: dict[str, Any]) -> Result:
        connection = await asyncio.shield(connecting)
        try:
            async with self.limit:
                return row, await self._result(connection, row)
        finally:
            await connection.release()

    async def _result(self, connection: _Connection, row: dict[str, Any]) -> dict[str, Any]:
        line, attempts = orjson.dumps(row), 0
        while True:
            outcome = await attempt(connection.calls, line, attempts, self.timeout_s, tokens=connection.tokens)
            if not isinstance(outcome, Failed):
                return _with_mask(orjson.loads(outcome.line))
            attempts += 1
            if self.retry.is_final(outcome.detail, attempts):
                raise RolloutFailedError(outcome.detail, _record(row, outcome, attempts))
            await asyncio.sleep(self.retry.delay_s(outcome.detail, attempts, random.random()))  # noqa: S311 - jitter


@dataclass(slots=True)
class _Connection:
    """The client that all rows share, closed when the last one is done."""

    client: HttpClient
    calls: Calls
    tokens: RecordedTokens
    left: int

    async def release(self) -> None:
        self.left -= 1
        if self.left == 0:
            await self.client.__aexit__(None, None, None)


def _with_mask(result: dict[str, Any]) -> dict[str, Any]:
    """The result. NeMo RL reads `mask_sample` from `instance_config` only, where NeMo Gym's own agents write it."""
    if result.get(MASK) is True:
        instance = result.get(INSTANCE)
        result[INSTANCE] = {**(instance if isinstance(instance, dict) else {}), MASK: True}
    return result


def _record(row: dict[str, Any], failed: Failed, attempts: int) -> JsonObject:
    key = key_of(row)
    identity = {"task": key.task, "rollout": key.rollout} if key is not None else {}
    evidence = make_failure_object(failed.detail, failed.seconds, failed.started_at, "")
    return {**identity, "agent": agent_name_of(row), "attempts": attempts, "failure": evidence}


def _iter_completed(tasks: Sequence[asyncio.Future[Result]], requested: int) -> Iterator[Awaitable[Result]]:
    yielded = 0
    for future in asyncio.as_completed(tasks):
        yielded += 1
        yield _await_result(future, tasks, requested)
    if yielded < requested:
        raise _missing_rollouts_error(tasks, requested)


async def _await_result(future: Awaitable[Result], tasks: Sequence[asyncio.Future[Result]], requested: int) -> Result:
    """Await a result. A row that ended with neither a result nor a failure raises as missing."""
    try:
        return await future
    except asyncio.CancelledError:
        if any(task.cancelled() for task in tasks):
            raise _missing_rollouts_error(tasks, requested) from None
        raise


def _missing_rollouts_error(tasks: Sequence[asyncio.Future[Result]], requested: int) -> MissingRolloutsError:
    done = [task for task in tasks if task.done() and not task.cancelled()]
    scored = sum(1 for task in done if task.exception() is None)
    text = f"{requested - len(done)} of {requested} examples ended without a result or a failure"
    return MissingRolloutsError(text, requested, scored, {}, requested - len(done))
