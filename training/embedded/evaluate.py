"""Scores the policy as it ships, with the numpy backend, on fresh tasks of every environment and level.

PYTHONPATH=src python training/embedded/evaluate.py --tasks 48 --repeats 8
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from solutions import TEACHERS, conversation_of
from transcript import write

from gymnast.builtin.graded_tasks import last_answer, last_number, rows
from gymnast.builtin.resources_servers.number_hunt.tasks import Hunt
from gymnast.builtin.resources_servers.shop_lookup.tasks import Shop
from gymnast.builtin.responses_api_models.embedded_model.batching import Batch, Generation
from gymnast.builtin.responses_api_models.embedded_model.policy import read_tensors
from gymnast.builtin.responses_api_models.embedded_model.tokenizer import ByteLevelTokenizer
from gymnast.builtin.responses_api_models.embedded_model.transformer import Shape, Transformer
from gymnast.tokens.backend import Sampling

SHIPPED = Path(__file__).parents[2] / "src/gymnast/builtin/responses_api_models/embedded_model/weights"
SEED = 987_654_321
CONTEXT = 1024
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_STOPS = ("<|im_end|>", "<|endoftext|>")


@dataclass(slots=True, eq=False)
class Rollout:
    """One attempt: the conversation as ids, and the environment behind it."""

    row: dict[str, Any]
    ids: list[int]
    answer_tool: Callable[[str, dict[str, Any]], str]
    reward: Callable[[str], float]
    turns: int = 0
    tokens: int = 0
    finished: str | None = field(default=None)


def rollout_of(name: str, row: dict[str, Any], tokenizer: ByteLevelTokenizer) -> Rollout:
    talk = conversation_of(row)
    ids = write(tokenizer, talk.messages, talk.tools, prompt=True).ids
    if name == "number_hunt":
        game = Hunt(row["hidden"], row["budget"])
        return Rollout(row, ids, lambda _, given: game.guess(int(given["number"])), lambda _: float(game.found))
    if name == "shop_lookup":
        shop = Shop(row["prices"], row["stock"])

        def look_up(tool: str, given: dict[str, Any]) -> str:
            found = shop.look_up(tool, given["item"])
            return json.dumps({"error": f"no {given['item']} here"}) if found is None else str(found)

        return Rollout(row, ids, look_up, lambda text: float(last_number(text) == row["expected_answer"]))
    if name == "word_tasks":
        return Rollout(row, ids, refuse, lambda text: float(last_answer(text) == row["expected_answer"]))
    return Rollout(row, ids, refuse, lambda text: float(last_number(text) == row["expected_answer"]))


def refuse(tool: str, _: dict[str, Any]) -> str:
    return json.dumps({"error": f"There is no tool '{tool}'."})


def advance(rollout: Rollout, sampled: list[int], tokenizer: ByteLevelTokenizer) -> None:
    """Take a generation into the conversation; ends it, or goes on with what the tools say."""
    control = tokenizer.control_tokens
    stopped = sampled[-1] == control["<|im_end|>"]
    rollout.ids += sampled
    rollout.tokens += len(sampled)
    rollout.turns += 1
    said = tokenizer.decode(sampled[:-1] if stopped else sampled)
    calls = _CALL.findall(said)
    if not calls or not stopped or rollout.turns >= 32:
        rollout.finished = _CALL.sub("", said)
        return
    rollout.ids += tokenizer.encode("\n")
    for text in calls:
        rollout.ids += [control["<|im_start|>"], *tokenizer.encode(f"tool\n{told(rollout, text)}")]
        rollout.ids += [control["<|im_end|>"], *tokenizer.encode("\n")]
    rollout.ids += [control["<|im_start|>"], *tokenizer.encode("assistant\n")]


def told(rollout: Rollout, call: str) -> str:
    try:
        request = json.loads(call)
        return rollout.answer_tool(request["name"], request["arguments"])
    except (ValueError, KeyError, TypeError) as error:
        return json.dumps({"error": f"Invalid tool call arguments: {error}"})


def play(job: tuple[Path, str, int, int, int, int]) -> dict[str, Any]:
    """All rollouts of one environment and level."""
    weights, name, level, tasks, repeats, max_batch = job
    tokenizer = ByteLevelTokenizer.read(weights / "tokenizer.json")
    shape = Shape.from_config(json.loads((weights / "config.json").read_text()))
    batch = Batch(Transformer(shape, read_tensors(weights / "model.safetensors")), max_batch=max_batch)
    sampling = Sampling(stop_token_ids=tuple(tokenizer.control_tokens[stop] for stop in _STOPS))
    given = list(rows(TEACHERS[name][1], count=tasks, seed=SEED, levels=[level]))
    rollouts = [rollout_of(name, row, tokenizer) for row in given for _ in range(repeats)]
    running: dict[int, Rollout] = {}

    def ask(index: int, rollout: Rollout) -> None:
        room = min(400, CONTEXT - len(rollout.ids))
        generation = Generation(list(rollout.ids), sampling, hash((SEED, index, rollout.turns)) & (2**63 - 1), room)
        running[id(generation)] = rollout
        batch.add(generation)

    started = time.perf_counter()
    indexes = {id(rollout): index for index, rollout in enumerate(rollouts)}
    for index, rollout in enumerate(rollouts):
        ask(index, rollout)
    while not batch.is_idle:
        for generation in batch.step():
            rollout = running.pop(id(generation))
            advance(rollout, generation.sampled, tokenizer)
            if rollout.finished is None and len(rollout.ids) < CONTEXT - 8:
                ask(indexes[id(rollout)], rollout)
    rewards = [rollout.reward(rollout.finished or "") for rollout in rollouts]
    groups = [rewards[start : start + repeats] for start in range(0, len(rewards), repeats)]
    seconds, tokens = time.perf_counter() - started, sum(rollout.tokens for rollout in rollouts)
    return {
        "environment": name,
        "level": level,
        "mean": round(sum(rewards) / len(rewards), 4),
        "mixed_groups": round(sum(0 < sum(group) < repeats for group in groups) / len(groups), 4),
        "turns": round(sum(rollout.turns for rollout in rollouts) / len(rollouts), 2),
        "tokens": round(tokens / len(rollouts), 1),
        "tokens_per_s": round(tokens / seconds),
        "example": tokenizer.decode(rollouts[0].ids),
    }


def evaluate(weights: Path, *, tasks: int, repeats: int, workers: int, max_batch: int = 32) -> dict[str, Any]:
    """Mean rewards by environment and level, sampled at temperature 1; `mixed_groups`: tasks whose repeats differ."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    jobs = [
        (weights, name, level, tasks, repeats, max_batch)
        for name, (_, generator) in TEACHERS.items()
        for level in range(generator.levels, 0, -1)
    ]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        done = pool.map(play, jobs, chunksize=1)
    done.sort(key=lambda found: (found["environment"], found["level"]))
    examples = [found.pop("example") for found in done]
    for found in done:
        print(json.dumps(found), flush=True)
    means = {
        name: round(sum(found["mean"] for found in done if found["environment"] == name) / generator.levels, 4)
        for name, (_, generator) in TEACHERS.items()
    }
    print(json.dumps(means), flush=True)
    return {"means": means, "levels": done, "examples": examples}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=SHIPPED)
    parser.add_argument("--tasks", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, help="where the scores go, as JSON")
    options = parser.parse_args()
    scores = evaluate(options.weights, tasks=options.tasks, repeats=options.repeats, workers=options.workers)
    if options.out:
        options.out.write_text(json.dumps(scores, indent=2) + "\n")


if __name__ == "__main__":
    main()
