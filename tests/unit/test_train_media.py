"""Images and videos come with the segments whose prompts have them, and are never trained on without their pixels."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest

from gymnast.errors import UserError
from gymnast.tokens.media import Media
from gymnast.train import Group, MaskReason, sample_of
from gymnast.train.episode_agents import split_agents
from gymnast.train.sample_rows import sample_from_row, sample_to_row
from gymnast.train.sequences import rollout_rows, token_rows
from gymnast.types.failure import Stage
from gymnast.types.tokens import LEDGER, ForkReason
from gymnast.wire.calls import Scope
from tests.helpers.model_bench import Bench, chat
from tests.helpers.train_records import call, record

CAT, DOG = (f"data:image/png;base64,{name}" for name in ("Y2F0", "ZG9n"))
FILM = "https://example.com/film.mp4"
PAD = 7
"""The placeholder of an image, as an engine writes it into its prompts."""


def image(url: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def user(*parts: Any) -> dict[str, Any]:
    content = [{"type": "input_text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"role": "user", "content": content}


def reply(prompt: list[int], sampled: list[int], text: str = "Seen.") -> dict[str, Any]:
    tokens = (prompt, sampled, [-0.5] * len(sampled))
    names = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
    message: dict[str, Any] = dict(zip(names, tokens, strict=True))
    return chat(text, **message)


def media_call(ids: list[int], sampled: list[int], *media: Media, **more: Any) -> Any:
    return msgspec.structs.replace(call(ids, sampled, **more), media=[one.digest for one in media])


async def test_images_that_a_server_rendered_are_in_the_samples(bench: Bench) -> None:
    """The first turn has one image, the second adds another: the ids have a run of placeholders for each."""
    first, second = [1, PAD, PAD, 2], [1, PAD, PAD, 2, 3, 4, 5, PAD, 6]
    endpoint = await bench.endpoint(reply(first, [3, 4]), reply(second, [8]))
    bench.vllm(endpoint.url, return_token_id_information=True)
    scope = Scope("r-1")
    await bench.calls.call("policy", "/token_ledger/open", {}, scope, stage=Stage.MODEL)
    history: list[Any] = [user("What is this?", image(CAT))]
    output = (await bench.ask(scope, input=history)).body["output"]
    response = (await bench.ask(scope, input=[*history, *output, user(image(DOG))])).body
    taken = await bench.calls.call("policy", "/token_ledger/take", {}, scope, stage=Stage.MODEL)
    trajectory = [*output, user(image(DOG)), *response["output"]]
    fields = orjson.loads(record(None)) | {LEDGER: taken.body}
    fields |= {"responses_create_params": {"input": history}, "response": {**response, "output": trajectory}}
    sample = sample_of(orjson.dumps(fields))
    assert sample.mask_reason is None
    (segment,) = sample.segments
    assert segment.ids.tolist() == [*second, 8]
    assert segment.new_media == ((Media("image", CAT),), (Media("image", DOG),))
    assert segment.media == (Media("image", CAT), Media("image", DOG))
    assert CAT not in orjson.dumps(taken.body).decode(), "the record has it once, in its items"


def test_a_segment_has_only_what_its_own_prompts_had() -> None:
    """A sub-agent that saw no image has none, though the task has one."""
    cat = Media("image", CAT)
    calls = [media_call([1, PAD], [2], cat), media_call([5], [6])]
    sample = sample_of(record(calls, responses_create_params={"input": [user(image(CAT))]}))
    assert [segment.media for segment in sample.segments] == [(cat,), ()]
    assert sample.segments[1].reason is ForkReason.FIRST


def test_a_server_without_ledgers_is_taken_to_have_seen_the_tasks_images() -> None:
    params = {"input": [user(image(CAT), {"type": "input_video", "video_url": {"url": FILM}})]}
    sample = sample_of(record([call([1, PAD], [2])], responses_create_params=params))
    assert sample.segments[0].media == (Media("image", CAT), Media("video", FILM))


@pytest.mark.parametrize(
    ("calls", "detail"),
    [
        ([media_call([1], [2], Media("image", DOG))], "which is not in the record"),
        (
            [
                media_call([1], [2], Media("image", CAT)),
                media_call([3], [4], parent=0, before=2),
            ],
            "extends a prompt, but not its images",
        ),
    ],
)
def test_images_that_do_not_fit_the_tokens_mask_the_rollout(calls: list[Any], detail: str) -> None:
    sample = sample_of(record(calls, responses_create_params={"input": [user(image(CAT))]}))
    assert sample.mask_reason is MaskReason.BAD_LEDGER
    assert detail in sample.mask_detail


def sample_with_image(**more: Any) -> Any:
    params = {"input": [user(image(CAT))]}
    return sample_of(record([media_call([1, PAD], [2], Media("image", CAT))], responses_create_params=params, **more))


def test_trainers_that_take_ids_only_refuse_images() -> None:
    """They would learn from bare placeholders, with other logprobs than the engine's."""
    sample = sample_with_image()
    with pytest.raises(UserError, match="has images in its prompts"):
        list(token_rows([sample], [0], 0))
    with pytest.raises(UserError, match="has images in its prompts"):
        rollout_rows([sample], [0], 0)
    assert rollout_rows([sample.masked(MaskReason.STALE)], [0], 0)[0].mask.sum() == 0, "a masked one is not trained on"


def test_files_of_samples_keep_images() -> None:
    row = sample_to_row(sample_with_image())
    assert sample_from_row(orjson.loads(orjson.dumps(row))).segments[0].media == (Media("image", CAT),)
    for segment in row["segments"]:
        del segment["media"]  # as written before
    assert sample_from_row(row).segments[0].media == ()


def test_an_agents_part_has_the_images_before_its_last_turn() -> None:
    cat, dog = Media("image", CAT), Media("image", DOG)
    calls = [
        media_call([1, PAD], [2], cat),
        media_call([3], [4], cat, parent=0, before=3),
        media_call([PAD], [6], cat, dog, parent=1, before=5),
    ]
    agents = {"a": {"reward": 1.0, "calls": [1]}, "b": {"reward": 0.0, "calls": [0, 2]}}
    params = {"input": [user(image(CAT), image(DOG))]}
    sample = sample_of(record(calls, responses_create_params=params, episode_agents=agents))
    parts = {part.samples[0].agent: part.samples[0].segments[0] for part in split_agents(Group(0, (sample,)))}
    assert parts["a"].media == (cat,)
    assert parts["b"].new_media == ((cat,), (dog,))
