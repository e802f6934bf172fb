"""A small taskset of the package `verifiers` with a harness of its own: sums, asked once, no program to install."""

# mypy: ignore-errors
# The package this is written with is installed beside Gymnast, not with it.

from collections.abc import Iterator
from typing import Any

import httpx
import verifiers.v1 as vf
from verifiers.v1.runtimes import ProgramResult


class SumData(vf.TaskData):
    """One sum."""

    answer: str


class SumTask(vf.Task[SumData]):
    """Right if the last word of the reply is the sum."""

    @vf.reward
    async def correct(self, task: SumData, trace: vf.Trace) -> float:
        """1.0 for the right number at the end."""
        words = trace.last_reply.rstrip(". ").split()
        return float(bool(words) and words[-1] == task.answer)

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        """How many characters the reply has."""
        return float(len(trace.last_reply))


class SumTaskset(vf.Taskset[SumTask]):
    """Five sums."""

    def load(self) -> Iterator[SumTask]:
        """The tasks."""
        for a, b in ((1, 2), (3, 4), (12, 9), (25, 17), (120, 85)):
            text = f"What is {a} + {b}? End with the number."
            yield SumTask(SumData(prompt=text, answer=str(a + b)), self.config.task)


class AskOnce(vf.Harness[vf.HarnessConfig]):
    """Asks the model once, from this process."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any, *_: Any
    ) -> ProgramResult:
        """Put the task's prompt to the endpoint that the package keeps for this rollout."""
        body = {"model": ctx.model, "messages": [{"role": "user", "content": data.prompt}]}
        async with httpx.AsyncClient(timeout=600) as client:
            url = f"{endpoint.rstrip('/')}/chat/completions"
            reply = await client.post(url, json=body, headers={"authorization": f"Bearer {secret}"})
        return ProgramResult(0 if reply.is_success else 1, reply.text, "" if reply.is_success else reply.text)


__all__ = ["AskOnce", "SumTaskset"]
