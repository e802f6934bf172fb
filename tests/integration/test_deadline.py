"""Deadlines: the guarantees of asyncio.timeout."""

from __future__ import annotations

import asyncio

import pytest

from gymnast.wire.deadline import DeadlineClock


async def test_an_await_past_its_deadline_raises_timeout_error() -> None:
    clock = DeadlineClock()
    with pytest.raises(TimeoutError, match=r"within 0\.05 s"), clock.deadline(0.05):
        await asyncio.sleep(5)
    await asyncio.sleep(0)  # the task itself is not left cancelled


async def test_an_await_within_its_deadline_is_untouched() -> None:
    with DeadlineClock().deadline(5):
        await asyncio.sleep(0.01)


async def test_the_inner_of_two_deadlines_fires_first() -> None:
    clock = DeadlineClock()
    with clock.deadline(5):
        with pytest.raises(TimeoutError), clock.deadline(0.05):
            await asyncio.sleep(5)
        await asyncio.sleep(0.01)


async def test_the_outer_of_two_deadlines_is_not_swallowed_by_the_inner() -> None:
    clock = DeadlineClock()

    async def inner() -> None:
        try:
            with clock.deadline(5):
                await asyncio.sleep(5)
        except TimeoutError:
            pytest.fail("the inner deadline claimed the outer one's cancellation")

    with pytest.raises(TimeoutError), clock.deadline(0.05):
        await inner()


async def test_a_cancellation_from_outside_stays_one() -> None:
    clock = DeadlineClock()

    async def work() -> None:
        with clock.deadline(5):
            await asyncio.sleep(5)

    task = asyncio.create_task(work())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_next_to_an_expiry_wins() -> None:
    clock = DeadlineClock()
    entered = asyncio.Event()

    async def work() -> None:
        with clock.deadline(0.0):
            entered.set()
            await asyncio.sleep(5)

    task = asyncio.create_task(work())
    await entered.wait()
    for deadline in list(clock.active):
        deadline.expire()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_inside_passes_through() -> None:
    with pytest.raises(KeyError), DeadlineClock().deadline(5):
        raise KeyError("mine")


async def test_the_timer_rests_when_there_are_no_deadlines() -> None:
    clock = DeadlineClock()
    with clock.deadline(5):
        await asyncio.sleep(0)
    await asyncio.sleep(0.12)
    assert clock.timer is None
