"""Rollouts without servers for tests and benches of training: records with ledgers, and whatever may happen to them."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from gymnast.errors import MissingRolloutsError
from gymnast.tokens.export import pack_ledger
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX, RolloutKey
from gymnast.types.tokens import LEDGER, ForkReason, Source, TokenCall, TokenLedger, TokenSpan

AGENT = "simulated_agent"


@dataclass(frozen=True)
class SimulatedRecord:
    """An outcome as a collector yields it."""

    key: RolloutKey
    line: bytes
    failure_kind: str | None = None


def call(
    delta: Sequence[int],
    sampled: Sequence[int],
    *,
    before: int = 0,
    parent: int | None = None,
    logprobs: Sequence[Any] | None = None,
    version: str | None = "v0",
    **more: Any,
) -> TokenCall:
    """A model call; one with a parent extends it."""
    values: dict[str, Any] = {
        "reason": ForkReason.FIRST if parent is None else ForkReason.EXTENDS,
        "delta": list(delta),
        "sources": [(Source.USER, len(delta))],
        "sampled": list(sampled),
        "logprobs": list(logprobs) if logprobs is not None else [-0.5] * len(sampled),
        "finish": "stop",
        "parent": parent,
        "keep": before,
        "logprob_mode": "raw",
        "weights": [TokenSpan(version, 0, len(sampled))] if version else [],
    }
    return TokenCall(**(values | more))


def record(
    calls: Sequence[TokenCall] | None, reward: float = 1.0, *, task: int = 0, rollout: int = 0, **more: Any
) -> bytes:
    """A scored record's line."""
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "."}]}
    fields: dict[str, Any] = {
        "responses_create_params": {"input": "question"},
        "response": {"output": [message], "incomplete_details": None, "model": "letters"},
        "reward": reward,
    }
    if calls is not None:
        fields[LEDGER] = pack_ledger(TokenLedger(list(calls), "letters"))
    fields |= {**more, "agent_ref": {"name": AGENT}, TASK_INDEX: task, ROLLOUT_INDEX: rollout}
    return orjson.dumps(fields)


def failure(kind: str, message: str = "", *, task: int = 0, rollout: int = 0, final: bool = True) -> bytes:
    """A failed attempt's line, by default of a rollout that is given up."""
    said = {"kind": kind, "message": message}
    identity = {"agent_ref": {"name": AGENT}, TASK_INDEX: task, ROLLOUT_INDEX: rollout}
    return orjson.dumps({"_ng_failure_class": kind, "_ng_failure_terminal": final, "failure": said, **identity})


def good(key: RolloutKey, *, version: str | None = "v0", turns: int = 2, tokens: int = 3, reward: float = 1.0) -> bytes:
    """A rollout of some turns that went well."""
    calls: list[TokenCall] = []
    end = 0
    for turn in range(turns):
        begun = call(
            range(10, 14), range(100, 100 + tokens), before=end, parent=turn - 1 if turn else None, version=version
        )
        calls.append(begun)
        end += 4 + tokens
    return record(calls, reward, task=key.task, rollout=key.rollout)


Act = Callable[[RolloutKey, int], bytes | str | None]
"""What becomes of a rollout the nth time it is run: a record, a failure's kind, or nothing ever."""


class Simulated:
    """Runs rows as told."""

    def __init__(self, act: Act | None = None, *, delay_s: Callable[[RolloutKey], float] | None = None) -> None:
        self._act = act or (lambda key, _: good(key, reward=float(key.rollout % 2)))
        self._delay_s = delay_s or (lambda _: 0.0)
        """Of each rollout, from the start of the run; one with an infinite delay never ends."""
        self.runs: list[list[RolloutKey]] = []
        self.ids: list[str] = []
        self.times: dict[RolloutKey, int] = {}
        self.asked: list[dict[str, Any]] = []
        self.ended = 0
        """Runs that were closed or came to their end."""

    async def run(
        self, rows: Iterable[Mapping[str, Any]], *, max_failed: int | str = 0, **asked: Any
    ) -> AsyncGenerator[tuple[dict[str, Any], SimulatedRecord]]:
        given = [dict(row) for row in rows]
        keys = [RolloutKey(row[TASK_INDEX], row[ROLLOUT_INDEX]) for row in given]
        self.runs.append(keys)
        self.ids += [str(row["_ng_rollout_id"]) for row in given]
        self.asked.append(asked)
        owed = 0
        try:
            order = sorted(zip(keys, given, strict=True), key=lambda pair: self._delay_s(pair[0]))
            began = asyncio.get_running_loop().time()
            for key, row in order:
                if self._delay_s(key) == math.inf:
                    await asyncio.Event().wait()
                wait_s = began + self._delay_s(key) - asyncio.get_running_loop().time()
                await asyncio.sleep(max(wait_s, 0.0))
                nth = self.times.get(key, 0)
                self.times[key] = nth + 1
                made = self._act(key, nth)
                if made is None:
                    owed += 1
                elif isinstance(made, str):
                    line = failure(made, f"{made} happened", task=key.task, rollout=key.rollout)
                    yield row, SimulatedRecord(key, line, made)
                else:
                    yield row, SimulatedRecord(key, made)
            if owed:
                text = f"{len(keys) - owed} of {len(keys)}\n  why it ended: the agent was out of reach for 600 s"
                raise MissingRolloutsError(text, len(keys), len(keys) - owed, {}, owed)
        finally:
            self.ended += 1


def some_tasks(number: int) -> list[dict[str, Any]]:
    """Rows without an index of their own."""
    return [{"responses_create_params": {"input": f"question {place}"}} for place in range(number)]


def shuffled_delays(seed: int = 0, longest_s: float = 0.02) -> Callable[[RolloutKey], float]:
    """Rollouts that end in another order than they were asked for."""
    return lambda key: random.Random(f"{seed}/{key}").random() * longest_s
