"""GRPO on one GPU: transformers updates the weights, an HTTP engine samples, Gymnast is in between.

    pip install 'gymnast[tokens]' torch transformers
    python recipes/grpo_gpu.py --model HuggingFaceTB/SmolLM2-135M-Instruct --out runs/grpo_gpu

The tasks are sums (`arithmetic`). Every step asks Gymnast for tasks with several rollouts each, which the engine
(torch_engine.py, started here, on the same GPU) samples; the loss is that of grpo_embedded.py. Then the engine pauses
while it loads the new weights, which get a label; every sampled token has the label of the weights that sampled it.
The policy server is `vllm_model`: with vLLM in place of the engine only the line that loads weights differs.
Before the weights change, importance ratios must be 1: that is checked in every step, so that a token or a logprob
that belongs elsewhere ends the training. `--shuffle-rewards` is the control.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from grpo_embedded import HELD_OUT_SEED, Learner, Plan, evaluate, examples, find_problem, save_weights, write
from transformers import AutoTokenizer

from gymnast import Collector
from gymnast.builtin.graded_tasks import rows
from gymnast.builtin.resources_servers.arithmetic.tasks import GENERATOR
from gymnast.report.learning import Curve
from gymnast.train import BatchOptions, VllmWeights, collect_batch
from gymnast.wire.http_client import HttpClient, parse_target

EXACT = 2e-2
"""How far from 1 importance ratios may be before the weights have changed: float32 on both sides, in other batches."""


OPTIONS = BatchOptions(concurrency=256)
"""As many rollouts at a time as the engine computes together."""
SHOTS = ("8 + 5", 13), ("47 - 12", 35), ("4 * 6", 24)
"""Worked examples before every task: a small model would not find the format by itself, and zeros teach nothing."""


@dataclass(frozen=True)
class Setup:
    model: str
    device: str
    levels: tuple[int, ...]
    max_output_tokens: int


def tasks(setup: Setup, count: int, seed: int) -> list[dict[str, Any]]:
    """Rows of the environment, each with the examples as earlier turns."""
    shots = [
        {"role": role, "content": text}
        for term, value in SHOTS
        for role, text in (
            ("user", f"Work out {term}. End with 'Answer: ' and the number."),
            ("assistant", f"Answer: {value}"),
        )
    ]
    found = []
    for row in rows(GENERATOR, count=count, seed=seed, levels=list(setup.levels)):
        params: Any = row["responses_create_params"]
        params = {**params, "input": shots + params["input"], "max_output_tokens": setup.max_output_tokens}
        found.append({**row, "responses_create_params": params, "agent_ref": {"name": "arithmetic_simple_agent"}})
    return found


@contextmanager
def engine(setup: Setup) -> Iterator[str]:
    """The URL of an engine that runs meanwhile."""
    script = Path(__file__).with_name("torch_engine.py")
    options = ["--model", setup.model, "--device", setup.device, "--context", "1024"]
    with subprocess.Popen([sys.executable, str(script), *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("serving "):
                raise SystemExit("the engine did not start; its error is above")
            yield line.split()[1]
        finally:
            process.terminate()


async def load(http: HttpClient, url: str, folder: Path) -> None:
    """The one line that is the engine's own. With vLLM: `collective_rpc`, or a transfer between GPUs."""
    target = parse_target(f"{url.removesuffix('/v1')}/load_weights")
    body = json.dumps({"path": str(folder)}).encode()
    reply = await http.request("POST", target, (("content-type", "application/json"),), body)
    if reply.status != 200:
        raise SystemExit(f"the engine did not load the weights: {reply.body.decode()}")


