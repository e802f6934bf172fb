"""What adapters of trainers stand on and that needs none of their packages: rows by number, conversations, settings."""

from __future__ import annotations

import asyncio
import json
import pickle
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.errors import DataError, UserError
from gymnast.train import MaskReason, sample_of
from gymnast.train.background_loop import BackgroundLoop
from gymnast.train.conversation_index import ConversationIndex
from gymnast.train.offsets import JsonlRows
from gymnast.train.prompt_files import prompt_messages
from gymnast.train.sequences import generations_of, token_rows
from gymnast.train.trl_rollouts import TrlRollouts
from gymnast.train.verl_settings import read_settings, task_of, window_of
from gymnast.types.task import TASK_INDEX, RolloutKey
from tests.helpers.train_records import Simulated, call, failure, record, some_tasks
from tests.helpers.train_tasks import written

BLANK = ("", "  ")


@given(st.lists(st.one_of(st.sampled_from(BLANK), st.text(min_size=1, max_size=40)), max_size=30), st.booleans())
def test_every_row_is_found(tmp_path_factory: pytest.TempPathFactory, texts: list[str], ended: bool) -> None:  # noqa: FBT001 - drawn by chance
    """Blank lines, and a last line without an end, as files have them."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    lines = [text if text in BLANK else json.dumps({"text": text}) for text in texts]
    path.write_text("\n".join(lines) + ("\n" if ended else ""))
    with JsonlRows(path) as rows:
        assert [rows[place]["text"] for place in range(len(rows))] == [text for text in texts if text not in BLANK]


def test_a_changed_file_is_indexed_again_and_a_copy_can_be_sent(tmp_path: Path) -> None:
    path = written(tmp_path, [{"n": 1}], "train.jsonl")
    assert len(JsonlRows(path)) == 1
    written(tmp_path, [{"n": 1}, {"n": 2}, {"n": 3}], "train.jsonl")
    rows: JsonlRows = pickle.loads(pickle.dumps(JsonlRows(path)))
    assert rows[2] == {"n": 3}
    with pytest.raises(IndexError):
        rows[3]


def test_an_index_that_cannot_be_written_is_an_error_that_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file stands in the way, for root as well")
    monkeypatch.setenv("GYMNAST_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(DataError, match="GYMNAST_CACHE_DIR"):
        JsonlRows(written(tmp_path, [{"n": 1}]))
    monkeypatch.setenv("GYMNAST_CACHE_DIR", str(tmp_path / "other"))
    assert JsonlRows(tmp_path / "rows.jsonl")[0] == {"n": 1}
    assert len(list((tmp_path / "other" / "offsets").iterdir())) == 1


def test_settings_that_are_unknown_or_missing_are_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'concurrency'"):
        read_settings({"environments": ["mcqa"], "concurency": 3})
    with pytest.raises(UserError, match="names no environment"):
        read_settings({})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("mask_truncated", "false", "must be true or false, got 'false'"),
        ("masked_vote", "no", "must be true or false, got 'no'"),
        ("stop_early", 0, "must be true or false, got 0"),
        ("workers", -1, "workers must be a whole number of at least 0"),
        ("max_failed_groups", "3", "max_failed_groups must be a whole number of at least 0"),
        ("batch_timeout_s", None, "batch_timeout_s must be a number of seconds above 0"),
        ("overrides", {"a": 1}, "'overrides' in section 'gymnast' must be a list of strings"),
        ("environments", [3], "'environments' in section 'gymnast' must be a list of strings"),
    ],
)
def test_settings_of_another_type_are_refused(name: str, value: Any, message: str) -> None:
    """A text is true, and was taken for true whatever it said."""
    with pytest.raises(UserError, match=re.escape(message)):
        read_settings({"environments": ["mcqa"], name: value})


def test_a_single_text_is_a_list_of_one() -> None:
    """Its letters were taken for names."""
    settings = read_settings({"environments": "mcqa", "overrides": "++a.b=1"})
    assert (settings.environments, settings.overrides) == (("mcqa",), ("++a.b=1",))


def test_a_conversation_is_known_by_its_tokens() -> None:
    known = ConversationIndex(max_size=3)
    known.remember([1, 2], [3], "a")
    known.remember([1, 2], [4], "b")
    assert known.name_of([1, 2, 3, 9, 9]) == "a"
    assert known.name_of([1, 2, 4]) == "b"
    assert known.name_of([1, 2]) is None
    known.remember([1, 2, 3, 9], [5], "a2")
    assert known.name_of([1, 2, 3, 9, 5, 6]) == "a2", "the longest counts"
    known.remember([8], [8], "c")
    assert known.name_of([1, 2, 3, 7]) is None, "the oldest is forgotten"


Ids = st.lists(st.integers(0, 2), max_size=6)


@given(st.lists(st.tuples(Ids, Ids.filter(bool)), max_size=8), Ids, st.integers(1, 8))
def test_the_longest_beginning_that_is_known_names_the_conversation(
    calls: list[tuple[list[int], list[int]]], prompt: list[int], most: int
) -> None:
    known = ConversationIndex(most)
    ends: dict[tuple[int, ...], str] = {}
    for number, (asked, sampled) in enumerate(calls):
        known.remember(asked, sampled, str(number))
        ends.pop((*asked, *sampled), None)
        ends[*asked, *sampled] = str(number)
    newest = dict(list(ends.items())[-most:])
    found = [end for end in newest if end == tuple(prompt[: len(end)])]
    assert known.name_of(prompt) == (newest[max(found, key=len)] if found else None)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [("aabb", 2), ("aaaa", 4), ("abc", 1), ("aab", 1), ("aabba", 1), ("aabbaa", 1)],
)
def test_how_many_rollouts_of_a_group_follow_each_other(groups: str, expected: int) -> None:
    assert generations_of(groups) == expected


def test_rows_of_a_group_with_a_failure_and_a_masked_one() -> None:
    """Neither votes: both are given the mean of the others, and nothing of them is trained on."""
    samples = [sample_of(record([call([1, 2], [3, 4])], reward)) for reward in (1.0, 0.0, 1.0)]
    samples[2] = samples[2].masked(MaskReason.ENVIRONMENT)
    samples.append(sample_of(failure("instance_died"), failed=True))
    rows = list(token_rows(samples, [0, 0, 0, 0], 99))
    assert [row.score for row in rows] == [1.0, 0.0, 0.5, 0.5]
    assert [row.mask.tolist() for row in rows] == [[1, 1], [1, 1], [0, 0], [0]]
    assert [row.response.tolist() for row in rows][2:] == [[3, 4], [99]]
    assert [row.logprobs.tolist() for row in rows][2] == [0.0, 0.0]
    assert next(iter(list(token_rows(samples, [0, 0, 0, 0], 99, masked_vote=True))[3:])).score == pytest.approx(2 / 3)
    alone = list(token_rows(samples, [0, 0, 0, 1], 99, masked_vote=True))
    assert alone[3].score == pytest.approx(2 / 3), "where nobody votes it is the batch's mean, not 0"


def test_sampling_of_training_and_of_validation() -> None:
    rollout = {
        "temperature": 0.7,
        "top_p": 0.9,
        "prompt_length": 100,
        "response_length": 50,
        "max_model_len": None,
        "val_kwargs": {"temperature": 0.3, "top_p": 0.8, "do_sample": True},
    }
    row = {"responses_create_params": {"input": "x", "max_output_tokens": 20, "tools": []}, "id": 1}
    asked = task_of(row, rollout, validate=False)
    assert asked["responses_create_params"] == {
        "input": "x", "max_output_tokens": 20, "tools": [], "temperature": 0.7, "top_p": 0.9
    }  # fmt: skip
    assert task_of(row, rollout, validate=True)["responses_create_params"]["temperature"] == 0.3
    assert task_of(row, rollout, validate=False, greedy=True)["responses_create_params"]["temperature"] == 0.0
    assert window_of(rollout) == 150
    assert window_of({**rollout, "max_model_len": 4096}) == 4096


class Resource:
    """Notes when it is opened and closed, and in which loop."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __aenter__(self) -> Self:
        self.seen.append("in")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.seen.append("out")


