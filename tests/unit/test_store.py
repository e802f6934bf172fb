"""A run's files after whatever happened to them: what is whole stays byte for byte, what is not is set aside."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gymnast.errors import DataError, UserError
from gymnast.store.append import AppendLog
from gymnast.store.atomic import atomic_write
from gymnast.store.keys import KeySet, key_of_line
from gymnast.store.lock import RunLock
from gymnast.store.manifest import Counts, Invocation, Manifest, RunState, read_manifest, write_manifest
from gymnast.store.repair import RepairResult, repair_file
from gymnast.types.task import RolloutKey
from tests.helpers.jsonl import read_jsonl
from tests.helpers.waiting import eventually


def record(task: int, rollout: int = 0, **fields: Any) -> bytes:
    """A line as our writers write it: the identity last."""
    return orjson.dumps({**fields, "reward": 1.0, "_ng_task_index": task, "_ng_rollout_index": rollout})


def damaged(path: Path) -> list[bytes]:
    """The lines that were taken out of a file."""
    kept = path.with_name(path.name + ".damaged")
    return kept.read_bytes().split(b"\n")[:-1] if kept.exists() else []


def opened(path: Path, *, unique_keys: bool = True) -> tuple[list[tuple[RolloutKey, bytes]], RepairResult]:
    taken: list[tuple[RolloutKey, bytes]] = []
    found = repair_file(path, lambda key, line, _: taken.append((key, line)), unique_keys=unique_keys)
    assert not path.with_name(path.name + ".repaired").exists()
    return taken, found


def repaired(path: Path, data: bytes, *, unique_keys: bool = True) -> tuple[bytes, RepairResult]:
    """What is left of a file after opening it, having checked that opening it again changes nothing."""
    path.write_bytes(data)
    taken, found = opened(path, unique_keys=unique_keys)
    left = path.read_bytes()
    assert left == b"".join(line + b"\n" for _, line in taken)
    evidence = damaged(path)
    again, second = opened(path, unique_keys=unique_keys)
    assert (again, second) == (taken, RepairResult(found.lines))
    assert (path.read_bytes(), damaged(path)) == (left, evidence)
    return left, found


# --- the key of a line -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b'{"reward":1,"_ng_task_index":41,"_ng_rollout_index":3}',
        b'{"_ng_task_index":41,"_ng_rollout_index":3}',
        b'{"_ng_task_index":41,"_ng_rollout_index":3,"agent_ref":{"name":"a"},"_ng_rollout_id":"x"}',
        b'{"_ng_rollout_index":3,"_ng_task_index":41}',
        b'{"_ng_task_index":41,"x":{"_ng_task_index":9,"_ng_rollout_index":9},"_ng_rollout_index":3}',
        b'{"x":[{"_ng_task_index":9,"_ng_rollout_index":9}],"_ng_task_index":41,"_ng_rollout_index":3}',
        b'{"_ng_task_index":41,"_ng_rollout_index":3,"x":[{"_ng_task_index":9,"_ng_rollout_index":9}]}',
        b'{"x": 1, "_ng_task_index": 41, "_ng_rollout_index": 3}',  # as json.dumps writes it
        b'{"x":"\\"_ng_task_index\\":7,\\"_ng_rollout_index\\":7}","_ng_task_index":41,"_ng_rollout_index":3}',
        b'{"_ng_task_index":41,"_ng_rollout_index":3,"x":"\\"_ng_task_index\\":7,\\"_ng_rollout_index\\":7}"}',
        b'{"_ng_task_index":41,"_ng_rollout_index":3,"long":"' + b"x" * 10_000 + b'"}',
    ],
)
def test_the_key_is_found_wherever_it_stands_at_the_top_level(line: bytes) -> None:
    assert key_of_line(line) == RolloutKey(41, 3)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"{",
        b"nonsense",
        b"\xff\xfe\x00",
        b'["_ng_task_index":1,"_ng_rollout_index":2]',
        b'{"reward":1}',
        b'{"_ng_task_index":41}',
        b'{"_ng_rollout_index":3}',
        b'{"_ng_task_index":"41","_ng_rollout_index":3}',
        b'{"_ng_task_index":41.0,"_ng_rollout_index":3}',
        b'{"_ng_task_index":null,"_ng_rollout_index":3}',
        b'{"x":{"_ng_task_index":41,"_ng_rollout_index":3}}',  # an author's own field
        b'{"x":[{"_ng_task_index":41,"_ng_rollout_index":3}]}',
        b'{"reward":1,"_ng_task_index":41,"_ng_rollout_index":3',
        b'{"reward":1,"_ng_task_index":41,"_ng_rollout_in',
        b'"_ng_task_index":41,"_ng_rollout_index":3}',
    ],
)
def test_a_line_that_is_not_a_record_has_no_key(line: bytes) -> None:
    assert key_of_line(line) is None


@given(
    st.dictionaries(st.text(max_size=8), st.text(max_size=20) | st.integers(-9, 9) | st.none(), max_size=4),
    st.integers(0, 2**40),
    st.integers(0, 2**31),
)
def test_the_quick_way_finds_what_parsing_finds(fields: dict[str, Any], task: int, rollout: int) -> None:
    fields = {key: value for key, value in fields.items() if not key.startswith("_ng")}
    ours = record(task, rollout, **{f"x{key}": value for key, value in fields.items()})
    foreign = json.dumps({"_ng_rollout_index": rollout, "_ng_task_index": task, **fields}).encode()
    assert key_of_line(ours) == key_of_line(foreign) == RolloutKey(task, rollout)


@given(st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 2**32 - 1)), unique=True, min_size=2))
def test_packed_keys_differ_where_keys_differ(pairs: list[tuple[int, int]]) -> None:
    assert len({RolloutKey(*pair).packed for pair in pairs}) == len(pairs)


# --- opening a file --------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there_is_empty_and_stays_away(tmp_path: Path) -> None:
    assert opened(tmp_path / "x.jsonl") == ([], RepairResult())
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_stays_empty(tmp_path: Path) -> None:
    assert repaired(tmp_path / "x.jsonl", b"") == (b"", RepairResult())


def test_a_good_file_is_only_read(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    data = b"".join(record(task, rollout) + b"\n" for task in range(20) for rollout in range(3))
    path.write_bytes(data)
    before = path.stat()
    taken, found = opened(path)
    after = path.stat()
    assert [key for key, _ in taken] == [RolloutKey(task, rollout) for task in range(20) for rollout in range(3)]
    assert found == RepairResult(60)
    assert path.read_bytes() == data
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


def test_a_torn_last_line_is_cut_off_and_kept_as_evidence(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    good = record(0) + b"\n" + record(1) + b"\n"
    assert repaired(path, good + record(2)[:-9]) == (good, RepairResult(2, 1))
    assert damaged(path) == [record(2)[:-9]]


def test_nothing_but_a_torn_line_leaves_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    assert repaired(path, b'{"rew') == (b"", RepairResult(0, 1))
    assert damaged(path) == [b'{"rew']


def test_a_whole_last_record_gets_its_newline_back(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    data = record(0) + b"\n" + record(1)
    assert repaired(path, data) == (data + b"\n", RepairResult(2))
    assert damaged(path) == []


@pytest.mark.parametrize("cut", range(1, len(record(7)) + 1))
def test_a_line_torn_at_any_byte_costs_only_itself(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "x.jsonl"
    good = record(0) + b"\n" + record(1, text="ünï") + b"\n"
    left, found = repaired(path, good + record(7)[:cut])
    whole = cut == len(record(7))
    assert left == (good + record(7) + b"\n" if whole else good)
    assert (found.lines, found.damaged) == ((3, 0) if whole else (2, 1))


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xfe\xfd\x80binary\x01\x02",
        b'{"reward":1.0,"response":{"outp',
        b'response":{}},"_ng_task_index":5,"_ng_rollout_index":0}',
        b"\0" * 512,
        b'{"reward":1.0,"text":"\0\0\0\0","_ng_task_index":5,"_ng_rollout_index":0}',
        b"[1,2,3]",
        b'{"no":"key"}',
        b"Traceback (most recent call last):",
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_garbage_between_good_lines_is_set_aside(tmp_path: Path, garbage: bytes, place: int) -> None:
    path = tmp_path / "x.jsonl"
    good = [record(0), record(1)]
    lines = [*good[:place], garbage, *good[place:]]
    left, found = repaired(path, b"".join(line + b"\n" for line in lines))
    assert left == b"".join(line + b"\n" for line in good)
    assert (found.lines, found.damaged, found.duplicates) == (2, 1, [])
    assert damaged(path) == [garbage]


def test_a_hole_of_zeros_after_a_power_failure_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    left, found = repaired(path, record(0) + b"\n" + b"\0" * 4096)
    assert left == record(0) + b"\n"
    assert found.damaged == 1
    assert damaged(path) == [b"\0" * 4096]


@pytest.mark.parametrize(
    "line", [b'{"x":1,"_ng_task_index":5,"_ng_rollout_index":0}', record(5).replace(b"1.0", b"null")]
)
def test_a_line_without_a_reward_is_not_a_scored_record(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "x.jsonl"
    assert repaired(path, line + b"\n" + record(1) + b"\n") == (record(1) + b"\n", RepairResult(1, 1))
    assert damaged(path) == [line]
    assert repaired(path, line + b"\n", unique_keys=False) == (line + b"\n", RepairResult(1))  # but one of a failure


def test_blank_lines_vanish_and_are_not_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    left, found = repaired(path, b"\n" + record(0) + b"\n\n\n" + record(1) + b"\n\r\n")
    assert left == record(0) + b"\n" + record(1) + b"\n"
    assert found == RepairResult(2)
    assert damaged(path) == []


def test_second_records_of_a_rollout_are_taken_out_where_there_may_be_one(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    first, second = record(3, text="first"), record(3, text="second")
    left, found = repaired(path, first + b"\n" + record(4) + b"\n" + second + b"\n" + first + b"\n")
    assert left == first + b"\n" + record(4) + b"\n"
    assert found.duplicates == [RolloutKey(3, 0), RolloutKey(3, 0)]
    assert (found.lines, found.damaged) == (2, 0)


def test_a_second_record_without_its_newline_is_taken_out_as_well(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    left, found = repaired(path, record(3) + b"\n" + record(3))
    assert left == record(3) + b"\n"
    assert found.duplicates == [RolloutKey(3, 0)]


def test_second_records_are_kept_as_evidence(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    repaired(path, record(3, text="first") + b"\n" + record(3, text="second") + b"\n")
    assert damaged(path) == [record(3, text="second")]


def test_several_lines_of_a_rollout_stay_where_there_may_be_several(tmp_path: Path) -> None:
    path = tmp_path / "x_failures.jsonl"
    data = (record(3, n=1) + b"\n") * 2 + record(3, n=2) + b"\n"
    assert repaired(path, data, unique_keys=False) == (data, RepairResult(3))


def test_evidence_of_several_crashes_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    for number in range(3):
        repaired(path, record(0) + b'\n{"torn %d' % number)
    assert damaged(path) == [b'{"torn 0', b'{"torn 1', b'{"torn 2']


@pytest.mark.parametrize(
    "line",
    [
        b'{"reward":1.0,"response":{"outp' + record(5),  # appended behind a torn line by a writer that did not repair
        record(4)[:-2] + record(5),
        b'{"text":"\xff\xfe\xfd","reward":1.0,"_ng_task_index":5,"_ng_rollout_index":0}',
        b'{"reward":1.0,"echo":{"_ng_task_index":5,"_ng_rollout_index":0}',  # torn behind an author's own field
    ],
)
def test_a_line_that_is_not_json_is_not_a_record_even_if_its_end_looks_like_one(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "x.jsonl"
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(line)
    left, _ = repaired(path, record(0) + b"\n" + line + b"\n" + record(1) + b"\n")
    assert left == record(0) + b"\n" + record(1) + b"\n"
    assert damaged(path) == [line]


def _numbered(path: Path) -> Path:
    """A fresh name for each example of a property test."""
    return path / f"{len(list(path.iterdir()))}.jsonl"


texts = st.text(max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.lists(texts, min_size=1, max_size=8), st.data())
def test_truncation_anywhere_loses_at_most_the_line_it_hits(
    tmp_path: Path, said: list[str], data: st.DataObject
) -> None:
    lines = [record(task, text=text) for task, text in enumerate(said)]
    whole = b"".join(line + b"\n" for line in lines)
    cut = data.draw(st.integers(0, len(whole)))
    survivors = [line for place, line in enumerate(lines) if sum(len(one) + 1 for one in lines[: place + 1]) - 1 <= cut]
    left, _ = repaired(_numbered(tmp_path), whole[:cut])
    assert left == b"".join(line + b"\n" for line in survivors)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(
    said=st.lists(texts, min_size=1, max_size=8),
    hits=st.lists(st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=12)), max_size=5),
    loses_end=st.booleans(),
)
@example(said=["a", "b"], hits=[(0, b"\n")], loses_end=False)
@example(said=["a", "b"], hits=[(30, b"\0\0")], loses_end=True)
def test_corruption_anywhere_never_costs_a_line_that_it_does_not_hit(
    tmp_path: Path,
    said: list[str],
    hits: list[tuple[int, bytes]],
    loses_end: bool,  # noqa: FBT001 - drawn
) -> None:
    path = _numbered(tmp_path)
    lines = [record(task, text=text) for task, text in enumerate(said)]
    starts = [sum(len(line) + 1 for line in lines[:place]) for place in range(len(lines))]
    data = bytearray(b"".join(line + b"\n" for line in lines))
    hit: set[int] = set()
    for at, junk in hits:
        start = at % len(data)
        end = min(start + len(junk), len(data))
        data[start:end] = junk[: end - start]
        hit |= {
            place for place, line in enumerate(lines) if starts[place] <= end and start <= starts[place] + len(line)
        }
    if loses_end:
        data = data[:-1]
    survivors = [line for place, line in enumerate(lines) if place not in hit]
    path.write_bytes(data)
    _, found = opened(path, unique_keys=False)
    left = path.read_bytes()
    kept = left.split(b"\n")
    assert not Counter(survivors) - Counter(kept)
    assert [line for line in kept if line in survivors] == survivors  # in their order
    assert left == b"" or left.endswith(b"\n")
    pieces = [piece.rstrip(b"\r") for piece in bytes(data).split(b"\n")]
    assert Counter(piece for piece in pieces if piece) == Counter(
        line.rstrip(b"\r") for line in [*kept, *damaged(path)] if line
    )  # nothing vanished
    evidence = damaged(path)
    opened(path, unique_keys=False)
    assert (path.read_bytes(), damaged(path)) == (left, evidence)
    assert found.lines == len(kept) - 1


# --- appending -------------------------------------------------------------------------------------------------------


async def test_appending_goes_on_behind_a_repaired_file(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(record(0) + b"\n" + record(1)[:-3])
    opened(path)
    async with AppendLog(path) as log:
        log.append(record(1))
    assert [row["_ng_task_index"] for row in read_jsonl(path)] == [0, 1]


async def test_committing_nothing_writes_nothing(tmp_path: Path) -> None:
    async with AppendLog(tmp_path / "x.jsonl") as log:
        await log.commit()
    assert (tmp_path / "x.jsonl").read_bytes() == b""


async def test_many_commits_at_once_keep_the_order_and_write_each_line_once(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    async with AppendLog(path) as log:
        waiting = []
        for number in range(200):
            log.append(orjson.dumps({"n": number}))
            waiting.append(asyncio.create_task(log.commit()))
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)
        assert [row["n"] for row in read_jsonl(path)] == list(range(200))
    assert [row["n"] for row in read_jsonl(path)] == list(range(200))


async def test_a_commit_that_is_cancelled_loses_no_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    gate = threading.Event()
    async with AppendLog(path) as log:
        busy = loop.run_in_executor(None, gate.wait)  # whatever else the process does in threads
        log.append(b'{"n":1}')
        commit = asyncio.create_task(log.commit())
        await asyncio.sleep(0.01)
        commit.cancel()
        await asyncio.wait([commit])
        gate.set()
        await busy
    assert read_jsonl(path) == [{"n": 1}]


async def test_closing_while_the_periodic_commit_waits_for_a_thread_loses_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.jsonl"
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    gate = threading.Event()
    busy = loop.run_in_executor(None, gate.wait)
    monkeypatch.setattr("gymnast.store.append.COMMIT_INTERVAL_S", 0.01)
    async with AppendLog(path) as log:
        log.append(b'{"n":1}')
        await eventually(lambda: not log._pending)
        loop.call_later(0.04, gate.set)
    await busy
    assert read_jsonl(path) == [{"n": 1}]


async def test_a_folder_that_takes_no_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        async with AppendLog(tmp_path / "file" / "x.jsonl"):
            pass


# --- the lock --------------------------------------------------------------------------------------------------------


def test_the_lock_is_free_after_its_block_however_that_ends(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.lock"
    with pytest.raises(ZeroDivisionError), RunLock(path):
        raise ZeroDivisionError
    for _ in range(3):
        with RunLock(path), pytest.raises(UserError, match=f"pid {os.getpid()}"), RunLock(path):
            pass
    assert not path.exists()


def test_a_folder_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write into"), RunLock(tmp_path / "file" / "x.lock"):
        pass


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As parallel file systems often are mounted."""

    def refuse(fd: int, how: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(UserError, match="files cannot be locked here"), RunLock(tmp_path / "x.lock"):
        pass


def test_another_holder_is_waited_for_as_long_as_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, pauses, sleep = tmp_path / "x.lock", threading.Semaphore(0), time.sleep

    def counted_sleep(seconds: float) -> None:
        pauses.release()
        sleep(seconds)

    monkeypatch.setattr("gymnast.store.lock.time.sleep", counted_sleep)

    def enter() -> bool:
        with RunLock(path, timeout_s=20.0):
            return True

    with ThreadPoolExecutor() as pool:
        with RunLock(path):
            second = pool.submit(enter)
            assert all(pauses.acquire(timeout=60) for _ in range(10))
            assert not second.done()
        assert second.result(20)


# --- the manifest ----------------------------------------------------------------------------------------------------


def manifest(**changes: Any) -> Manifest:
    base = Manifest(
        run_id="0123456789abcdef",
        state=RunState.INTERRUPTED,
        output="x.jsonl",
        created_at=1.5,
        updated_at=2.5,
        versions={"gymnast": "1", "python": "3"},
        source={"path": "in.jsonl", "bytes": 12, "digest": "d"},
        plan={"rows": 3, "tasks": 3, "agents": {"a": 3}, "crc32": 2**32 - 1},
        settings={"plan": {"params": {"temperature": 0.5, "nested": {"x": [1, None, True, "ü"]}}}},
        code={"a": "c0de"},
        counts=Counts(3, 1, {"model_error": 1}, 1, 5, 3),
        invocations=[Invocation(1.0, "host", 42, 2.0, RunState.INTERRUPTED, forced=True), Invocation(3.0, "host", 43)],
        note="why",
    )
    return msgspec.structs.replace(base, **changes)


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "x_run.json"
    assert read_manifest(path) is None
    for state in reversed(RunState):
        write_manifest(path, manifest(state=state))
        assert read_manifest(path) == manifest(state=state)
    assert [file.name for file in tmp_path.iterdir()] == ["x_run.json"]
    text = json.loads(path.read_text())
    assert text["schema_version"] == 1
    assert text["counts"] == {
        "requested": 3,
        "scored": 1,
        "failed": {"model_error": 1},
        "owed": 1,
        "attempts": 5,
        "retries": 3,
    }


def test_fields_that_we_do_not_know_do_not_hurt(tmp_path: Path) -> None:
    path = tmp_path / "x_run.json"
    path.write_bytes(orjson.dumps({**msgspec.to_builtins(manifest()), "more": {"x": 1}}))
    assert read_manifest(path) == manifest()


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "{}", '{"schema_version": 1}', "\0\0\0\0", '{"run_id": 3}'])
def test_a_manifest_that_cannot_be_read_is_an_error_with_a_way_on(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x_run.json"
    path.write_text(text)
    with pytest.raises(DataError, match="cannot read the run's manifest") as caught:
        read_manifest(path)
    assert caught.value.where == str(path)
    assert caught.value.next is not None


def test_a_state_that_we_do_not_know_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x_run.json"
    path.write_bytes(orjson.dumps({**msgspec.to_builtins(manifest()), "state": "exploded"}))
    with pytest.raises(DataError, match="exploded"):
        read_manifest(path)


def test_a_manifest_of_a_later_version_is_refused_instead_of_half_understood(tmp_path: Path) -> None:
    path = tmp_path / "x_run.json"
    path.write_bytes(orjson.dumps({**msgspec.to_builtins(manifest()), "schema_version": 2}))
    with pytest.raises(DataError, match="version"):
        read_manifest(path)


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x_run.json"
    write_manifest(path, manifest())
    stop = threading.Event()
    seen: Counter[str | None] = Counter()

    def read() -> None:
        while not stop.is_set():
            found = read_manifest(path)
            seen[found.note if found is not None else "missing"] += 1

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(100):
        write_manifest(path, manifest(note="even " * 2000 if number % 2 else "odd"))
    stop.set()
    reader.join()
    assert set(seen) <= {"why", "odd", "even " * 2000}
    assert seen.total() > 0


def test_replacing_leaves_nothing_but_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.done"
    (tmp_path / "x.jsonl.done.new").write_text("left by a crash")
    atomic_write(path, b"{}\n")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"x.jsonl.done": b"{}\n"}


# --- sets of keys ----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(-5, 2**40), st.integers(0, 2**32 - 1)), max_size=60), st.data())
def test_a_key_set_is_a_set(keys: list[tuple[int, int]], data: st.DataObject) -> None:
    found, wanted = KeySet(), set[int]()
    for task, rollout in keys:
        packed = RolloutKey(task, rollout).packed
        found.add(packed)
        wanted.add(packed)
        assert len(found) == len(wanted)
    assert all(packed in found for packed in wanted)
    other = RolloutKey(data.draw(st.integers(-5, 2**40)), data.draw(st.integers(0, 2**32 - 1))).packed
    assert (other in found) == (other in wanted)
    assert "x" not in found


def test_a_key_set_of_a_large_run_is_small() -> None:
    import tracemalloc

    tracemalloc.start()
    found = KeySet()
    for task in range(20_000):
        for rollout in range(4):
            found.add(RolloutKey(task, rollout).packed)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 80_000
    assert size < 400_000