async def train(plan: Plan, setup: Setup, url: str) -> Curve:
    torch.manual_seed(plan.seed)
    rng = random.Random(plan.seed)
    learner = Learner(plan, setup.model, setup.device)
    folder = plan.out.absolute() / "policy"
    folder.mkdir(parents=True, exist_ok=True)
    AutoTokenizer.from_pretrained(setup.model).save_pretrained(folder)
    learner.model.config.save_pretrained(folder)
    settings = "++policy_model.responses_api_models.vllm_model"
    overrides = [f"{settings}.return_token_id_information=true", f"{settings}.tokenizer={folder}"]
    began, points = time.monotonic(), []
    async with (
        Collector(
            environments=["arithmetic"],
            model_type="vllm_model",
            model="policy",
            model_url=url,
            overrides=overrides,
        ) as collector,
        HttpClient() as http,
    ):
        weights = VllmWeights(http, [url])
        held_out = tasks(setup, plan.held_out, HELD_OUT_SEED)
        points.append(await evaluate(collector, held_out, 0, began, OPTIONS))
        for step in range(1, plan.steps + 1):
            asked = time.monotonic()
            step_tasks = tasks(setup, plan.tasks, 1000 * plan.seed + step)
            batch = await collect_batch(collector, step_tasks, generations=plan.generations, options=OPTIONS)
            sampled = time.monotonic()
            found = examples(batch, rng, shuffled=plan.shuffle_rewards)
            furthest = await asyncio.to_thread(learner.learn, found) if found else 0.0
            if furthest > EXACT:
                raise SystemExit(f"sampled and computed logprobs differ: importance ratios are off by {furthest:.1e}")
            save_weights(learner.model, folder)
            async with weights.updating(f"step-{step}"):
                await load(http, url, folder)
            mean = sum(sample.reward or 0.0 for sample in batch.samples) / len(batch)
            print(
                f"step {step:3}  reward {mean:.3f}  segments {len(found):3}  ratio within {furthest:.0e}"
                f"  rollouts {sampled - asked:.1f} s  update {time.monotonic() - sampled:.1f} s",
                flush=True,
            )
            is_late = plan.minutes is not None and time.monotonic() - began > 60 * plan.minutes
            if is_late or step == plan.steps or step % plan.evaluate_every == 0:
                points.append(await evaluate(collector, held_out, step, began, OPTIONS))
                write(plan, points, "GRPO on one GPU")
            if is_late:
                break
    return write(plan, points, "GRPO on one GPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder, or a name that transformers knows")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--level", type=int, nargs="+", default=[1, 2], help="of the sums, from 1 to 6")
    parser.add_argument("--max-output-tokens", type=int, default=32)
    parser.add_argument("--out", type=Path, default=Path("runs/grpo_gpu"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--minutes", type=float, help="stop after the first step that ends later; default: no limit")
    parser.add_argument("--tasks", type=int, default=32, help="of a step")
    parser.add_argument("--generations", type=int, default=16, help="rollouts of each task")
    parser.add_argument("--learning-rate", type=float, default=1e-5)
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--kl", type=float, default=0.02, help="price of leaving the first policy")
    parser.add_argument("--evaluate-every", type=int, default=10)
    parser.add_argument("--held-out", type=int, default=200, help="tasks to measure on")
    parser.add_argument("--shuffle-rewards", action="store_true", help="the control: it must not learn")
    options = vars(parser.parse_args())
    setup = Setup(
        options.pop("model"), options.pop("device"), tuple(options.pop("level")), options.pop("max_output_tokens")
    )
    plan = Plan(**options)
    problem = find_problem(plan, environments=1)
    if not set(setup.levels) <= set(range(1, 7)):
        problem = f"--level must be from 1 to 6, got {' '.join(map(str, setup.levels))}"
    if setup.max_output_tokens < 1:
        problem = f"--max-output-tokens must be at least 1, got {setup.max_output_tokens}"
    if problem is not None:
        parser.error(problem)
    plan.out.mkdir(parents=True, exist_ok=True)
    with engine(setup) as url:
        curve = asyncio.run(train(plan, setup, url))
    first, last = curve.points[0], curve.points[-1]
    print(f"held-out reward {first.reward:.3f} -> {last.reward:.3f} in {last.seconds / 60:.1f} min")
    print(f"the curve: {plan.out / 'report.html'}")


if __name__ == "__main__":
    main()