def test_a_loop_in_the_background_keeps_resources_until_it_is_closed() -> None:
    background = BackgroundLoop()
    resource = background.enter(Resource())

    async def fail() -> None:
        await asyncio.sleep(0)
        raise UserError("no")

    with pytest.raises(UserError, match="no"):
        background.run(fail())
    assert background.start(asyncio.sleep(0, 5)).result() == 5
    assert resource.seen == ["in"]
    background.close()
    background.close()
    assert resource.seen == ["in", "out"]


class Opened:
    """Rollouts that need no servers."""

    def __init__(self, policy: Simulated) -> None:
        self._policy = policy

    async def __aenter__(self) -> Simulated:
        return self._policy

    async def __aexit__(self, *_: object) -> None: ...


def test_trls_evaluation_scores_every_rollout_by_its_own_reward() -> None:
    """In training a masked rollout has no reward; a batch of an evaluation may even have nothing to train on."""

    def act(key: RolloutKey, _: int) -> bytes:
        return record([call([1], [2])], 0.5, task=key.task, rollout=key.rollout, mask_sample=key.task == 0)

    def trainer(*, is_training: bool) -> Any:
        return SimpleNamespace(
            model=SimpleNamespace(training=is_training), processing_class=SimpleNamespace(pad_token_id=0)
        )

    prompts = [[{"role": "user", "content": "?", TASK_INDEX: index}] for index in (0, 0, 1, 1)]
    with TrlRollouts(Opened(Simulated(act)), some_tasks(2)) as rollouts:
        trained = rollouts.rollout(prompts, trainer(is_training=True))
        evaluated = [rollouts.rollout(some, trainer(is_training=False)) for some in (prompts, prompts[:2])]
    assert trained["gymnast_reward"] == [None, None, 0.5, 0.5]
    assert [found["gymnast_reward"] for found in evaluated] == [[0.5] * 4, [0.5] * 2]
    assert [found["gymnast_mask_reason"][0] for found in evaluated] == ["environment"] * 2


@pytest.mark.parametrize(
    ("prompt", "messages"),
    [
        ("x", [("user", "x")]),
        ([], [("user", "")]),
        ("", [("user", "")]),
        ([{"role": "assistant", "content": None}, {"content": "x"}], [("assistant", ""), ("user", "x")]),
        ([{"role": "user", "content": [{"type": "input_text", "text": None}]}], [("user", "")]),
        ([{"type": "function_call_output", "call_id": "c", "output": "1"}], [("user", "")]),
    ],
)
def test_a_task_whose_environment_makes_the_prompt_is_trained_on(prompt: Any, messages: list[tuple[str, str]]) -> None:
    """A row without messages was said to come from another dataset, and one with a null content ended the start."""
    trainer = SimpleNamespace(
        model=SimpleNamespace(training=True), processing_class=SimpleNamespace(pad_token_id=None, eos_token_id=0)
    )
    with TrlRollouts(Opened(Simulated()), [{"responses_create_params": {"input": prompt}}]) as rollouts:
        (row,) = rollouts._prompts()
        assert [(message["role"], message["content"]) for message in row["prompt"]] == messages
        assert len(rollouts.rollout([row["prompt"]] * 2, trainer)["completion_ids"]) == 2
    assert [(message["role"], message["content"]) for message in prompt_messages(prompt)] == messages
