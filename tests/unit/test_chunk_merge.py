"""Merging: plan order whatever came first, gaps and overlaps by name; and shards read where they lie."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymnast.chunks.held_chunk import HeldChunk, placeholder_line
from gymnast.chunks.lease import cede, write_end
from gymnast.chunks.merge import merge
from gymnast.chunks.partition import cut_chunks, default_chunk_rows
from gymnast.chunks.reopen import reopen_failed
from gymnast.chunks.status import LivenessCheck, read_run_status
from gymnast.errors import DataError
from gymnast.profile.run_profile import load_run
from gymnast.report.run_view import view_runs
from gymnast.rollouts.reproducible import make_reproducible
from gymnast.store.lines import numbered_lines
from gymnast.store.manifest import read_manifest
from gymnast.store.records import record_file
from gymnast.store.scored_records import parse_scored
from gymnast.types.task import RolloutKey
from gymnast.types.totals import RolloutFacts
from tests.helpers.chunked_runs import FACTS, SmallRun, commit, expected_output, failure, record, small_run
from tests.helpers.jsonl import read_jsonl


def end(held: HeldChunk) -> None:
    commit(held)
    write_end(held.folder, held.lease, held.end(0.0))
    held.close()


def finish(run: SmallRun, chance: random.Random, *, gives_away: bool = True) -> None:
    """Workers one after the other: rows in any order, deaths, cessions."""
    number = 0
    while (view := next((view for view in run.views() if not view.folder_state.is_done), None)) is not None:
        number += 1
        held = run.claim(view, f"w{number}", f"t{number}")
        assert held is not None
        if gives_away and len(held.unstarted) > 1 and chance.random() < 0.4:
            going = held.start_ceding(chance.randint(1, len(held.unstarted) - 1))
            cede(held.folder, held.lease, going.number, going.child, going.attempts)
            held.finish_ceding()
        rows = list(held.unstarted)
        chance.shuffle(rows)
        for row in rows[: chance.randint(0, len(rows))]:
            held.record_scored(row.key, record(row.key), FACTS)
        if chance.random() < 0.5:
            end(held)
        else:
            commit(held)
            held.close()


@settings(max_examples=25)
@given(tasks=st.integers(1, 5), repeats=st.integers(1, 4), rows=st.integers(1, 7), seed=st.integers(0, 1000))
def test_the_merge_is_the_same_whatever_came_first(
    tmp_path_factory: pytest.TempPathFactory, tasks: int, repeats: int, rows: int, seed: int
) -> None:
    run = small_run(tmp_path_factory.mktemp("run"), tasks, repeats, rows)
    finish(run, random.Random(seed))
    counts = merge(run.paths)
    assert run.paths.output.read_bytes() == expected_output(run)
    assert (counts.scored, counts.owed, counts.failed) == (tasks * repeats, 0, {})
    assert json.loads(run.paths.done.read_bytes())["scored"] == tasks * repeats
    before = run.paths.output.read_bytes()
    merge(run.paths)
    assert run.paths.output.read_bytes() == before


@given(rows=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 50)), min_size=1), size=st.integers(1, 10))
def test_chunks_cover_the_plan_once(rows: list[tuple[int, int]], size: int) -> None:
    counts = Counter[int]()
    keyed = []
    for task, size_bytes in rows:
        keyed.append((RolloutKey(task, counts[task]), size_bytes))
        counts[task] += 1
    chunks = list(cut_chunks(keyed, size))
    assert [key for chunk in chunks for key in chunk.rollout_keys()] == [key for key, _ in keyed]
    assert [number for chunk in chunks for number in chunk.row_numbers()] == list(range(len(rows)))
    assert sum(chunk.size_bytes for chunk in chunks) == sum(size_bytes for _, size_bytes in rows)
    assert all(chunk.rows <= 2 * size for chunk in chunks)
    for before, after in pairwise(chunks):
        assert before.offset_bytes + before.size_bytes == after.offset_bytes


@given(rows=st.integers(1, 10**6), workers=st.integers(1, 1000))
def test_the_default_size_gives_every_worker_something(rows: int, workers: int) -> None:
    size = default_chunk_rows(rows, workers)
    assert 1 <= size <= max(512, rows // 5000 + 1)
    assert rows / size <= 5000 or size == 512
    assert rows // size >= min(rows, workers) or size * 5000 >= rows


def test_gaps_are_named_and_nothing_is_merged(tmp_path: Path) -> None:
    run = small_run(tmp_path, 4, 1, 2)
    held = run.claim(run.view("00001"), "slow", "t1")
    assert held is not None
    row = held.next_row()
    assert row is not None
    held.record_scored(row.key, record(row.key), FACTS)
    end(held)
    with pytest.raises(
        DataError, match=r"3 of 4 rollouts are not settled\n  chunk 00000: 2 of 2 \(free\)\n  chunk 00001: 1"
    ):
        merge(run.paths)
    assert not run.paths.output.exists()
    counts = merge(run.paths, partial=True)
    assert (counts.scored, counts.owed) == (1, 3)
    assert run.paths.output.read_bytes() == record(row.key) + b"\n"
    assert not run.paths.done.exists()


def test_overlaps_are_named_and_nothing_is_merged(tmp_path: Path) -> None:
    run = small_run(tmp_path, 2, 1, 2)
    held = run.claim(run.view("00000"), "a", "t1")
    assert held is not None
    first = held.unstarted[0].key
    for row in list(held.unstarted):
        held.record_scored(row.key, record(row.key), FACTS)
    held.scored.append(record(first))  # by whatever hand
    end(held)
    with pytest.raises(DataError, match="rollout 0:0 has two scored records"):
        merge(run.paths)
    assert not run.paths.output.exists()


def test_a_record_that_was_taken_away_is_missed(tmp_path: Path) -> None:
    run = small_run(tmp_path, 2, 1, 2)
    finish(run, random.Random(1), gives_away=False)
    shard = next(run.layout.chunk("00000").path.glob("[0-9]*.jsonl"))
    shard.write_bytes(b"")
    with pytest.raises(DataError, match="shorter than"):
        merge(run.paths)


def test_failures_come_in_plan_order_and_are_tried_again_when_asked(tmp_path: Path) -> None:
    run = small_run(tmp_path, 3, 1, 3)
    held = run.claim(run.view("00000"), "a", "t1")
    assert held is not None
    zero, one, two = (row.key for row in held.unstarted)
    held.record_failed(two, failure(two, 0, final=False), "model_error", "a", final=False)
    held.record_failed(zero, failure(zero, 0, final=True), "model_error", "a", final=True)
    held.record_failed(two, failure(two, 1, final=True, kind="verifier_error"), "verifier_error", "a", final=True)
    held.record_scored(one, record(one), FACTS)
    end(held)
    counts = merge(run.paths)
    assert counts.failed == {"model_error": 1, "verifier_error": 1}
    keys = [(line["_ng_task_index"], line["_ng_attempt_index"]) for line in read_jsonl(run.paths.failures)]
    assert keys == [(0, 0), (2, 0), (2, 1)]
    assert reopen_failed(run.layout, run.plan) == 2
    account = read_run_status(run.layout)
    assert (account.scored, account.failed, account.owed) == (1, {}, 2)
    again = run.claim(run.view("00000"), "b", "t2")
    assert again is not None
    assert [row.key for row in again.unstarted] == [zero, two]
    assert again.attempts == {}
    for row in list(again.unstarted):
        again.record_scored(row.key, record(row.key), FACTS)
    end(again)
    by = {
        worker.worker: (worker.scored, worker.failed) for worker in read_run_status(run.layout).workers if worker.scored
    }
    assert by == {"a": (1, {}), "b": (2, {})}
    assert merge(run.paths).failed == {}
    assert run.paths.output.read_bytes() == expected_output(run)


def facts(key: RolloutKey) -> RolloutFacts:
    """What the record of a rollout adds to the totals, as the engine counts it: with its duration."""
    parsed = parse_scored(record(key))
    assert parsed is not None
    return msgspec.structs.replace(parsed.facts, seconds=2.0)


def test_status_and_merge_of_chunks_show_the_reward_of_the_run_whichever_workers_died(tmp_path: Path) -> None:
    run = small_run(tmp_path, 4, 3, 6)
    dead = run.claim(run.view("00000"), "a", "t1")
    assert dead is not None
    keys = [row.key for row in dead.unstarted]
    for key in keys[:3]:
        dead.record_scored(key, record(key), facts(key))
    dead.record_failed(keys[3], failure(keys[3], 0, final=False), "model_error", "a", final=False)
    commit(dead)  # without a heartbeat since, and without an end
    dead.close()
    assert mean_of_status(run) == (3, 1 / 3)
    for number in (2, 3):
        view = next(view for view in run.views() if not view.folder_state.is_done)
        held = run.claim(view, "b", f"t{number}")
        assert held is not None
        for row in list(held.unstarted):
            held.record_scored(row.key, record(row.key), facts(row.key))
        end(held)
    assert mean_of_status(run) == (12, 1 / 3)
    merge(run.paths)
    manifest = read_manifest(run.paths.manifest)
    assert manifest is not None
    stats = manifest.agents["a"].stats()
    assert (stats.scored, stats.mean_reward, stats.mean_seconds) == (12, 1 / 3, 2.0)
    assert sum(sum(agent.retried.values()) for agent in manifest.agents.values()) == 1


def mean_of_status(run: SmallRun) -> tuple[int, float | None]:
    stats = read_run_status(run.layout).agents["a"]
    return stats.scored, stats.mean_reward


def test_totals_that_workers_did_not_report_are_counted_when_chunks_are_merged(tmp_path: Path) -> None:
    """Ends of an older Gymnast have none."""
    run = small_run(tmp_path, 3, 2, 6)
    finish(run, random.Random(2), gives_away=False)
    for path in run.layout.chunks.rglob("end.*.json"):
        ended = json.loads(path.read_bytes())
        ended["progress"].pop("agents", None)
        path.write_text(json.dumps(ended))
    merge(run.paths)
    manifest = read_manifest(run.paths.manifest)
    assert manifest is not None
    stats = manifest.agents["a"].stats()
    assert (stats.scored, stats.mean_reward) == (6, 0.5)


def test_a_record_that_is_not_to_be_kept_settles_its_rollout(tmp_path: Path) -> None:
    run = small_run(tmp_path, 2, 1, 2)
    held = run.claim(run.view("00000"), "a", "t1")
    assert held is not None
    first, second = (row.key for row in held.unstarted)
    held.record_scored(first, placeholder_line(first, 1.0), FACTS, is_record=False)
    held.record_scored(second, record(second), FACTS)
    end(held)
    assert merge(run.paths).scored == 2
    assert run.paths.output.read_bytes() == expected_output(run, [first])


def test_shards_are_read_where_they_lie(tmp_path: Path) -> None:
    """Profile and report of a run that is not merged say what those of the merged one say."""
    run = small_run(tmp_path, 4, 3, 5)
    finish(run, random.Random(3))
    lines = [line for _, line in numbered_lines(run.paths.output)]
    assert sorted(lines) == sorted(expected_output(run).splitlines())
    records = record_file(run.paths.output)
    with records.open() as stream:
        offset = 0
        for line in lines:
            stream.seek(offset)
            assert stream.readline() == line + b"\n"
            offset += len(line) + 1
    inputs, rollouts = (run.paths.materialized_inputs,), (run.paths.output,)
    before = load_run(inputs, rollouts, allow_partial=False).headline()
    seen = view_runs([run.paths.output])[0].headline
    merge(run.paths)
    assert load_run(inputs, rollouts, allow_partial=False).headline() == before
    assert view_runs([run.paths.output])[0].headline == seen


def test_the_account_says_who_is_silent(tmp_path: Path) -> None:
    run = small_run(tmp_path, 4, 1, 4)
    held = run.claim(run.view("00000"), "a", "t1")
    assert held is not None
    from gymnast.chunks.lease import write_heartbeat

    for _ in range(3):
        held.next_row()
    write_heartbeat(held.folder, held.lease, held.next_heartbeat(1000.0, in_flight=3, is_draining=False))
    key = RolloutKey(0, 0)
    held.record_scored(key, record(key), FACTS)
    commit(held)  # after the beat: found in the file
    heard = held.folder.heartbeat(1).stat().st_mtime  # the holder's clock says 1000 s after 1970
    fresh = read_run_status(run.layout)
    assert (fresh.scored, fresh.in_flight, fresh.unknown, fresh.owed) == (1, 3, 0, 0)
    late = read_run_status(run.layout, LivenessCheck(now=heard + 61))
    assert (late.scored, late.in_flight, late.unknown, late.owed) == (1, 0, 3, 0)
    assert late.states["silent"] == 1
    held.close()


def test_the_account_says_who_did_what_and_has_what(tmp_path: Path) -> None:
    """Also of workers whose chunk is another's by now."""
    run = small_run(tmp_path, 6, 1, 6)
    first = run.claim(run.view("00000"), "a", "t1")
    assert first is not None
    keys = [row.key for row in first.unstarted]
    for key in keys[:2]:
        first.record_scored(key, record(key), FACTS)
    first.record_failed(keys[2], failure(keys[2], 0, final=True), "model_error", "a", final=True)
    commit(first)
    second = run.claim(run.view("00000"), "b", "t2")
    assert second is not None
    first.record_scored(keys[3], record(keys[3]), FACTS)
    commit(first)  # in vain
    second.record_scored(keys[4], record(keys[4]), FACTS)
    commit(second)
    a, b = read_run_status(run.layout).workers
    assert (a.worker, a.scored, a.failed, a.chunks_held, a.owed) == ("a", 2, {"model_error": 1}, 0, 0)
    assert (b.worker, b.scored, b.failed, b.chunks_held, b.owed) == ("b", 1, {}, 1, 2)
    first.close()
    second.close()


def test_reproducible_records_have_no_times_and_no_made_up_ids() -> None:
    def made(name: str, at: float) -> bytes:
        call = {
            "type": "function_call",
            "id": f"call_{name}",
            "call_id": f"call_{name}",
            "name": "f",
            "arguments": "{}",
        }
        out = {"type": "function_call_output", "call_id": f"call_{name}", "output": "1"}
        response = {"id": f"resp_{name}", "created_at": at, "output": [call, out], "usage": {"input_tokens": 3}}
        used = {"calls": 1, "latency_ms": at, "judge": {"ttft_ms": at}}
        task = {"id": "mine", "created_at": 7, "seen_call": f"call_{name}"}
        return json.dumps({"response": response, "_ng_model_usage": used, "task": task, "reward": 1.0}).encode()

    assert make_reproducible(made("abc", 1.5)) == make_reproducible(made("xyz", 99.0))
    kept = json.loads(make_reproducible(made("abc", 1.5)))
    assert kept["task"] == {"id": "mine", "created_at": 7, "seen_call": kept["response"]["output"][0]["id"]}
    assert kept["response"]["usage"] == {"input_tokens": 3}
