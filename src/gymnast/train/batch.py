"""Collects a batch for a trainer: every requested rollout, or an error that says which are missing and why.

The order matters: completeness is checked before logprobs. So a dead server cannot pass for a masked row, and retrying
a row cannot hide that others never came back.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import MissingRolloutsError
from gymnast.train.arguments import choose, require_count, require_type
from gymnast.train.batch_progress import BatchOptions, BatchProgress, require_complete
from gymnast.train.batch_request import BatchRequest, ReportsOutages, make_request
from gymnast.train.causes import BATCH_DEADLINE, NEVER_CAME, STOPPED, SURPLUS
from gymnast.train.errors import NothingToTrainError
from gymnast.train.group_selection import RETRYABLE, Select, is_usable, select_rollouts
from gymnast.train.samples import Batch, Group, MaskReason
from gymnast.types.failure import FailureKind
from gymnast.types.task import ROLLOUT_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gymnast.train.batch_request import Rollouts
    from gymnast.train.samples import Sample

_TICK_S: Final = 0.5
"""How late a group's deadline may be noticed."""


async def collect_batch(
    rollouts: Rollouts,
    tasks: Iterable[Mapping[str, Any]],
    *,
    generations: int,
    options: BatchOptions | None = None,
    name: str | None = None,
    allow_untrainable: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Batch:
    """Run each task `generations` times and return all samples.

    Raises `FewerRolloutsError` if rollouts are missing (more than `max_failed` without a reward, or any that never came
    back), `NothingToTrainError` if no sample has a trainable token, unless `allow_untrainable` is set, e.g. for a part
    of a batch. `name` is the prefix of the rollout ids.
    """
    options = options or BatchOptions()
    require_type("options", options, BatchOptions)
    request = make_request(tasks, generations, name or secrets.token_hex(4))
    started = clock()
    deadline = started + options.batch_timeout_s
    samples, note = await _run_request(rollouts, request, options, clock, deadline)
    require_complete(samples, request, options, note)
    retried = 0
    for attempt in range(options.logprob_retries):
        bad = [index for index, sample in enumerate(samples) if sample.mask_reason in RETRYABLE]
        if not bad:
            break
        retried += len(bad)
        failed = sum(not sample.is_scored for sample in samples)
        retry_options = replace(options, max_failed=options.max_failed - failed)
        retry = _subset(request, bad, f"r{attempt}")
        retried_samples, note = await _run_request(rollouts, retry, retry_options, clock, deadline)
        for index, sample in zip(bad, retried_samples, strict=True):
            samples[index] = sample
        require_complete(samples, request, options, note)
    batch = Batch(_make_groups(request, samples), clock() - started, retried)
    if not allow_untrainable:
        require_something_to_train(batch)
    return batch


async def collect_group(
    rollouts: Rollouts,
    task: Mapping[str, Any],
    *,
    generations: int,
    extra: int,
    select: Select = Select.FIRST,
    options: BatchOptions | None = None,
    name: str | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Group:
    """Run a task `generations + extra` times and return the `generations` rollouts that `select` chooses.

    The extra ones also replace rollouts that fail or have unusable logprobs. Raises FewerRolloutsError if even with
    them more than `max_failed` are missing.
    """
    options, select = options or BatchOptions(), choose("select", select, Select)
    require_type("options", options, BatchOptions)
    require_count("generations", generations)
    require_count("extra", extra, at_least=0)
    request = make_request([task], generations + extra, name or secrets.token_hex(4))
    is_enough = _has_usable(generations) if select is Select.FIRST else None
    lenient = replace(options, max_failed=options.max_failed + extra)
    deadline = clock() + options.batch_timeout_s
    samples, note = await _run_request(rollouts, request, lenient, clock, deadline, is_enough)
    chosen = select_rollouts(samples, generations, select)
    if sum(not sample.is_scored for sample in chosen) > options.max_failed:
        require_complete(samples, request, options, note)
    return Group(request.keys[0].task, tuple(chosen))


def _has_usable(count: int) -> Callable[[Sequence[Sample]], bool]:
    return lambda samples: sum(map(is_usable, samples)) >= count


def require_something_to_train(batch: Batch, in_a_row: int = 0) -> None:
    """Raise NothingToTrainError for a batch without a trainable token. `in_a_row`: groups without, with it the last."""
    if any(sample.is_trainable for sample in batch.samples):
        return
    masked = batch.masked()
    reasons = ", ".join(f"{count} × {reason}" for reason, count in sorted(masked.items()))
    failures = [sample.failure for sample in batch.samples if sample.failure is not None]
    came = "came back, but" if not failures else "are settled, and"
    lines = [f"all {len(batch)} rollouts {came} none has a trainable token: {reasons}"]
    if in_a_row > len(batch.groups):
        lines = [f"the last {in_a_row} groups came back, but none has a trainable token; the last one: {reasons}"]
    for (kind, message), count in Counter((failure.kind, failure.message) for failure in failures).most_common(5):
        lines.append(f"  {count} × {kind}: {message}")
    if len(failures) == len(batch):
        lines.append("  next: lower max_failed, so that such a batch ends with its likely cause")
    elif MaskReason.NO_TOKENS.value in masked:
        lines.append("  next: set return_token_id_information: true on the policy's model server, see token-exact.md")
    else:
        lines.append("  next: run `gymnast tokens audit` on a small run with the same servers")
    raise NothingToTrainError("\n".join(lines), masked)


class EmptyGroups:
    """Counts consecutive groups without a trainable token, for trainers that request a step in parts."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def take(self, batch: Batch, limit: int) -> None:
        """Count a batch. Raises NothingToTrainError if it has no trainable token, like `limit` groups before it."""
        if any(sample.is_trainable for sample in batch.samples):
            self._in_a_row = 0
            return
        self._in_a_row += len(batch.groups)
        if self._in_a_row >= limit:
            require_something_to_train(batch, self._in_a_row)


def _subset(request: BatchRequest, indexes: list[int], suffix: str) -> BatchRequest:
    """Some of the rows under new ids, so that a retry does not mix with leftovers of the first attempt."""
    rows = [{**row, ROLLOUT_ID: f"{row[ROLLOUT_ID]}-{suffix}"} for row in (request.rows[index] for index in indexes)]
    return BatchRequest(rows, [request.keys[index] for index in indexes], 1)


def _make_groups(request: BatchRequest, samples: list[Sample]) -> tuple[Group, ...]:
    size = request.generations
    return tuple(
        Group(request.keys[start].task, tuple(samples[start : start + size])) for start in range(0, len(samples), size)
    )


async def _run_request(
    rollouts: Rollouts,
    request: BatchRequest,
    options: BatchOptions,
    clock: Callable[[], float],
    deadline: float,
    is_enough: Callable[[Sequence[Sample]], bool] | None = None,
) -> tuple[list[Sample], str]:
    """A sample for each row in order, missing ones included, and why the run ended early, if it did."""
    progress = BatchProgress(request, options, clock, is_enough=is_enough)
    run = asyncio.create_task(_take_outcomes(rollouts, request, progress, options))
    try:
        while not (run.done() or progress.is_done):
            await asyncio.wait({run}, timeout=min(_TICK_S, max(deadline - clock(), 0.0)))
            progress.write_off_late_groups()
            outage = rollouts.outage() if isinstance(rollouts, ReportsOutages) else None
            if outage is not None and outage[0] >= options.give_up_after_s:
                progress.write_off_rest(
                    FailureKind.MODEL_UNREACHABLE, f"unreachable for {outage[0]:.0f} s (give_up_after_s): {outage[1]}"
                )
            if clock() >= deadline:
                progress.write_off_rest(BATCH_DEADLINE, f"not done after {options.batch_timeout_s:g} s")
        note = await run if run.done() else ""
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
    if progress.is_done:
        progress.write_off_rest(SURPLUS, "not needed: enough others were scored")
    if progress.is_doomed:
        progress.write_off_rest(STOPPED, "stopped, because the batch could no longer be complete")
    progress.write_off_rest(NEVER_CAME, "")
    return progress.samples(), note


async def _take_outcomes(
    rollouts: Rollouts, request: BatchRequest, progress: BatchProgress, options: BatchOptions
) -> str:
    """Take outcomes until all have arrived; returns why the run ended early, if it did."""
    run = rollouts.run(
        request.rows,
        concurrency=options.concurrency,
        max_attempts=options.max_attempts,
        max_failed=len(request),  # `require_complete` decides afterwards how many may fail
        rollout_timeout_s=options.row_timeout_s,
        give_up_after_s=options.give_up_after_s,
    )
    try:
        async with aclosing(run) as outcomes:
            async for _, outcome in outcomes:
                progress.take(outcome)
                if progress.is_done or progress.is_doomed:
                    break
    except MissingRolloutsError as error:
        lines = [line.strip() for line in str(error).splitlines()]
        return next((line for line in lines if line.startswith("why it ended")), "")
    return ""
