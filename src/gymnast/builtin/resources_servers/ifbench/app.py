"""IFBench: answers that must follow verifiable instructions which models were not trained on."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal

from pydantic import AliasChoices, Field, PositiveFloat, PositiveInt

from gymnast.kit import (
    Attempt,
    Environment,
    EnvironmentSettings,
    JsonObject,
    ProcessPool,
    ServerContext,
    Task,
    UserError,
    Verdict,
)


class IFBenchSettings(EnvironmentSettings):
    grading: Literal["loose", "strict"] = "loose"
    """Which of the two decides the reward. Published figures are loose, and both are in the record."""
    verify_processes: PositiveInt = 2
    verify_cpu_s: PositiveFloat = 60.0
    """CPU time for the checks of one answer."""


class IFBenchTask(Task):
    prompt: str
    instruction_id_list: list[str]
    arguments: list[dict[str, Any] | None] = Field(validation_alias=AliasChoices("kwargs"))
    key: str | int | None = None

    def unscorable_reason(self, params: JsonObject) -> str | None:
        if self.instruction_id_list and len(self.instruction_id_list) == len(self.arguments):
            return None
        return "instruction_id_list and kwargs must have the same length, at least 1"


class IFBenchVerdict(Verdict):
    strict: list[bool]
    """Per instruction."""
    loose: list[bool]
    follows_all_strictly: bool
    follows_all_loosely: bool


class IFBench(Environment[IFBenchTask, None]):
    """Scores one answer; no session, no tools."""

    settings: IFBenchSettings

    def __init__(self, name: str, settings: IFBenchSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._pool = self.own_pool(
            ProcessPool(
                "gymnast.builtin.resources_servers.ifbench.checking:check_all",
                size=settings.verify_processes,
                cpu_s=settings.verify_cpu_s,
            )
        )

    async def start(self) -> None:
        if find_spec("ifbench") is None:
            hint = "pip install git+https://github.com/allenai/IFBench"
            raise UserError(f"{self.name} needs the package 'ifbench' of the benchmark's authors", next=hint)
        await super().start()

    async def verify(self, attempt: Attempt[IFBenchTask, None]) -> IFBenchVerdict:
        task = attempt.task
        checked = await self._pool.call(attempt.last_text, task.prompt, task.instruction_id_list, task.arguments)
        follows = {grading: all(checked[grading]) for grading in ("strict", "loose")}
        return IFBenchVerdict(
            reward=float(follows[self.settings.grading]),
            strict=checked["strict"],
            loose=checked["loose"],
            follows_all_strictly=follows["strict"],
            follows_all_loosely=follows["loose"],
        )
