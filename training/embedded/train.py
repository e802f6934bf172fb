"""Trains the embedded policy from scratch and writes its weights, reference logprobs and scores.

    PYTHONPATH=src python training/embedded/train.py --device cuda --out DIR

Needs torch and numpy only. Training ends at `--steps` or `--seconds`, whichever is first, and the schedule with it.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import time
from pathlib import Path

import numpy as np
import torch
from data import SAMPLED, Tokens, generate, transcripts
from evaluate import SHIPPED, evaluate
from model import CONFIG, Llama, half_weights, load
from torch.nn import functional

from gymnast.builtin.responses_api_models.embedded_model.policy import read_tensors, write_tensors
from gymnast.builtin.responses_api_models.embedded_model.tokenizer import ByteLevelTokenizer


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--seconds", type=float, default=2000.0, help="of training at most, without data and evaluation"
    )
    parser.add_argument("--steps", type=int, default=9000)
    parser.add_argument("--tokens", type=int, default=49_152, help="of a batch")
    parser.add_argument("--rate", type=float, default=2.5e-3)
    parser.add_argument("--examples", type=int, default=4_500_000)
    parser.add_argument("--data-seconds", type=float, default=200.0)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--init", type=Path, help="a folder with model.safetensors to continue from")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--eval-tasks", type=int, default=60, help="for each environment and level")
    parser.add_argument("--eval-repeats", type=int, default=4)
    return parser.parse_args()


class Batches:
    """Random rows of one length at a time; lengths as often as they have tokens."""

    def __init__(self, buckets: dict[int, Tokens], tokens: int, device: str, seed: int) -> None:
        self.rng, self.tokens, self.device = random.Random(seed), tokens, device
        self.rows = {length: torch.from_numpy(rows.astype(np.int32)).to(device) for length, rows in buckets.items()}
        self.weights = [rows.numel() for rows in self.rows.values()]
        self.generator = torch.Generator(device=device).manual_seed(seed)

    def next(self) -> tuple[torch.Tensor, torch.Tensor]:
        length = self.rng.choices(list(self.rows), self.weights)[0]
        rows = self.rows[length]
        chosen = torch.randint(
            len(rows), (max(1, self.tokens // length),), generator=self.generator, device=self.device
        )
        batch = rows[chosen]
        ids = (batch & (SAMPLED - 1)).long()
        targets = torch.where(batch & SAMPLED > 0, ids, -100)
        return ids[:, :-1], targets[:, 1:]


def optimizer_of(model: Llama, rate: float, device: str) -> torch.optim.AdamW:
    matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    others = [parameter for parameter in model.parameters() if parameter.dim() != 2]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), eps=1e-9, fused=device == "cuda")


def train(model: Llama, batches: Batches, options: argparse.Namespace) -> int:
    """Steps until time or steps are up."""
    optimizer = optimizer_of(model, options.rate, options.device)
    forward = torch.compile(model, dynamic=False) if options.compile else model
    started, shown, losses = time.monotonic(), 0.0, torch.zeros((), device=options.device)
    log = (options.out / "train_log.txt").open("w")
    step = since = seen = 0
    while True:
        elapsed = time.monotonic() - started
        progress = max(elapsed / options.seconds, step / options.steps)
        if progress >= 1:
            break
        rate = options.rate * min(1.0, (step + 1) / 200) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids, targets = batches.next()
        with torch.autocast(options.device, torch.bfloat16, enabled=options.device == "cuda"):
            logits = forward(ids)
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-100)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses += loss.detach()
        step, since, seen = step + 1, since + 1, seen + ids.numel()
        if elapsed - shown >= 10:
            line = f"{elapsed:6.1f} s  step {step}  loss {losses.item() / since:.4f}  rate {rate:.2e}  tokens {seen:,}"
            print(line, flush=True)
            log.write(line + "\n")
            log.flush()
            shown, since = elapsed, 0
            losses.zero_()
    log.write(f"trained {step} steps, {seen} tokens, {time.monotonic() - started:.0f} s\n")
    log.close()
    return step


def write_golden(out: Path, tokenizer: ByteLevelTokenizer) -> None:
    """Logprobs of a few transcripts, by torch in 32 bits from the weights as saved."""
    model = load(CONFIG, read_tensors(out / "model.safetensors"))
    cases = []
    for tokens in transcripts(tokenizer, "golden", 12):
        ids = (tokens & (SAMPLED - 1)).astype(np.int64)
        with torch.no_grad():
            logprobs = model(torch.from_numpy(ids)[None]).log_softmax(-1)[0]
        given = logprobs[:-1].gather(1, torch.from_numpy(ids)[1:, None])[:, 0]
        cases.append({"ids": ids.tolist(), "logprobs": [round(value, 7) for value in given.tolist()]})
    (out / "golden_logprobs.json").write_text(json.dumps(cases) + "\n")


def main() -> None:
    options = arguments()
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    options.out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    path = SHIPPED / "tokenizer.json"
    buckets = generate(
        path, seed=options.seed, examples=options.examples, seconds=options.data_seconds, workers=options.workers
    )
    rows, size = sum(map(len, buckets.values())), sum(found.size for found in buckets.values())
    print(f"{rows:,} transcripts, {size:,} tokens with padding, {time.monotonic() - started:.0f} s", flush=True)
    model = load(CONFIG, read_tensors(options.init / "model.safetensors")) if options.init else Llama(CONFIG)
    model.train().to(options.device)
    print(f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters", flush=True)
    batches = Batches(buckets, options.tokens, options.device, options.seed)
    train(model, batches, options)
    write_tensors(options.out / "model.safetensors", half_weights(model))
    (options.out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if options.out.resolve() != SHIPPED.resolve():
            shutil.copy(SHIPPED / name, options.out / name)
    write_golden(options.out, ByteLevelTokenizer.read(path))
    print(f"trained and saved after {time.monotonic() - started:.0f} s", flush=True)
    if options.eval_tasks:
        scores = evaluate(options.out, tasks=options.eval_tasks, repeats=options.eval_repeats, workers=options.workers)
        (options.out / "scores.json").write_text(json.dumps(scores, indent=2) + "\n")
    print(f"done after {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
