"""How many attempts an environment scores, by the second and by the core.

    python bench/verification.py [NAME …] [--seconds 3] [--concurrency 32] [--json]

Every shipped environment with data/verifier_cases.jsonl is played with its own cases (session, tool calls, verify) in
this process; CPU time is that of this process and of everything it started. Then math_with_judge against math-verify
called directly in a process pool of as many processes as there are cores. Bar: a ratio of 0.7.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from gymnast.checks.conformance.subject import Subject, play
from gymnast.checks.environment import find_environment, open_subject
from gymnast.config.roots import BUILTIN
from gymnast.errors import UserError
from gymnast.runtime.listener import loop_factory
from gymnast.types.failure import Stage

MATH, AGENT_PARAMS = "math_with_judge", {"input": [{"role": "user", "content": "q"}]}
PAIRS, ROUNDS = 500, 7


@dataclass(frozen=True)
class Speed:
    """What was measured of one environment, or why nothing was."""

    environment: str
    verifications: int = 0
    per_second: float = 0.0
    per_core_second: float = 0.0
    problem: str | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="environments; all that ship, unless named")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    every = sorted(path.parent.parent.name for path in BUILTIN.glob("resources_servers/*/data/verifier_cases.jsonl"))
    names = options.names or every
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        speeds = [runner.run(speed_of(name, options.seconds, options.concurrency)) for name in names]
        ratio = runner.run(math_ratio(options.concurrency)) if MATH in names else None
    if options.json:
        print(json.dumps({"environments": [asdict(speed) for speed in speeds], MATH: ratio}))
        return
    print(f"{'environment':48} {'verified':>9} {'/s':>9} {'/s/core':>9}")
    for speed in speeds:
        figures = f"{speed.verifications:9} {speed.per_second:9.0f} {speed.per_core_second:9.0f}"
        print(f"{speed.environment:48} {speed.problem or figures}")
    if ratio is not None:
        print(
            f"\n{MATH}: {ratio['ours']:.0f}/s, math-verify in a process pool: {ratio['direct']:.0f}/s, "
            f"ratio {ratio['ratio']:.2f} (bar 0.7), by CPU time {ratio['cpu_ratio']:.2f}"
        )


async def speed_of(name: str, seconds: float, concurrency: int) -> Speed:
    """Play the environment's good cases over and over."""
    try:
        target = find_environment(name)
        async with open_subject(target, None) as subject:
            requests = [case.request for case in subject.cases if case.expected_reward is not None]
            if not requests:
                return Speed(name, problem="no cases with a reward")

            async def one(number: int) -> None:
                outcome = await play(subject, requests[number % len(requests)])
                assert outcome.reward is not None, outcome

            for number in range(2 * len(requests)):  # workers and sandboxes are up
                await one(number)
            done, wall_s, cpu_s = await repeated(one, seconds, concurrency)
    except (UserError, ImportError, AssertionError) as error:
        return Speed(name, problem=str(error).splitlines()[0])
    return Speed(name, done, done / wall_s, done / cpu_s)


async def repeated(one: Callable[[int], Awaitable[None]], seconds: float, concurrency: int) -> tuple[int, float, float]:
    """How often it was done, in which time, for which CPU time."""
    started, cpu, done = time.perf_counter(), cpu_of_tree(), 0

    async def again() -> None:
        nonlocal done
        while time.perf_counter() - started < seconds:
            await one(done)
            done += 1

    await asyncio.gather(*(again() for _ in range(concurrency)))
    return done, time.perf_counter() - started, cpu_of_tree() - cpu


def cpu_of_tree() -> float:
    """CPU seconds of this process and of all below it, the ended ones included."""
    total, me = 0.0, psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue
    return total


