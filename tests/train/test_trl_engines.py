"""TRL's trainer on an HTTP engine that speaks vLLM's API, for five steps: as a server of its own that is told of each
step's weights, and in the trainer's process on the very weights that are trained.

The engine is that of the recipe for one GPU (recipes/torch_engine.py); with vLLM only the line that loads weights
differs.
"""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer, LlamaForCausalLM

from gymnast import Collector
from gymnast.runtime.listener import Listener
from gymnast.runtime.ports import bind_socket
from gymnast.train import VllmWeights
from gymnast.train.trl_rollouts import TrlRollouts
from gymnast.wire.http_client import HttpClient, parse_target
from tests.helpers.train_tasks import ENVIRONMENTS, shop_tasks, sum_tasks
from tests.train.test_torch_engine import ROOT, recipe
from tests.train.test_trl import Recorded, Watched, alternating, arguments, assert_exact

STEPS = 5
_MODEL = "++policy_model.responses_api_models.vllm_model"
Update = Callable[[Any, int], None]
"""Called before each step's rollouts with the trainer and the step's number."""


@contextmanager
def server(model: LlamaForCausalLM, folder: Path) -> Iterator[tuple[str, Update]]:
    """An engine in a process of its own: weights go there through a folder, between pause and resume."""
    script = ROOT / "recipes" / "torch_engine.py"
    command = [sys.executable, str(script), "--model", str(folder), "--device", "cpu", "--context", "1024"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = next(line.split()[1] for line in process.stdout if line.startswith("serving "))

            async def load(step: int) -> None:
                target = parse_target(f"{url.removesuffix('/v1')}/load_weights")
                body = json.dumps({"path": str(folder)}).encode()
                async with HttpClient() as http, VllmWeights(http, [url]).updating(f"step-{step}"):
                    reply = await http.request("POST", target, (("content-type", "application/json"),), body)
                    assert reply.status == 200, reply.body

            def update(trainer: Any, step: int) -> None:
                state = trainer.model.state_dict()
                state.pop("lm_head.weight")  # tied
                save_file(state, folder / "model.safetensors")
                asyncio.run(load(step))

            yield url, update
        finally:
            process.terminate()


@contextmanager
def colocated(model: LlamaForCausalLM, folder: Path) -> Iterator[tuple[str, Update]]:
    """An engine that samples from the tensors that the trainer changes: only the label has to follow.

    Its model has modules of its own: the trainer turns off the cache of its.
    """
    twin = LlamaForCausalLM.from_pretrained(folder, dtype="float32").eval()
    twin.load_state_dict(model.state_dict(), assign=True)
    engine = recipe.Engine(twin, slots=32, context=1024)
    ready, stop, urls = threading.Event(), asyncio.Event(), []

    async def serve() -> None:
        listening = bind_socket("127.0.0.1", 0, what="engine", hint="")
        async with Listener(recipe.Api(engine, "policy"), listening) as listener:
            urls.append(f"{listener.url}/v1")
            ready.set()
            await stop.wait()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(300)

    def update(_: Any, step: int) -> None:
        engine.version = f"step-{step}"

    try:
        yield urls[0], update
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(300)
        loop.close()
        engine.stop()


class Compared(Recorded):
    """Compares the logprobs of sampling with those that the trainer's weights give the same tokens."""

    def rollout(self, prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        found = super().rollout(prompts, trainer)
        rows = zip(found["prompt_ids"], found["completion_ids"], found["env_mask"], found["logprobs"], strict=True)
        for prompt, ids, mask, logprobs in rows:
            tokens = torch.tensor([[*prompt, *ids]])
            with torch.no_grad():
                logits = trainer.model(input_ids=tokens[:, :-1]).logits[0, len(prompt) - 1 :]
            own = torch.log_softmax(logits.float(), -1).gather(-1, tokens[0, len(prompt) :, None])[:, 0]
            sampled = torch.tensor(mask, dtype=torch.bool)
            torch.testing.assert_close(own[sampled], torch.tensor(logprobs)[sampled], atol=1e-3, rtol=0.0)
        return found


@pytest.mark.parametrize("engine", [server, colocated])
def test_five_steps_on_an_http_engine(engine: Any, tmp_path: Path, policy_folder: Path) -> None:
    folder = Path(shutil.copytree(policy_folder, tmp_path / "policy"))
    model = LlamaForCausalLM.from_pretrained(policy_folder, dtype="float32")
    steps: list[int] = []
    with engine(model, folder) as (url, update):
        tokens = [f"{_MODEL}.return_token_id_information=true", f"{_MODEL}.tokenizer={policy_folder}"]
        collector = Collector(
            environments=ENVIRONMENTS, model_type="vllm_model", model="policy", model_url=url, overrides=tokens
        )

        def before(trainer: Any, _: TrlRollouts) -> None:
            steps.append(trainer.state.global_step)
            update(trainer, trainer.state.global_step)

        with Compared(collector, [*shop_tasks(6), *sum_tasks(6)], before=before) as rollouts:
            trainer = Watched(
                model=model,
                reward_funcs=[rollouts.reward, alternating],
                args=arguments(tmp_path / "out", max_steps=STEPS),
                train_dataset=rollouts.dataset(),
                processing_class=AutoTokenizer.from_pretrained(policy_folder),
                rollout_func=rollouts.rollout,
            )
            trainer.train()
    assert (trainer.state.global_step, steps) == (STEPS, list(range(STEPS)))
    assert_exact(rollouts, trainer)
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logged) == STEPS
    assert all(math.isfinite(entry["loss"]) for entry in logged)
    assert all(entry["gymnast/drift_rate"] == 0.0 for entry in logged)
    assert all(entry["gymnast/versions_per_rollout/max"] == 1.0 for entry in logged)
    assert max(entry["gymnast/turns_per_sample/max"] for entry in logged) > 1
