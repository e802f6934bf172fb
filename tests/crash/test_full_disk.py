"""A disk that runs full at any point of a run: a clear error, nothing half-written, and with room made it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymnast.errors import UserError
from gymnast.store.append import COMMIT_INTERVAL_S, AppendLog
from tests.crash.audit import assert_complete, assert_kept, assert_tidy, assert_true_so_far, read_files
from tests.crash.harness import Collection, Policy, Tasks, collecting, policy_running
from tests.helpers.commands import Outcome
from tests.helpers.small_disk import Disk, small_disk

TASKS = Tasks(20, 5)
ATTEMPTS = 3
SIZE_KIB = 256


@pytest.fixture(scope="module")
def policy() -> Iterator[Policy]:
    with policy_running("--slow-s", "0.1") as running:
        yield running


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk", SIZE_KIB) as found:
        yield found


def assert_told(outcome: Outcome) -> None:
    assert outcome.code in {1, 2}, outcome.err
    assert "No space left on device" in outcome.err or "the disk is full" in outcome.err, "while it runs, or before"
    assert "Traceback" not in outcome.err


def assert_goes_on(collection: Collection, before: list[bytes]) -> None:
    done = collection.finish()
    assert done.code == 0, done.err
    after = read_files(collection.output, ATTEMPTS)
    assert_complete(after, TASKS)
    assert_kept(before, after)
    assert_tidy(collection.output)


# What fits: nothing; the plan (some 31 KiB) but no manifest; the manifest but no record; some records; all records, but
# not the manifest that says so.
@pytest.mark.parametrize(("room_kib", "workers"), [(0, 0), (36, 0), (40, 0), (120, 0), (196, 0), (120, 1)])
def test_a_full_disk_is_reported_and_with_room_made_the_run_goes_on(
    policy: Policy, disk: Disk, tmp_path: Path, room_kib: int, workers: int
) -> None:
    arguments = ("--concurrency", "8", "--workers", str(workers))
    with collecting(tmp_path, TASKS, policy.url, *arguments, output="disk/x.jsonl") as collection:
        disk.leave(room_kib)
        assert_told(collection.finish())
        before = read_files(collection.output, ATTEMPTS)
        assert_true_so_far(before, TASKS)
        assert not before.is_done
        disk.make_room()
        assert_goes_on(collection, before.scored_lines)


@pytest.mark.parametrize("room_kib", [0, 12])
def test_a_disk_that_is_full_when_a_run_is_resumed_costs_nothing_that_was_scored(
    policy: Policy, disk: Disk, tmp_path: Path, room_kib: int
) -> None:
    with collecting(tmp_path, TASKS, policy.url, "--concurrency", "8", output="disk/x.jsonl") as collection:
        disk.leave(140)
        assert_told(collection.finish())
        before = read_files(collection.output, ATTEMPTS)
        assert before.scored
        disk.leave(room_kib)
        assert_told(collection.finish())
        after = read_files(collection.output, ATTEMPTS)
        assert_true_so_far(after, TASKS)
        assert_kept(before.scored_lines, after)
        disk.make_room()
        assert_goes_on(collection, after.scored_lines)


async def written_in_the_background() -> None:
    async with AppendLog(Path("/dev/full")) as log:
        log.append(b"{}")
        await asyncio.sleep(COMMIT_INTERVAL_S + 0.2)


async def test_a_write_that_failed_in_the_background_is_reported_even_if_nothing_more_is_written() -> None:
    """Else a run could end as complete with its last records missing."""
    with pytest.raises(UserError, match="No space left on device"):
        await written_in_the_background()