async def math_ratio(concurrency: int) -> dict[str, float]:
    """Both score the same answers on all cores, in turns; medians over the rounds, each against its neighbour."""
    rounds = [[math_pair(random.Random(f"{number}/{k}")) for k in range(PAIRS)] for number in range(ROUNDS)]
    target = find_environment(MATH)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        direct_rate(pool, rounds[0][:64])
        async with open_subject(target, None) as subject:
            await our_rate(subject, rounds[0][:64], concurrency)
            found = [(await our_rate(subject, pairs, concurrency), direct_rate(pool, pairs)) for pairs in rounds]
    wall = statistics.median(ours[0] / direct[0] for ours, direct in found)
    cpu = statistics.median(ours[1] / direct[1] for ours, direct in found)
    ours, direct = (statistics.median(pair[side][0] for pair in found) for side in (0, 1))
    return {"ours": ours, "direct": direct, "ratio": wall, "cpu_ratio": cpu}


async def our_rate(subject: Subject, pairs: list[tuple[str, str]], concurrency: int) -> tuple[float, float]:
    """Answers a second, and a second of CPU, that the environment scores."""
    waiting = iter(pairs)

    async def again() -> None:
        for expected, text in waiting:
            body = math_request(expected, text)
            verdict = await subject.calls.expect(subject.instance, "/verify", body, stage=Stage.VERIFY, validated=True)
            assert verdict["reward"] == 1.0, (expected, text)

    started, cpu = time.perf_counter(), cpu_of_tree()
    await asyncio.gather(*(again() for _ in range(concurrency)))
    return len(pairs) / (time.perf_counter() - started), len(pairs) / (cpu_of_tree() - cpu)


def math_request(expected: str, text: str) -> dict[str, Any]:
    """The body of POST /verify, as an agent sends it."""
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": [part]}
    response = {"id": "r", "created_at": 0.0, "model": "m", "object": "response", "output": [message]}
    response |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {
        "responses_create_params": AGENT_PARAMS,
        "response": response,
        "question": "q",
        "expected_answer": expected,
    }


def math_pair(rng: random.Random) -> tuple[str, str]:
    """A right answer of about a kilobyte, in one of several forms."""
    a, b = rng.randint(2, 997), rng.randint(2, 997)
    working = "\n".join(f"We have $x_{{{k}}} = {a} + {b * k}$, and so $y = {a * k}$." for k in range(20))
    expected, end = rng.choice(
        [
            (f"{a}", f"Therefore $\\boxed{{{a}}}$."),
            (f"\\frac{{{a}}}{{{b}}}", f"Therefore $$\\boxed{{\\dfrac{{{a}}}{{{b}}}}}$$"),
            (f"{a}\\sqrt{{2}}", f"The result is \\(\\boxed{{\\sqrt{{2}} \\cdot {a}}}\\)."),
            (f"{a}", f"Answer: {a}"),
            (f"{a}", f"It is {a}, and nothing else.\n\\[\\boxed{{{a}}}\\]"),
        ]
    )
    return expected, f"{working}\n{end}"


def direct_rate(pool: ProcessPoolExecutor, pairs: list[tuple[str, str]]) -> tuple[float, float]:
    """The same of math-verify in a process pool."""
    started, cpu = time.perf_counter(), cpu_of_tree()
    rewards = list(pool.map(scored_directly, pairs, chunksize=8))
    wall_s, cpu_s = time.perf_counter() - started, cpu_of_tree() - cpu
    assert all(reward == 1.0 for reward in rewards)
    return len(pairs) / wall_s, len(pairs) / cpu_s


def scored_directly(pair: tuple[str, str]) -> float:
    """math-verify as its own documentation calls it."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig  # type: ignore[import-untyped]
    from math_verify.metric import math_metric  # type: ignore[import-untyped]

    expected, text = pair
    metric = math_metric((LatexExtractionConfig(),), (ExprExtractionConfig(), LatexExtractionConfig()))
    reward, _ = metric([f"\\boxed{{{expected}}}"], [text])
    return float(reward)


if __name__ == "__main__":
    main()
