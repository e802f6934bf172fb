"""The engine of the recipe for one GPU: what it says it sampled is what the model computes, also under new weights."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaForCausalLM

from gymnast.builtin.responses_api_models.embedded_model.policy import SHIPPED

ROOT = Path(__file__).parents[2]
PROMPTS = [[5, 9, 12, 40, 7], [8, 3], [60, 61, 62, 63, 64, 65, 66, 67, 68], [11] * 30]


def _load_recipe() -> Any:
    spec = importlib.util.spec_from_file_location("torch_engine", ROOT / "recipes" / "torch_engine.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch_engine"] = module
    spec.loader.exec_module(module)
    return module


recipe = _load_recipe()


def model() -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(SHIPPED, dtype="float32")


@pytest.fixture
def engine() -> Iterator[Any]:
    engine = recipe.Engine(model(), slots=3, context=128)
    yield engine
    engine.stop()


def logprobs(weights: LlamaForCausalLM, prompt: list[int], ids: list[int]) -> torch.Tensor:
    tokens = torch.tensor([prompt + ids])
    with torch.no_grad():
        found = torch.log_softmax(weights(input_ids=tokens[:, :-1]).logits, -1).gather(-1, tokens[:, 1:, None])
    return found[0, len(prompt) - 1 :, 0]


def sampled(choice: dict[str, Any]) -> torch.Tensor:
    return torch.tensor([entry["logprob"] for entry in choice["logprobs"]["content"]])


def test_logprobs_are_those_of_the_model_whoever_else_is_in_the_batch(engine: Any) -> None:
    """More sequences than slots, of different lengths, joining and leaving at any time."""
    sampling = [recipe.Sampling(max_tokens=4 + 7 * place, ignore_eos=True) for place in range(8)]
    replies = [engine.submit(PROMPTS[place % 4], sampling[place]) for place in range(8)]
    for place, reply in enumerate(replies):
        (choice,) = reply.result(300)["choices"]
        assert len(choice["token_ids"]) == sampling[place].max_tokens
        assert choice["finish_reason"] == "length"
        expected = logprobs(model(), PROMPTS[place % 4], choice["token_ids"])
        torch.testing.assert_close(sampled(choice), expected, atol=1e-4, rtol=0)


def test_a_seed_gives_the_same_tokens_in_any_company(engine: Any) -> None:
    sampling = recipe.Sampling(max_tokens=12, seed=3, ignore_eos=True)
    alone = engine.submit(PROMPTS[0], sampling).result(300)
    others = [engine.submit(prompt, recipe.Sampling(max_tokens=20)) for prompt in PROMPTS]
    again = engine.submit(PROMPTS[0], sampling).result(300)
    assert alone["choices"][0]["token_ids"] == again["choices"][0]["token_ids"]
    assert all(other.result(300) for other in others)


@pytest.mark.parametrize("rule", [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}])
def test_rules_that_leave_one_token_give_the_likeliest(engine: Any, rule: dict[str, Any]) -> None:
    ids = engine.submit(PROMPTS[0], recipe.Sampling(max_tokens=6, ignore_eos=True, **rule)).result(300)["choices"][0][
        "token_ids"
    ]
    with torch.no_grad():
        logits = model()(input_ids=torch.tensor([PROMPTS[0] + ids[:-1]])).logits[0, len(PROMPTS[0]) - 1 :]
    assert ids == logits.argmax(-1).tolist()


def test_generations_continue_under_new_weights_and_say_which_sampled_what(engine: Any, tmp_path: Path) -> None:
    changed = model()
    with torch.no_grad():
        for weights in changed.parameters():
            weights.add_(0.02 * torch.randn_like(weights))
    save_file(
        {name: value for name, value in changed.state_dict().items() if "lm_head" not in name},
        tmp_path / "m.safetensors",
    )
    sample = engine._sample

    def sample_and_pause(slots: list[int], inputs: list[list[int]]) -> None:
        sample(slots, inputs)
        if engine._pause is None and len(engine._slots[0].ids) == 3:
            engine._pause = "keep"

    engine._sample = sample_and_pause
    reply = engine.submit(PROMPTS[0], recipe.Sampling(max_tokens=100, ignore_eos=True))
    with engine._changed:
        assert engine._changed.wait_for(lambda: engine._is_paused, 300)
    engine.load(tmp_path)
    engine.version = "new"
    engine.resume()
    (choice,) = reply.result(300)["choices"]
    before, after = choice["weight_versions"]
    assert (before["version"], after["version"], after["end"]) == ("0", "new", 100)
    border = before["end"]
    assert border == 3
    old, new = (logprobs(weights, PROMPTS[0], choice["token_ids"]) for weights in (model(), changed))
    torch.testing.assert_close(sampled(choice)[:border], old[:border], atol=1e-4, rtol=0)
    torch.testing.assert_close(sampled(choice)[border:], new[border:], atol=1e-3, rtol=1e-3)
    assert (old[border:] - new[border:]).abs().max() > 0.01


def test_pausing_may_end_generations_or_wait_for_them(engine: Any) -> None:
    reply = engine.submit(PROMPTS[0], recipe.Sampling(max_tokens=100, ignore_eos=True))
    engine.pause("abort")
    engine.resume()
    assert reply.result(300)["choices"][0]["finish_reason"] in {"abort", "length"}
    reply = engine.submit(PROMPTS[0], recipe.Sampling(max_tokens=5, ignore_eos=True))
    engine.pause("wait")
    engine.resume()
    assert reply.result(300)["choices"][0]["finish_reason"] == "length"


def test_what_it_cannot_do_is_refused(engine: Any) -> None:
    with pytest.raises(recipe.RefusedError, match="repetition_penalty"):
        recipe.Sampling.read({"repetition_penalty": 1.2})
    with pytest.raises(recipe.RefusedError, match="maximum context length is 128 tokens"):
        engine.submit([1] * 128, recipe.Sampling())
    with pytest.raises(recipe.RefusedError, match="paused"):
        engine.load(SHIPPED)


def test_the_recipe_for_one_gpu_takes_a_step_on_a_cpu(tmp_path: Path) -> None:
    """It checks by itself that importance ratios are 1."""
    subprocess.run(
        [
            sys.executable, str(ROOT / "recipes" / "grpo_gpu.py"), "--model", str(SHIPPED), "--device", "cpu",
            "--level", "4", "--out", str(tmp_path), "--steps", "1", "--tasks", "2", "--generations", "4",
            "--held-out", "2",
        ],
        check=True,
        cwd=ROOT,
    )  # fmt: skip
    points = json.loads((tmp_path / "curve.json").read_text())["points"]
    assert [point["step"] for point in points] == [0, 1]
