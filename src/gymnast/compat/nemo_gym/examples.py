"""Rows of a trainer, run through the agents of a serve: one awaitable each, in the order in which they finish.

Attempts are those of the engine: they have a deadline, failures that may pass are tried again, and a row that fails for
good raises with the record of its failure. A failure never becomes a row.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from gymnast.errors import CallError, DataError, MissingRolloutsError
from gymnast.rollouts.attempt import Failed, attempt, failure_object
from gymnast.rollouts.retry import DEFAULT_ROLLOUT_TIMEOUT_S, RetryPolicy
from gymnast.runtime.remote import read_head, remote_calls
from gymnast.types.task import agent_name_of, key_of
from gymnast.wire.http_client import HttpClient, raise_fd_limit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

    from gymnast.types.failure import FailureDetail
    from gymnast.types.json import JsonObject
    from gymnast.types.tokens import TokenKeeping
    from gymnast.wire.calls import Calls

Result = tuple[dict[str, Any], dict[str, Any]]


class RolloutFailedError(CallError):
    """A row has no reward. `record` is what a run would have written about it; `status` an HTTP status, if one came."""

    def __init__(self, detail: FailureDetail, record: JsonObject | None = None) -> None:
        super().__init__(detail)
        self.record = record or {}
        self.status = detail.status

    def __reduce__(self) -> tuple[type[RolloutFailedError], tuple[FailureDetail, JsonObject]]:  # type: ignore[override] # with its record
        return (type(self), (self.detail, self.record))


@dataclass(slots=True)
class Examples:
    """How rows are run."""

    head_url: str
    token: str | None = None
    timeout_s: float = DEFAULT_ROLLOUT_TIMEOUT_S
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    limit: AbstractAsyncContextManager[Any] = field(default_factory=nullcontext)
    """Entered for each row while it runs: a semaphore."""

    def started(self, rows: Sequence[dict[str, Any]]) -> Iterator[Awaitable[Result]]:
        """Start them all, in the loop that runs."""
        unknown = [index for index, row in enumerate(rows) if agent_name_of(row) is None]
        if unknown:
            shown = ", ".join(map(str, unknown[:10]))
            raise DataError(
                f"{len(unknown)} of {len(rows)} examples name no agent (the first: {shown})",
                next="give each row agent_ref: {type: responses_api_agents, name: <agent>}",
            )
        raise_fd_limit()
        everything = asyncio.ensure_future(self._open(len(rows)))
        tasks = [asyncio.ensure_future(self._one(everything, row)) for row in rows]
        return _in_order_of_completion(tasks, len(rows))

    async def _open(self, count: int) -> _Opened:
        """One client for all rows; it closes itself after the last."""
        client = await HttpClient().__aenter__()
        try:
            head = await read_head(client, self.head_url, self.token)
        except BaseException:
            await client.__aexit__(None, None, None)
            raise
        return _Opened(client, remote_calls(client, head), head.tokens("items"), count)

    async def _one(self, opening: asyncio.Future[_Opened], row: dict[str, Any]) -> Result:
        opened = await asyncio.shield(opening)
        try:
            async with self.limit:
                return row, await self._result(opened, row)
        finally:
            await opened.leave()

    async def _result(self, opened: _Opened, row: dict[str, Any]) -> dict[str, Any]:
        line, made = orjson.dumps(row), 0
        while True:
            outcome = await attempt(opened.calls, line, made, self.timeout_s, tokens=opened.tokens)
            if not isinstance(outcome, Failed):
                result: dict[str, Any] = orjson.loads(outcome.line)
                return result
            made += 1
            if self.retry.is_final(outcome.detail, made):
                raise RolloutFailedError(outcome.detail, _record(row, outcome, made))
            await asyncio.sleep(self.retry.delay_s(outcome.detail, made, random.random()))  # noqa: S311 - jitter


@dataclass(slots=True)
class _Opened:
    """What all rows share while any of them runs."""

    client: HttpClient
    calls: Calls
    tokens: TokenKeeping
    left: int

    async def leave(self) -> None:
        self.left -= 1
        if self.left == 0:
            await self.client.__aexit__(None, None, None)


def _record(row: dict[str, Any], failed: Failed, attempts: int) -> JsonObject:
    key = key_of(row)
    identity = {"task": key.task, "rollout": key.rollout} if key is not None else {}
    evidence = failure_object(failed.detail, failed.seconds, failed.started_at, "")
    return {**identity, "agent": agent_name_of(row), "attempts": attempts, "failure": evidence}


def _in_order_of_completion(tasks: Sequence[asyncio.Future[Result]], requested: int) -> Iterator[Awaitable[Result]]:
    given = 0
    for found in asyncio.as_completed(tasks):
        given += 1
        yield _delivered(found, tasks, requested)
    if given < requested:
        raise _missing(tasks, requested)


async def _delivered(found: Awaitable[Result], tasks: Sequence[asyncio.Future[Result]], requested: int) -> Result:
    """A result. A row that ended with neither result nor failure is missing, and that is said."""
    try:
        return await found
    except asyncio.CancelledError:
        if any(task.cancelled() for task in tasks):
            raise _missing(tasks, requested) from None
        raise


def _missing(tasks: Sequence[asyncio.Future[Result]], requested: int) -> MissingRolloutsError:
    done = [task for task in tasks if task.done() and not task.cancelled()]
    scored = sum(1 for task in done if task.exception() is None)
    text = f"{requested} examples were asked for, but {requested - len(done)} ended without a result or a failure"
    return MissingRolloutsError(text, requested, scored, {}, requested - len(done))
