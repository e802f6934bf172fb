"""GRPO on the embedded policy: one file, two CPU cores, no download. Held-out reward rises while you watch.

    make .venv-train/.ready
    .venv-train/bin/python recipes/grpo_embedded.py --out runs/grpo

Tasks are sums in one turn (`arithmetic`) and questions about a shop that only its tools can answer (`shop_lookup`),
half and half. Every step asks Gymnast for some tasks, several rollouts each, gets their exact tokens and logprobs,
takes one step of AdamW on GRPO's loss (with its penalty for leaving the policy that it began from), and hands the
weights back to the policy server. Held-out tasks are only ever looked at. The curve goes to `OUT/report.html`, its
numbers to `OUT/curve.json`, the weights to `OUT/policy`.
`--shuffle-rewards` is the control: the same training on rewards that say nothing must not learn anything.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from gymnast import Collector
from gymnast.builtin.graded_tasks import Generator, rows
from gymnast.builtin.resources_servers.arithmetic.tasks import GENERATOR as ARITHMETIC
from gymnast.builtin.resources_servers.shop_lookup.tasks import GENERATOR as SHOP_LOOKUP
from gymnast.builtin.responses_api_models.embedded_model.policy import SHIPPED
from gymnast.report.learning import Curve, Point, write_learning_report
from gymnast.train import Batch, BatchOptions, Segment, advantages, collect_batch

LEVELS: dict[str, tuple[Generator, list[int]]] = {
    "arithmetic": (ARITHMETIC, [4, 5]),
    "shop_lookup": (SHOP_LOOKUP, [4, 5, 6]),
}
HELD_OUT_SEED = 1_000_003
"""No training seed and step give this one."""
EXACT = 1e-3
"""How far from 1 the importance ratios of 99% of the tokens may be: only rounding separates them, as a batch is sampled
with the weights that it trains. float32 sums in another order gave 1e-4 or less for nearly all tokens, and 1.2e-3 for
a single one, so the largest ratio of a batch would be a matter of chance."""


@dataclass(frozen=True)
class Plan:
    seed: int
    steps: int
    minutes: float | None
    tasks: int
    """Of a step; half from each environment."""
    generations: int
    learning_rate: float
    """At first; it falls to nothing over the steps."""
    clip: float
    kl: float
    """The price of each nat by which a token's distribution leaves that of the shipped policy."""
    evaluate_every: int
    held_out: int
    shuffle_rewards: bool
    out: Path


@dataclass(frozen=True)
class Example:
    """A segment with what the loss needs beside its tokens."""

    segment: Segment
    advantage: float


# --- tasks -----------------------------------------------------------------------------------------------------------


