"""A batch for a trainer: every rollout that was asked for, or an error that says which are missing and why.

The order matters: first all rollouts are there, then logprobs are looked at. So a server that died can't pass for a
row that is masked, and running a row again can't hide that others never came.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import MissingRolloutsError
from gymnast.train.asking import Asked, ask
from gymnast.train.causes import BATCH_DEADLINE, NEVER_CAME, STOPPED
from gymnast.train.errors import NothingToTrainError
from gymnast.train.gathering import BatchOptions, Gathering, require_all
from gymnast.train.samples import Batch, Group, MaskReason
from gymnast.types.task import ROLLOUT_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gymnast.train.asking import Rollouts
    from gymnast.train.samples import Sample

_AGAIN: Final = frozenset({MaskReason.BAD_LOGPROBS, MaskReason.BAD_LEDGER})
"""What another try may mend. A record without tokens is a matter of configuration."""
_TICK_S: Final = 0.5
"""How late a group's deadline is noticed at most."""


async def collect_batch(
    rollouts: Rollouts,
    tasks: Iterable[Mapping[str, Any]],
    *,
    generations: int,
    options: BatchOptions | None = None,
    name: str | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Batch:
    """Run each task `generations` times and return all of it.

    Raises `FewerRolloutsError` when rollouts are missing (more than `max_failed` without a reward, or any that never
    came back), `NothingToTrainError` when no sample has a token to be trained on. `name` begins the rollouts' ids.
    """
    batch = await collect_all(rollouts, tasks, generations=generations, options=options, name=name, clock=clock)
    require_something_to_train(batch)
    return batch


async def collect_all(
    rollouts: Rollouts,
    tasks: Iterable[Mapping[str, Any]],
    *,
    generations: int,
    options: BatchOptions | None = None,
    name: str | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Batch:
    """The same for a part of a batch, which may be without a token to be trained on."""
    settings = options or BatchOptions()
    asked = ask(tasks, generations, name or secrets.token_hex(4))
    began = clock()
    deadline = began + settings.batch_timeout_s
    found, note = await _collected(rollouts, asked, settings, clock, deadline)
    require_all(found, asked, settings, note)
    retried = 0
    for attempt in range(settings.logprob_retries):
        bad = [place for place, sample in enumerate(found) if sample.mask_reason in _AGAIN]
        if not bad:
            break
        retried += len(bad)
        spent = sum(not sample.is_scored for sample in found)
        again = replace(settings, max_failed=settings.max_failed - spent)
        better, note = await _collected(rollouts, _some(asked, bad, f"r{attempt}"), again, clock, deadline)
        for place, sample in zip(bad, better, strict=True):
            found[place] = sample
        require_all(found, asked, settings, note)
    return Batch(_groups(asked, found), clock() - began, retried)


def require_something_to_train(batch: Batch) -> None:
    """Raise NothingToTrainError for a batch that would change nothing."""
    if any(sample.is_trainable for sample in batch.samples):
        return
    masked = batch.masked()
    listed = ", ".join(f"{count} × {reason}" for reason, count in sorted(masked.items()))
    lines = [f"all {len(batch)} rollouts came back, and none has a token to be trained on: {listed}"]
    if MaskReason.NO_TOKENS.value in masked:
        lines.append("  next: set return_token_id_information: true on the policy's model server, see token-exact.md")
    else:
        lines.append("  next: gymnast tokens audit on a small run with the same servers says what is wrong")
    raise NothingToTrainError("\n".join(lines), masked)


def _some(asked: Asked, places: list[int], mark: str) -> Asked:
    """Some of the rows under other ids: a second try must not meet what is left of the first."""
    chosen = [asked.rows[place] for place in places]
    rows = [{**row, ROLLOUT_ID: f"{row[ROLLOUT_ID]}-{mark}"} for row in chosen]
    return Asked(rows, [asked.keys[place] for place in places], 1)


def _groups(asked: Asked, found: list[Sample]) -> tuple[Group, ...]:
    size = asked.generations
    return tuple(
        Group(asked.keys[start].task, tuple(found[start : start + size])) for start in range(0, len(found), size)
    )


async def _collected(
    rollouts: Rollouts, asked: Asked, options: BatchOptions, clock: Callable[[], float], deadline: float
) -> tuple[list[Sample], str]:
    """A sample for each row, in order, also for those that did not come; and why the run ended early, if it did."""
    gathering = Gathering(asked, options, clock)
    taking = asyncio.create_task(_take_all(rollouts, asked, gathering, options))
    try:
        while not (taking.done() or gathering.is_done):
            await asyncio.wait({taking}, timeout=min(_TICK_S, max(deadline - clock(), 0.0)))
            gathering.write_off_late_groups()
            if clock() >= deadline:
                gathering.write_off_rest(BATCH_DEADLINE, f"not there after {options.batch_timeout_s:g} s")
        note = await taking if taking.done() else ""
    finally:
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
    if gathering.is_doomed:
        gathering.write_off_rest(STOPPED, "stopped, because the batch could not be complete any more")
    gathering.write_off_rest(NEVER_CAME, "")
    return gathering.samples(), note


async def _take_all(rollouts: Rollouts, asked: Asked, gathering: Gathering, options: BatchOptions) -> str:
    """Take outcomes until all are there. Why the run ended before that, if it did."""
    run = rollouts.run(
        asked.rows,
        concurrency=options.concurrency,
        max_attempts=options.max_attempts,
        max_failed=len(asked),  # which may fail is decided here, when all have come
        rollout_timeout_s=options.row_timeout_s,
        give_up_after_s=options.give_up_after_s,
    )
    try:
        async with aclosing(run) as outcomes:
            async for _, outcome in outcomes:
                gathering.take(outcome)
                if gathering.is_done or gathering.is_doomed:
                    break
    except MissingRolloutsError as error:
        told = [line.strip() for line in str(error).splitlines()]
        return next((line for line in told if line.startswith("why it ended")), "")
    return ""
