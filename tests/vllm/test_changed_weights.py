"""Real vLLM gets other weights while rollouts run: each token's logprob is that of the weights it is labelled with."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from gymnast import Collector
from gymnast.train import Batch, BatchOptions, PolicyVersions, VllmWeights, WeightUpdateError, collect_batch
from gymnast.train.samples import Segment
from gymnast.train.vllm_weights import PauseMode
from gymnast.wire.http_client import HttpClient
from tests.helpers.jsonl import example_rows
from tests.vllm.asking import Asking, is_paused, random_prompts
from tests.vllm.conftest import VENV, Model
from tests.vllm.policies import end_of_turn, policy, with_params

pytestmark = pytest.mark.timeout(900)
OLD, NEW = "step-0", "step-1"
PROMPT = random_prompts(1, 300, 200, seed=12)[0]
TOLERANCE = 1e-3


@pytest.fixture
def updated() -> Model:
    """The weights after a training step. Nothing serves them until they are loaded."""
    return Model("tiny_updated", "")


@pytest.fixture
async def old_weights(tiny: Model, http: HttpClient) -> AsyncIterator[None]:
    """Other tests use the same server: it gets its own weights back."""
    weights = VllmWeights(http, [tiny.base_url])
    await weights.label(OLD)
    yield
    await weights.update("default", tiny.folder)


def generated_tokens(model: Model) -> float:
    with urllib.request.urlopen(f"{model.root}/metrics", timeout=30) as reply:
        lines: list[str] = re.findall(r"^vllm:generation_tokens_total\S* (\S+)$", reply.read().decode(), re.MULTILINE)
    return sum(map(float, lines))


async def wait_for_tokens(model: Model, number: float) -> None:
    async with asyncio.timeout(300):
        while await asyncio.to_thread(generated_tokens, model) < number:
            await asyncio.sleep(0.05)


def reference(folders: Mapping[str, Path], sequences: Sequence[list[int]]) -> dict[str, list[list[float]]]:
    """The logprobs of all tokens by label, computed by transformers."""
    given = {
        "folders": {label: str(folder) for label, folder in folders.items()},
        "sequences": sequences,
    }
    command = [VENV / "bin/python", Path(__file__).with_name("reference_logprobs.py")]
    run = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True)
    data: dict[str, list[list[float]]] = json.loads(run.stdout)
    return data


def differences(segments: Sequence[Segment], known: Mapping[str, list[list[float]]], label: str) -> dict[str, float]:
    """Of the tokens with this label: the largest difference from each version of the weights."""
    found = dict.fromkeys(known, 0.0)
    for number, segment in enumerate(segments):
        places = [place for place, version in enumerate(segment.version_of_tokens()) if version == label]
        for version, logprobs in known.items():
            of_version = np.array(logprobs[number])[places]
            found[version] = max(found[version], float(np.abs(segment.logprobs[places] - of_version).max(initial=0.0)))
    return found


async def rollouts_over_an_update(folder: Path, tiny: Model, weights: VllmWeights, updated: Model) -> Batch:
    """Conversations of several turns that get new weights on the way."""
    rows = [with_params(row, max_output_tokens=300) for row in example_rows("example_multi_turn_gymnasium")]
    ending = {"logit_bias": {str(end_of_turn(tiny)): 2}}  # some turns end early; raw logprobs do not know of it
    async with Collector(
        environments=["example_multi_turn_gymnasium"], config_paths=[policy(folder, tiny, extra_body=ending)]
    ) as collector:
        before = generated_tokens(tiny)
        options = BatchOptions(concurrency=20)
        running = asyncio.create_task(collect_batch(collector, rows, generations=4, options=options))
        await wait_for_tokens(tiny, before + 1000)
        await weights.update(NEW, updated.folder)
        return await running


@pytest.mark.parametrize("mode", ["keep", "abort", "wait"])
async def test_tokens_of_rollouts_in_flight_belong_to_the_weights_they_are_labelled_with(
    tiny: Model,
    updated: Model,
    old_weights: None,
    http: HttpClient,
    tmp_path: Path,
    figures: Callable[..., None],
    mode: PauseMode,
) -> None:
    versions = PolicyVersions([OLD])
    weights = VllmWeights(http, [tiny.base_url], versions=versions, mode=mode, timeout_s=300)
    batch = await rollouts_over_an_update(tmp_path, tiny, weights, updated)
    assert batch.masked() == {}
    segments = [segment for sample in batch.samples for segment in sample.segments]
    folders = {OLD: tiny.folder, NEW: updated.folder}
    known = await asyncio.to_thread(reference, folders, [segment.ids.tolist() for segment in segments])
    of_old, of_new = differences(segments, known, OLD), differences(segments, known, NEW)
    labels = [version for segment in segments for version in segment.version_of_tokens() if version]
    across = sum(set(sample.versions) == {OLD, NEW} for sample in batch.samples)
    figures(
        tokens={label: labels.count(label) for label in (OLD, NEW)},
        rollouts_with_both=across,
        worst_difference=f"{max(of_old[OLD], of_new[NEW]):.1e}",
        from_the_other_weights=f"{min(of_old[NEW], of_new[OLD]):.1f}",
    )
    assert len(labels) == sum(segment.trained for segment in segments)
    assert across > 0
    assert max(of_old[OLD], of_new[NEW]) < TOLERANCE
    assert min(of_old[NEW], of_new[OLD]) > 1.0
    assert versions.current == NEW


async def test_logprobs_after_an_update_are_those_of_the_new_weights(
    tiny: Model, updated: Model, old_weights: None, http: HttpClient
) -> None:
    asking = Asking(tiny, http)
    before = await asking.prefilled(PROMPT[:1], PROMPT[1:])
    await VllmWeights(http, [tiny.base_url]).update(NEW, updated.folder)
    after = await asking.prefilled(PROMPT[:1], PROMPT[1:])
    known = await asyncio.to_thread(reference, {OLD: tiny.folder, NEW: updated.folder}, [PROMPT])
    assert np.abs(np.array(before) - known[OLD][0][1:]).max() < TOLERANCE
    assert np.abs(np.array(after) - known[NEW][0][1:]).max() < TOLERANCE
    assert np.abs(np.array(after) - before).max() > 1.0


async def test_a_server_that_could_not_load_waits_for_weights_that_it_can(
    tiny: Model, old_weights: None, http: HttpClient, tmp_path: Path
) -> None:
    asking, versions = Asking(tiny, http), PolicyVersions([OLD])
    weights = VllmWeights(http, [tiny.base_url], versions=versions)
    before = await asking.prefilled(PROMPT[:1], PROMPT[1:])
    with pytest.raises(WeightUpdateError, match=r"/collective_rpc answered 500.* log .* stays paused"):
        await weights.update(NEW, tmp_path)
    assert versions.current == OLD
    assert is_paused(tiny)
    await weights.update(OLD, tiny.folder)
    assert await asking.prefilled(PROMPT[:1], PROMPT[1:]) == before