def tasks(count: int, seed: int) -> list[dict[str, Any]]:
    """As many rows of each environment, each with the agent that runs it."""
    return [
        {**row, "agent_ref": {"name": f"{name}_simple_agent"}}
        for name, (generator, levels) in LEVELS.items()
        for row in rows(generator, count=count // len(LEVELS), seed=seed, levels=levels)
    ]


# --- learning --------------------------------------------------------------------------------------------------------


def examples(batch: Batch, rng: random.Random, *, shuffled: bool) -> list[Example]:
    """Every segment of every group whose rewards differ."""
    found: list[Example] = []
    for group in batch.groups:
        rewards = group.rewards
        if shuffled:
            rewards = rewards.copy()
            rng.shuffle(rewards)
        for sample, advantage in zip(group.samples, advantages(rewards, group.trainable), strict=True):
            if advantage:
                found += [Example(segment, advantage) for segment in sample.segments]
    return found


def padded(part: list[Example], device: torch.device) -> tuple[torch.Tensor, ...]:
    """Ids, loss masks, sampled logprobs and advantages as tensors."""
    longest = max(len(example.segment.ids) for example in part)
    ids, mask, sampled = (np.zeros((len(part), longest), kind) for kind in (np.int64, np.float32, np.float32))
    for row, example in enumerate(part):
        end = len(example.segment.ids)
        ids[row, :end], mask[row, :end] = example.segment.ids, example.segment.mask
        sampled[row, :end] = example.segment.logprobs
    weights = torch.tensor([[example.advantage] for example in part])
    return tuple(tensor.to(device) for tensor in (*map(torch.from_numpy, (ids, mask, sampled)), weights))


def parts(found: list[Example], max_tokens: int = 8192) -> Iterator[list[Example]]:
    """Examples of similar length together, at most `max_tokens` tokens with padding at a time."""
    part: list[Example] = []
    for example in sorted(found, key=lambda one: len(one.segment.ids)):
        if part and (len(part) + 1) * len(example.segment.ids) > max_tokens:
            yield part
            part = []
        part.append(example)
    if part:
        yield part


def logprobs_of(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    """Of every token but the first, given those before it."""
    return torch.log_softmax(model(input_ids=ids[:, :-1]).logits, -1).gather(-1, ids[:, 1:, None])[..., 0]


class Learner:
    """The policy in torch, where it began, and its optimizer."""

    def __init__(self, plan: Plan, model: str | Path = SHIPPED, device: str = "cpu") -> None:
        self._plan = plan
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype="float32").to(device).train()
        self._reference = AutoModelForCausalLM.from_pretrained(model, dtype="float32").to(device).eval()
        self._optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=plan.learning_rate, betas=(0.9, 0.99), weight_decay=0.0
        )
        self._schedule = torch.optim.lr_scheduler.LinearLR(self._optimizer, 1.0, 0.0, total_iters=plan.steps)

    def learn(self, found: list[Example]) -> float:
        """Take one step. Returns how far from 1 the importance ratios of 99% of the tokens were."""
        total = sum(example.segment.trained for example in found)
        deviations: list[torch.Tensor] = []
        self._optimizer.zero_grad()
        for part in parts(found):
            ids, mask, sampled, advantage = padded(part, self.model.device)
            mask, sampled = mask[:, 1:], sampled[:, 1:]
            logprobs = logprobs_of(self.model, ids)
            with torch.no_grad():
                away = (logprobs_of(self._reference, ids) - logprobs.detach()) * mask
            ratio = torch.exp((logprobs - sampled) * mask)
            clipped = ratio.clamp(1 - self._plan.clip, 1 + self._plan.clip)
            gain = torch.minimum(ratio * advantage, clipped * advantage)
            penalty = self._plan.kl * (1 - torch.exp(away)) * logprobs  # its gradient is that of the k3 estimate of KL
            ((penalty - gain) * mask).sum().div(total).backward()
            deviations.append((ratio.detach() - 1).abs()[mask > 0])
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        self._schedule.step()
        return float(torch.cat(deviations).cpu().quantile(0.99))


# --- the policy ------------------------------------------------------------------------------------------------------


