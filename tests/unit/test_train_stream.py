"""Groups as they complete: bounded, young enough, each delivered once, also over restarts; weight updates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.errors import UserError
from gymnast.train import (
    BatchOptions,
    Curriculum,
    FewerRolloutsError,
    Group,
    MaskReason,
    NothingLeftError,
    NothingToTrainError,
    PolicyVersions,
    StreamOptions,
    TaskMixture,
    VllmWeights,
    WeightUpdateError,
    WhenStale,
    collect_batch,
    sample_of,
    stream,
)
from gymnast.train.stream_state import read_state
from gymnast.types.task import RolloutKey
from gymnast.wire.http_client import HttpClient
from tests.helpers.train_records import Simulated, good, record, shuffled_delays, some_tasks
from tests.helpers.waiting import eventually


async def test_every_task_is_delivered_once_as_it_completes() -> None:
    policy = Simulated(delay_s=shuffled_delays())
    async with stream(policy, some_tasks(20), generations=3) as groups:
        found = [group async for group in groups]
        figures = groups.figures()
    assert sorted(group.task for group in found) == list(range(20))
    assert all(len(group) == 3 for group in found)
    assert (figures["stream/delivered"], figures["samples"], figures["turns_per_sample/mean"]) == (20, 60, 2.0)
    assert (figures["versions_per_rollout/mean"], figures["drift_rate"], figures["truncation_rate"]) == (1.0, 0.0, 0.0)
    assert len(set(policy.ids)) == 60


async def test_a_slow_trainer_stops_new_groups() -> None:
    policy = Simulated()
    options = StreamOptions(groups_in_flight=2, groups_ready=3)
    async with stream(policy, some_tasks(50), generations=2, options=options) as groups:
        seen = 0
        async for _ in groups:
            seen += 1
            await asyncio.sleep(0.01)
            assert len(policy.runs) <= seen + 5
            if seen == 10:
                break
    assert policy.ended == len(policy.runs)


async def test_a_group_that_is_too_old_is_dropped_counted_and_asked_for_again() -> None:
    versions = PolicyVersions(["v0"])
    policy = Simulated(lambda key, _: good(key, version=versions.current))
    options = StreamOptions(max_age=1, groups_in_flight=1, groups_ready=8)
    delivered: list[Group] = []
    async with stream(policy, some_tasks(6), generations=2, options=options, versions=versions) as groups:
        async for group in groups:
            delivered.append(group)
            assert versions.age_of_group(group) <= 1
            if len(delivered) == 1:
                await eventually(lambda: len(policy.runs) == 6)
                versions.advance("v1")
                versions.advance("v2")
    assert sorted(group.task for group in delivered) == list(range(6))
    assert groups.counts.stale_dropped == 5
    assert len(policy.runs) == 11


async def test_a_group_that_stays_too_old_is_delivered_masked_and_not_asked_for_for_ever() -> None:
    versions = PolicyVersions(["v0", "v1", "v2"])
    policy = Simulated(lambda key, _: good(key, version="v0" if key.rollout else "v2"))
    for rule, runs in ((WhenStale.ASK_AGAIN, 3), (WhenStale.MASK, 1)):
        policy.runs.clear()
        options = StreamOptions(max_age=1, when_stale=rule)
        async with stream(policy, some_tasks(1), generations=2, options=options, versions=versions) as groups:
            (group,) = [one async for one in groups]
        assert [sample.mask_reason for sample in group.samples] == [None, MaskReason.STALE]
        assert (len(policy.runs), groups.counts.stale_masked) == (runs, 1)


def test_the_age_of_what_engines_do_not_label_is_that_of_the_question() -> None:
    versions = PolicyVersions(["a", "b", "c"])
    key = RolloutKey(0, 0)
    for label, asked_at, age in (("c", 0, 0), ("a", 3, 2), (None, 2, 1), ("never told", 1, 2), (None, 3, 0)):
        assert versions.age_of(sample_of(good(key, version=label)), asked_at) == age
    versions.advance("a")
    assert (versions.current, versions.age_of(sample_of(good(key, version="a")), 0)) == ("a", 0)


async def test_missing_rollouts_end_the_stream() -> None:
    policy = Simulated(lambda key, _: "agent_unreachable" if key.task == 3 else good(key))
    options = StreamOptions(groups_in_flight=1)
    with pytest.raises(FewerRolloutsError, match="missing: 3:0"):
        async with stream(policy, some_tasks(9), generations=1, options=options) as groups:
            _ = [group async for group in groups]
    assert policy.ended == len(policy.runs)
    several = StreamOptions(groups_in_flight=4)
    with pytest.raises(FewerRolloutsError, match="up to 4 concurrent groups of 2") as caught:
        async with stream(policy, some_tasks(9), generations=2, options=several) as groups:
            _ = [group async for group in groups]
    assert caught.value.missing == ("3:0", "3:1")


async def test_nothing_to_train_on_for_long_ends_the_stream() -> None:
    policy = Simulated(lambda key, _: record(None, task=key.task, rollout=key.rollout))
    with pytest.raises(NothingToTrainError):
        async with stream(policy, some_tasks(9), generations=1, options=StreamOptions(max_empty_groups=3)) as groups:
            _ = [group async for group in groups]
    with pytest.raises(UserError, match="no tasks"):
        async with stream(policy, [], generations=1) as groups:
            _ = [group async for group in groups]


@given(st.integers(1, 12), st.lists(st.integers(1, 5), max_size=4))
async def test_over_restarts_every_group_is_delivered_once(
    tmp_path_factory: pytest.TempPathFactory, tasks: int, stops: list[int]
) -> None:
    """Each session ends when the trainer has asked for one group more than it took; the last one goes to the end."""
    path = tmp_path_factory.mktemp("stream") / "state.json"
    delivered: list[int] = []
    for stop in [*stops, None]:
        if len(delivered) == tasks:
            with pytest.raises(NothingLeftError, match=f"all {tasks} groups"):
                await _delivered_in_one_session(path, tasks, stop, delivered)
        else:
            await _delivered_in_one_session(path, tasks, stop, delivered)
    assert sorted(delivered) == list(range(tasks))


async def _delivered_in_one_session(path: Path, tasks: int, stop: int | None, delivered: list[int]) -> None:
    policy = Simulated(delay_s=shuffled_delays(len(delivered), 0.002))
    async with stream(policy, some_tasks(tasks), generations=1, state=path) as groups:
        in_hand: int | None = None
        taken = 0
        async for group in groups:
            if in_hand is not None:
                delivered.append(in_hand)
            in_hand = group.task
            taken += 1
            if taken == stop:
                break
        else:
            delivered += [in_hand] if in_hand is not None else []


async def test_a_second_epoch_with_the_state_of_the_first_is_not_empty_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    await _delivered_in_one_session(path, 2, None, [])
    with pytest.raises(UserError, match="all 2 groups of this stream have already been delivered: this epoch is empty"):
        await _delivered_in_one_session(path, 2, None, [])


@pytest.mark.parametrize(("done", "again"), [(True, [2, 3]), (False, [1, 2, 3])])
async def test_a_group_that_is_in_the_checkpoint_does_not_come_again(
    tmp_path: Path, again: list[int], *, done: bool
) -> None:
    path = tmp_path / "state.json"
    options = StreamOptions(autosave=False, groups_in_flight=1)
    async with stream(Simulated(), some_tasks(4), generations=1, state=path, options=options) as groups:
        async for group in groups:
            if group.task == 1:
                groups.save(done=done)  # beside the trainer's checkpoint, with the group still in hand
                break
    state = read_state(path)
    assert state is not None
    assert state.delivered == 4 - len(again)
    async with stream(Simulated(), some_tasks(4), generations=1, state=path, options=options) as groups:
        assert sorted([group.task async for group in groups]) == again


async def test_a_restart_with_other_tasks_is_refused_and_labels_go_on(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    versions = PolicyVersions(["a", "b"])
    options = StreamOptions(autosave=False)
    async with stream(Simulated(), some_tasks(3), generations=1, state=path, versions=versions, options=options) as one:
        _ = [group async for group in one]
        assert not path.exists()
        one.save()
    state = read_state(path)
    assert state is not None
    assert (state.taken, state.owed, state.delivered, state.labels) == (3, [], 3, ["a", "b"])
    async with stream(Simulated(), some_tasks(4), generations=1, state=path) as more:
        assert [group.task async for group in more] == [3]
        assert more.versions.labels == ["a", "b"]
    for others in (some_tasks(2), [{"other": 1}, *some_tasks(4)[1:]]):
        with pytest.raises(UserError, match="differ from those"):
            async with stream(Simulated(), others, generations=1, state=path):
                pass
    path.write_text('{"schema_version": 99}')
    with pytest.raises(UserError, match="schema version 99"):
        async with stream(Simulated(), some_tasks(4), generations=1, state=path):
            pass


async def test_a_trainer_that_blocks_in_a_thread_is_fed_meanwhile() -> None:
    policy = Simulated(delay_s=lambda _: 0.01)
    options = StreamOptions(batch=BatchOptions(), groups_in_flight=4, groups_ready=4)
    async with stream(policy, some_tasks(8), generations=1, options=options) as groups:
        async for _ in groups:
            await eventually(lambda: len(policy.runs) == 8)
            break


async def test_another_loop_continues_where_a_break_stopped(tmp_path: Path) -> None:
    """A trainer that takes a batch of groups with one loop, and the next batch with another."""
    path = tmp_path / "state.json"
    batches: list[list[int]] = []
    async with stream(Simulated(), some_tasks(7), generations=1, state=path) as groups:
        while len(batches) < 3:
            batch = []
            async for group in groups:
                batch.append(group.task)
                if len(batch) == 2:
                    break
            batches.append(batch)
            state = groups.state()
            taken = sum(map(len, batches))
            assert (state.delivered, len(state.owed)) == (taken - 1, 7 - (taken - 1)), "the last one is in hand"
    assert sorted(task for batch in batches for task in batch) == list(range(6))
    async with stream(Simulated(), some_tasks(7), generations=1, state=path) as groups:
        assert sorted([group.task async for group in groups]) == [batches[-1][-1], 6]


@pytest.mark.parametrize("steps", range(0, 24, 2))
async def test_a_closed_stream_starts_no_further_groups(steps: int) -> None:
    """Whatever moment the trainer leaves at: a group may complete while the others are being cancelled."""
    policy = Simulated()
    others = asyncio.all_tasks()
    options = StreamOptions(groups_in_flight=4, groups_ready=2)
    async with stream(policy, some_tasks(1000), generations=1, options=options) as groups:
        async for _ in groups:
            for _ in range(steps):
                await asyncio.sleep(0)
            break
    assert asyncio.all_tasks() == others
    runs = len(policy.runs)
    await asyncio.sleep(0.01)
    assert (len(policy.runs), policy.ended) == (runs, runs)


# --- weight updates --------------------------------------------------------------------------------------------------

Answer = Callable[[str], int]


@asynccontextmanager
async def servers(number: int, answer: Answer) -> AsyncIterator[tuple[list[str], list[tuple[int, str, Any]]]]:
    """HTTP servers that note what they are asked."""
    requests: list[tuple[int, str, Any]] = []

    def serve(place: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:"))
            body = await reader.readexactly(length)
            path = head.split(" ")[1]
            requests.append((place, path, json.loads(body) if body else None))
            writer.write(f"HTTP/1.1 {answer(path)} X\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}".encode())
            await writer.drain()
            writer.close()

        return one

    started = [await asyncio.start_server(serve(place), "127.0.0.1", 0) for place in range(number)]
    try:
        yield [f"http://127.0.0.1:{one.sockets[0].getsockname()[1]}/v1" for one in started], requests
    finally:
        for one in started:
            one.close()
            await one.wait_closed()


async def test_weights_are_updated_on_every_server_between_pause_and_resume(http: HttpClient) -> None:
    versions = PolicyVersions(["step-0"])
    async with (
        servers(2, lambda _: 200) as (urls, asked),
        VllmWeights(http, urls, versions=versions).updating("step-1"),
    ):
        assert sorted(path for _, path, _ in asked) == ["/pause?mode=keep"] * 2
        assert versions.current == "step-0"
    paths = [path for _, path, _ in asked[2:]]
    assert paths == ["/update_weight_version"] * 2 + ["/resume"] * 2
    assert asked[2][2] == {"new_version": "step-1"}
    assert (versions.current, versions.updates) == ("step-1", 2)


async def test_servers_are_resumed_without_a_new_label_when_loading_fails(http: HttpClient) -> None:
    versions = PolicyVersions(["step-0"])
    async with servers(2, lambda path: 500 if path == "/update_weight_version" else 200) as (urls, asked):
        weights = VllmWeights(http, urls, versions=versions)
        with pytest.raises(RuntimeError, match="no weights"):
            async with weights.updating("step-1"):
                raise RuntimeError("no weights")
        assert [path for _, path, _ in asked[2:]] == ["/resume"] * 2
        with pytest.raises(WeightUpdateError, match="2 of 2 servers failed"):
            async with weights.updating("step-1"):
                pass
        assert [path for _, path, _ in asked[-2:]] == ["/resume"] * 2
    assert versions.current == "step-0"


# --- what a trainer or a dataset gets wrong --------------------------------------------------------------------------


async def test_an_error_of_the_filter_ends_the_stream_and_loses_no_task(tmp_path: Path) -> None:
    """It is raised in a callback of the event loop, where nothing but a log would show it."""

    def keep(group: Group) -> bool:
        if group.task == 2:
            raise ZeroDivisionError("in the filter")
        return True

    path, delivered = tmp_path / "state.json", []
    options = StreamOptions(keep=keep, groups_in_flight=1, max_failed_groups=5)

    async def train() -> None:
        async with stream(Simulated(), some_tasks(5), generations=2, options=options, state=path) as groups:
            async for group in groups:
                delivered.append(group.task)
                groups.save()

    with pytest.raises(ZeroDivisionError, match="in the filter"):
        await train()
    async with stream(Simulated(), some_tasks(5), generations=2, state=path) as groups:
        delivered += [group.task async for group in groups]
    assert sorted(set(delivered)) == list(range(5))


async def test_a_filter_that_says_nothing_is_an_error() -> None:
    options = StreamOptions(keep=lambda _: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(UserError, match="keep returned None"):
        async with stream(Simulated(), some_tasks(2), generations=2, options=options) as groups:
            _ = [group async for group in groups]


@pytest.mark.parametrize("trained", [0, 1])
async def test_a_short_epoch_without_anything_to_train_does_not_end_as_if_all_was_well(trained: int) -> None:
    """It ends before `max_empty_groups` are reached."""
    policy = Simulated(lambda key, _: good(key) if key.task < trained else record(None, task=key.task))
    delivered = []

    async def train() -> None:
        async with stream(policy, some_tasks(3), generations=1) as groups:
            delivered.extend([group.task async for group in groups])

    if trained:
        await train()
    else:
        with pytest.raises(NothingToTrainError, match="the last 3 groups came back"):
            await train()
    assert sorted(delivered) == ([0, 1, 2] if trained else [])


async def test_a_damaged_state_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text('{"taken"')
    with pytest.raises(UserError, match=r"(?s)cannot parse.*delete it to start over"):
        async with stream(Simulated(), some_tasks(2), generations=1, state=path):
            pass


async def test_an_error_of_the_dataset_is_not_the_end_of_its_tasks() -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield from some_tasks(3)
        raise OSError("the file system is gone")

    for in_flight in (1, 2, 8):
        options = StreamOptions(groups_in_flight=in_flight)
        with pytest.raises(OSError, match="the file system is gone"):
            async with stream(Simulated(), rows(), generations=2, options=options) as groups:
                _ = [group async for group in groups]


@pytest.mark.parametrize("row", [None, 3, "a question", [], {"a": {1}}], ids=repr)
async def test_what_is_not_a_row_is_an_error_that_says_where(row: Any) -> None:
    tasks: list[Any] = [*some_tasks(2), row, *some_tasks(2)]
    for source in (tasks, Curriculum(tasks, limit=50), TaskMixture({"a": (tasks, 1.0)})):
        with pytest.raises(UserError, match="task 2 "):
            async with stream(Simulated(), source, generations=2) as groups:
                _ = [group async for group in groups]
    if not isinstance(row, dict):
        with pytest.raises(UserError, match="task 2 is not a row"):
            await collect_batch(Simulated(), tasks, generations=2)
    with pytest.raises(UserError, match="a single row"):
        stream(Simulated(), some_tasks(1)[0], generations=2)  # type: ignore[arg-type]


async def test_a_request_that_timed_out_loses_no_group() -> None:
    policy = Simulated(delay_s=lambda key: 0.012 + 0.005 * key.task)
    delivered: list[int] = []
    async with stream(policy, some_tasks(6), generations=2) as groups:
        iterator = aiter(groups)
        while True:
            try:
                delivered.append((await asyncio.wait_for(anext(iterator), 0.003)).task)
            except TimeoutError:
                continue
            except StopAsyncIteration:
                break
    assert sorted(delivered) == list(range(6))
    assert groups.counts.delivered == 6


async def test_two_consumers_share_a_stream() -> None:
    delivered: list[int] = []
    tasks = Curriculum(some_tasks(4), limit=12)
    async with stream(Simulated(delay_s=shuffled_delays()), tasks, generations=2) as groups:

        async def consume() -> None:
            async for group in groups:
                delivered.append(group.task)
                await asyncio.sleep(0.001)

        await asyncio.gather(consume(), consume(), consume())
        assert groups.state().owed == []
    assert (len(delivered), groups.counts.delivered) == (12, 12)


async def test_a_closed_stream_is_not_opened_again_as_an_empty_epoch() -> None:
    groups = stream(Simulated(), some_tasks(2), generations=2)
    async with groups:
        assert len([group async for group in groups]) == 2
    with pytest.raises(UserError, match="this stream is closed"):
        await groups.__aenter__()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("groups_in_flight", 0),
        ("groups_in_flight", 2.0),
        ("groups_ready", -1),
        ("max_age", -1),
        ("max_asked_again", -1),
        ("max_empty_groups", 0),
        ("max_filtered_groups", 0),
        ("oversample", -1),
        ("failed_group_retries", "1"),
    ],
)
def test_options_of_a_stream_are_checked_before_it_starts(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"{name} must be a whole number of at least"):
        stream(Simulated(), some_tasks(2), generations=2, options=StreamOptions(**{name: value}))


@pytest.mark.parametrize("value", [0, -1, 2.0, "2", None])
def test_generations_are_a_count(value: Any) -> None:
    with pytest.raises(UserError, match="generations must be a whole number of at least 1"):
        stream(Simulated(), some_tasks(2), generations=value)


def test_a_filter_that_is_a_coroutine_is_refused() -> None:
    async def keep(_: Group) -> bool:
        return False

    with pytest.raises(UserError, match="keep must return True or False"):
        stream(Simulated(), some_tasks(2), generations=2, options=StreamOptions(keep=keep))  # type: ignore[arg-type]


@pytest.mark.parametrize("label", ["", None, 3])
def test_labels_are_texts_as_servers_report_them(label: Any) -> None:
    with pytest.raises(UserError, match="the label of weights must be a string"):
        PolicyVersions([label])
