"""A small taskset of the package `verifiers` with its own harness: sums, one model call, no program to install."""

# mypy: ignore-errors
# The package is installed separately, not with Gymnast.

from collections.abc import Iterator
from typing import Any

import httpx
import verifiers.v1 as vf
from verifiers.v1.runtimes import ProgramResult


class SumData(vf.TaskData):
    """One sum."""

    answer: str


class SumTask(vf.Task[SumData]):
    """Correct if the last word of the reply is the sum."""

    @vf.reward
    async def correct(self, task: SumData, trace: vf.Trace) -> float:
        """1.0 if the reply ends with the right number."""
        words = trace.last_reply.rstrip(". ").split()
        return float(bool(words) and words[-1] == task.answer)

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        """The length of the reply in characters."""
        return float(len(trace.last_reply))


class SumTaskset(vf.Taskset[SumTask]):
    """Five sums."""

    def load(self) -> Iterator[SumTask]:
        """The tasks."""
        for a, b in ((1, 2), (3, 4), (12, 9), (25, 17), (120, 85)):
            text = f"What is {a} + {b}? End with the number."
            yield SumTask(SumData(prompt=text, answer=str(a + b)), self.config.task)


class AskOnce(vf.Harness[vf.HarnessConfig]):
    """Calls the model once, from this process."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any, *_: Any
    ) -> ProgramResult:
        """Send the task's prompt to the rollout's endpoint."""
        body = {"model": ctx.model, "messages": [{"role": "user", "content": data.prompt}]}
        async with httpx.AsyncClient(timeout=600, trust_env=False) as client:
            url = f"{endpoint.rstrip('/')}/chat/completions"
            reply = await client.post(url, json=body, headers={"authorization": f"Bearer {secret}"})
        return ProgramResult(0 if reply.is_success else 1, reply.text, "" if reply.is_success else reply.text)


__all__ = ["AskOnce", "SumTaskset"]