def save_weights(model: PreTrainedModel, folder: Path) -> None:
    tensors = {name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"}  # it is tied
    save_file(tensors, folder / "model.safetensors")


async def hand_over(model: PreTrainedModel, collector: Collector, folder: Path) -> None:
    """Let the policy server sample with the weights as they are now."""
    save_weights(model, folder)
    await collector.ask("policy_model", "/load_weights", {"path": str(folder)})


async def evaluate(
    collector: Collector,
    held_out: list[dict[str, Any]],
    step: int,
    began: float,
    options: BatchOptions | None = None,
) -> Point:
    """The mean reward on held-out tasks, two rollouts each."""
    batch = await collect_batch(collector, held_out, generations=2, options=options)
    rewards: dict[str, list[float]] = {}
    for sample in batch.samples:
        rewards.setdefault(sample.agent.removesuffix("_simple_agent"), []).append(sample.reward or 0.0)
    by_name = {name: sum(found) / len(found) for name, found in rewards.items()}
    point = Point(step, time.monotonic() - began, sum(by_name.values()) / len(by_name), by_name)
    told = "  ".join(f"{name} {value:.3f}" for name, value in by_name.items())
    print(f"step {step:3}  held-out {point.reward:.3f}  {told}  ({point.seconds / 60:.1f} min)", flush=True)
    return point


async def train(plan: Plan) -> Curve:
    torch.manual_seed(plan.seed)
    rng = random.Random(plan.seed)
    learner = Learner(plan)
    folder = plan.out / "policy"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SHIPPED / name, folder / name)
    settings = "policy_model.responses_api_models.embedded_model"
    overrides = [f"{settings}.return_token_id_information=true"]
    began = time.monotonic()
    async with Collector(environments=list(LEVELS), model_type="embedded_model", overrides=overrides) as collector:
        held_out = tasks(plan.held_out, HELD_OUT_SEED)
        points = [await evaluate(collector, held_out, 0, began)]
        for step in range(1, plan.steps + 1):
            batch_tasks = tasks(plan.tasks, 1000 * plan.seed + step)
            batch = await collect_batch(collector, batch_tasks, generations=plan.generations)
            found = examples(batch, rng, shuffled=plan.shuffle_rewards)
            deviation = await asyncio.to_thread(learner.learn, found) if found else 0.0
            assert deviation < EXACT, (
                f"sampled and computed logprobs differ: importance ratios are off by {deviation:.1e}"
            )
            await hand_over(learner.model, collector, folder)
            mean = sum(sample.reward or 0.0 for sample in batch.samples) / len(batch)
            print(
                f"step {step:3}  reward {mean:.3f}  segments {len(found):3}  ratio within {deviation:.0e}", flush=True
            )
            is_late = plan.minutes is not None and time.monotonic() - began > 60 * plan.minutes
            is_last = step == plan.steps or is_late
            if is_last or step % plan.evaluate_every == 0:
                points.append(await evaluate(collector, held_out, step, began))
                write(plan, points)
            if is_last:
                break
    return write(plan, points)


def write(plan: Plan, points: list[Point], title: str = "GRPO on the embedded policy") -> Curve:
    """The curve so far, as numbers and as a page."""
    name = f"seed {plan.seed}" + (", shuffled rewards" if plan.shuffle_rewards else "")
    curve = Curve(name, points)
    told = {"name": name, "plan": {**asdict(plan), "out": plan.out.name}, "points": [asdict(point) for point in points]}
    (plan.out / "curve.json").write_text(json.dumps(told, indent=2) + "\n")
    write_learning_report(title, [curve], plan.out / "report.html")
    return curve


def find_problem(plan: Plan, environments: int) -> str | None:
    """Why a plan cannot be trained, before anything starts."""
    least = {"steps": 1, "tasks": environments, "generations": 2, "evaluate_every": 1, "held_out": environments}
    for name, count in least.items():
        if getattr(plan, name) < count:
            why = ": with one, all advantages are 0" if name == "generations" else ""
            return f"--{name.replace('_', '-')} must be at least {count}, got {getattr(plan, name)}{why}"
    for name in ("learning_rate", "clip", "minutes"):
        value = getattr(plan, name)
        if value is not None and not 0 < value < math.inf:
            return f"--{name.replace('_', '-')} must be above 0, got {value}"
    if not 0 <= plan.kl < math.inf:
        return f"--kl must be at least 0, got {plan.kl}"
    if plan.out.exists() and not plan.out.is_dir():
        return f"--out is a file: {plan.out}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/grpo_embedded"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--minutes", type=float, help="stop after the first step that ends later; default: no limit")
    parser.add_argument("--tasks", type=int, default=16, help="of a step, half from each environment")
    parser.add_argument("--generations", type=int, default=8, help="rollouts of each task")
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--kl", type=float, default=0.2, help="price of leaving the shipped policy")
    parser.add_argument("--evaluate-every", type=int, default=15)
    parser.add_argument("--held-out", type=int, default=200, help="tasks to measure on")
    parser.add_argument("--shuffle-rewards", action="store_true", help="the control: it must not learn")
    plan = Plan(**vars(parser.parse_args()))
    if problem := find_problem(plan, len(LEVELS)):
        parser.error(problem)
    plan.out.mkdir(parents=True, exist_ok=True)
    curve = asyncio.run(train(plan))
    first, last = curve.points[0], curve.points[-1]
    print(f"held-out reward {first.reward:.3f} -> {last.reward:.3f} in {last.seconds / 60:.1f} min")
    print(f"the curve: {plan.out / 'report.html'}")


if __name__ == "__main__":
    main()
