"""`gymnast.collect`: a run as an async iterator, with the files, the resume and the accounting of the command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnast.config import compose, read_environ
from gymnast.rollouts.budget import Budget
from gymnast.rollouts.conduct import Audience
from gymnast.rollouts.engine import EngineOptions
from gymnast.rollouts.feed import Feed
from gymnast.rollouts.plan import PlanOptions
from gymnast.rollouts.record import Record
from gymnast.rollouts.retry import DEFAULT_ROLLOUT_TIMEOUT_S, RetryPolicy
from gymnast.rollouts.run import CollectRequest, collect_here, only_agent
from gymnast.rollouts.verdict import parse_allowance
from gymnast.store.keys import key_of_line
from gymnast.store.lines import numbered_lines
from gymnast.types.events import Event, RunStarted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence

    from gymnast.config import Config


async def collect(
    source: str | Path,
    output: str | Path,
    *,
    environments: Sequence[str] = (),
    config_paths: Sequence[str] = (),
    overrides: Sequence[str] = (),
    model_type: str | None = None,
    model: str | None = None,
    model_url: str | None = None,
    search_dirs: Sequence[Path] = (),
    config: Config | None = None,
    agent: str | None = None,
    num_repeats: int | Mapping[str, int] = 1,
    params: Mapping[str, Any] | None = None,
    limit: int | None = None,
    concurrency: int | None = None,
    workers: int = 0,
    resume: bool = False,
    max_attempts: int = 3,
    max_failed: int | str = 0,
    rollout_timeout_s: float = DEFAULT_ROLLOUT_TIMEOUT_S,
    max_cost: float | None = None,
    max_tokens: int | None = None,
    on_event: Callable[[Event], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> AsyncGenerator[Record]:
    """Collect rollouts of the tasks in `source` into `output`, and yield each record when it is kept.

    With `resume`, the records that an earlier run scored come first, so that every rollout is seen once. Ends with
    `MissingRolloutsError` if more than `max_failed` (a number or a share such as "1%") have no reward. Closing the
    iterator early ends the run (`async with contextlib.aclosing(gymnast.collect(…)) as records` does so at once); what
    was kept stays on disk, and `resume` finishes the rest.

    When all attempts have used `max_cost` (which needs `prices`) or `max_tokens`, nothing more is started: what is
    missing then is owed, and `resume` with a larger budget goes on.

    Servers are named as on the command line (`environments=["mcqa"], model_url=…`), or given as a loaded `config`.
    """
    found = config or compose(
        read_environ(),
        overrides=overrides,
        config_paths=config_paths,
        environments=environments,
        model_type=model_type,
        model=model,
        model_url=model_url,
        search_dirs=search_dirs,
    )
    found.checked()
    request = CollectRequest(
        source=found.roots.find(str(source)) or Path(source),
        output=Path(output),
        plan=PlanOptions(
            agent=agent or only_agent(found.agents), repeats=num_repeats, limit=limit, params=params or {}
        ),
        engine=EngineOptions(
            concurrency,
            rollout_timeout_s,
            RetryPolicy(max_attempts=max_attempts),
            budget=Budget(max_cost, max_tokens),
        ),
        existing="resume" if resume else "refuse",
        workers=workers,
    )
    feed, before = Feed(), _Before(on_event)
    audience = Audience(before.listen, on_note or (lambda _: None), feed.watch, feed.put)
    run = asyncio.create_task(collect_here(request, found, read_environ(), audience))
    try:
        if resume:
            either: list[asyncio.Future[Any]] = [run, before.began]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            for record in before.records():
                yield record
        async for record in feed.records(run, parse_allowance(str(max_failed))):
            yield record
    finally:
        await feed.end(run)


class _Before:
    """What earlier runs had scored when this one began."""

    def __init__(self, pass_on: Callable[[Event], None] | None) -> None:
        self.began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pass_on = pass_on or (lambda _: None)
        self._output: Path | None = None
        self._size_bytes = 0

    def listen(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._output = Path(event.output)
            self._size_bytes = self._output.stat().st_size
            self.began.set_result(None)
        self._pass_on(event)

    def records(self) -> Iterator[Record]:
        left = self._size_bytes
        for _, line in numbered_lines(self._output) if self._output is not None and left else ():
            key = key_of_line(line)
            if key is not None:
                yield Record(key, line)
            left -= len(line) + 1
            if left <= 0:
                return
