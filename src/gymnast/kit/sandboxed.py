"""The base class of environments that run what a model wrote: it opens their sandbox and names its failures."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Generic

from gymnast.kit.attempt import SessionT, TaskT
from gymnast.kit.environment import Environment
from gymnast.kit.sandbox import Limits, Sandbox, SandboxError, SandboxSettings, open_sandbox
from gymnast.kit.task_server import EnvironmentSettings
from gymnast.types.failure import FailureDetail, Stage, bounded
from gymnast.wire.message import Request
from gymnast.wire.server import Surroundings

_STAGES = {"/seed_session": Stage.SEED, "/verify": Stage.VERIFY, "/close_session": Stage.CLOSE}


class SandboxedSettings(EnvironmentSettings):
    """Settings of an environment with a sandbox."""

    sandbox: SandboxSettings = SandboxSettings()
    """Which driver runs the programs, and how many of them at once."""


class SandboxedEnvironment(Environment[TaskT, SessionT], Generic[TaskT, SessionT]):
    """An environment with a sandbox, open from start to stop. Authors use `self.sandbox`."""

    settings: SandboxedSettings

    def __init__(self, name: str, settings: SandboxedSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        self._resources = AsyncExitStack()
        self._sandbox: Sandbox | None = None

    @property
    def needs_sandbox(self) -> bool:
        """Whether these settings ask for it at all."""
        return True

    @property
    def sandbox(self) -> Sandbox:
        if self._sandbox is None:
            raise SandboxError(f"the sandbox of {self.name} is not open")
        return self._sandbox

    @property
    def limits(self) -> Limits:
        """What a program may use, as configured; take a copy with the deadline it needs."""
        return self.settings.sandbox.limits.limits()

    async def start(self) -> None:
        if self.needs_sandbox:
            self._sandbox = await self._resources.enter_async_context(open_sandbox(self.settings.sandbox))
        await super().start()

    async def stop(self) -> None:
        await super().stop()  # closes sessions, which may live in the sandbox
        self._sandbox = None
        await self._resources.aclose()

    def failure_for(self, request: Request, error: Exception) -> FailureDetail:
        if not isinstance(error, SandboxError):
            return super().failure_for(request, error)
        return FailureDetail(
            "sandbox_failed",
            _STAGES.get(request.path, Stage.TOOL),
            f"the sandbox of {self.name} failed at {request.path}: {bounded(str(error), 500)}",
            instance=self.name,
            status=500,
            body=bounded(repr(error)),
        )
