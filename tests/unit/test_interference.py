"""Other programs touch a run's files: what is called complete is on disk, and nothing is lost without a word."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from gymnast.chunks.merge import merge
from gymnast.errors import DataError, UserError
from gymnast.rollouts.limits import HostCap
from gymnast.rollouts.prepare import check_names
from gymnast.store.append import AppendLog
from gymnast.store.manifest import RunState, read_manifest
from gymnast.store.paths import RunPaths
from tests.helpers.chunked_runs import small_run
from tests.helpers.jsonl import read_jsonl, write_jsonl
from tests.unit.test_chunk_merge import finish
from tests.unit.test_resume import Run, row


def replace_by_copy(path: Path) -> None:
    """As editors and `sed -i` do."""
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def cut(path: Path) -> None:
    os.truncate(path, 3)


def extend(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"{}\n")


@pytest.mark.parametrize(
    ("interfere", "word"),
    [(replace_by_copy, "replaced"), (Path.unlink, "removed"), (cut, "shortened"), (extend, "extended")],
)
async def test_a_file_that_another_program_changes_is_noticed_before_more_is_written(
    tmp_path: Path, interfere: Callable[[Path], None], word: str
) -> None:
    path = tmp_path / "x.jsonl"
    (tmp_path / "x.jsonl.saved").write_bytes(b"of an earlier invocation")
    async with AppendLog(path) as log:
        log.append(b'{"n":1}')
        await log.commit()
        interfere(path)
        log.append(b'{"n":2}')
        with pytest.raises(UserError, match=f"another program {word} x.jsonl") as caught:
            await log.commit()
    assert caught.value.next is not None
    if word in {"replaced", "removed"}:
        assert (tmp_path / "x.jsonl.saved").read_bytes() == b"of an earlier invocation"
        saved = tmp_path / "x.jsonl.saved.2"
        assert saved.read_bytes() == b'{"n":1}\n{"n":2}\n'
        assert "rename it to x.jsonl" in caught.value.next


@pytest.mark.parametrize("interfere", [replace_by_copy, Path.unlink, cut, extend])
async def test_a_run_is_not_called_complete_after_its_file_was_changed(
    tmp_path: Path, interfere: Callable[[Path], None]
) -> None:
    run = Run(tmp_path, [row(n) for n in range(20)])
    count = 0

    def script(_: str) -> str:
        nonlocal count
        count += 1
        if count == 10:
            interfere(run.paths.output)  # it is empty until the first commit; cutting extends it
        return "scored"

    with pytest.raises(UserError, match="another program"):
        await run.go(script)
    manifest = read_manifest(run.paths.manifest)
    assert manifest is not None
    assert manifest.state is not RunState.COMPLETE
    assert not run.paths.done.exists()
    again, finished = await run.go()
    assert finished.owed == 0
    assert finished.scored == 20 == len(run.scored)
    assert again


async def test_one_writer_per_file_by_whatever_name_it_is_reached(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    real, alias = tmp_path / "a" / "x.jsonl", tmp_path / "b" / "y.jsonl"
    async with AppendLog(real) as log:
        alias.symlink_to(real)
        with pytest.raises(UserError, match="another process is writing this run"):
            async with AppendLog(alias):
                pass
        log.append(b"{}")
    async with AppendLog(alias) as log:
        log.append(b"{}")
    assert real.read_bytes() == b"{}\n{}\n"


async def test_a_record_of_another_run_is_moved_aside_and_nothing_is_counted_twice(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(n) for n in range(4)])
    await run.go()
    foreign = {"reward": 1.0, "_ng_task_index": 77, "_ng_rollout_index": 0}
    with run.paths.output.open("ab") as stream:
        stream.write(orjson.dumps(foreign) + b"\n")
    again, finished = await run.go()
    assert again == []
    assert (finished.scored, finished.owed) == (4, 0)
    assert run.said == ["repaired: x.jsonl: 1 records of other runs were moved to x.jsonl.damaged"]
    assert read_jsonl(tmp_path / "x.jsonl.damaged") == [foreign]
    write_jsonl(run.paths.output, [foreign])
    with pytest.raises(DataError, match="not in the materialized inputs"):
        await run.go()
    assert read_jsonl(run.paths.output) == [foreign]


async def test_a_resume_without_the_plan_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(n) for n in range(4)])
    await run.go()
    run.paths.materialized_inputs.unlink()
    error = run.refused()
    assert "x_materialized_inputs.jsonl is missing" in error.what
    prepared = run.prepare(existing="resume_if_planned")
    assert "moved to" in prepared.notes[0]


@pytest.mark.parametrize(
    ("name", "word"),
    [("x" * 240 + ".jsonl", "too long"), ("é" * 120 + ".jsonl", "too long"), ("x\udcff.jsonl", "UTF-8")],
)
def test_names_that_files_cannot_have_are_refused_with_words(tmp_path: Path, name: str, word: str) -> None:
    with pytest.raises(UserError, match=word):
        check_names(tmp_path / "in.jsonl", RunPaths(tmp_path / name))
    if word == "UTF-8":
        with pytest.raises(UserError, match=word):
            check_names(tmp_path / name, RunPaths(tmp_path / "x.jsonl"))
    check_names(tmp_path / "in.jsonl", RunPaths(tmp_path / ("x" * 200 + ".jsonl")))


def test_a_capped_concurrency_is_reported_with_what_would_raise_it() -> None:
    cap = HostCap(8, "raise the limit of open files (ulimit -n)")
    assert cap.warn(100) == ["at most 8 rollouts run at once instead of 100: raise the limit of open files (ulimit -n)"]
    assert cap.warn(None) == ["at most 8 rollouts run at once: raise the limit of open files (ulimit -n)"]
    assert cap.warn(8) == []
    assert HostCap(4096, "").warn(None) == []


@pytest.mark.parametrize("damage", ["garbage", "zeros", "missing reward"])
def test_a_damaged_shard_is_not_merged(tmp_path: Path, damage: str) -> None:
    run = small_run(tmp_path, 4, 2, 3)
    finish(run, random.Random(1), gives_away=False)
    shard = max(
        run.paths.chunks.rglob("*.jsonl"), key=lambda path: (b'"reward"' in path.read_bytes(), path.stat().st_size)
    )
    data = shard.read_bytes()
    at = data.index(b'"reward"')
    broken = {"garbage": b'"re}\x01rd"', "zeros": b"\0" * 8, "missing reward": b'"rewarx"'}[damage]
    shard.write_bytes(data[:at] + broken + data[at + 8 :])
    with pytest.raises(DataError, match="missing or damaged"):
        merge(run.paths)
    assert not run.paths.done.exists()
    assert not run.paths.output.exists()
    counts = merge(run.paths, partial=True)
    assert (counts.scored, counts.owed) == (7, 1)
    assert not run.paths.done.exists()
    records: list[Any] = read_jsonl(run.paths.output)
    assert len(records) == 7
