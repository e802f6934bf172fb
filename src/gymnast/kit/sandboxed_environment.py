"""The base class of environments that run model-written code: opens their sandbox and classifies its failures."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Generic

from gymnast.kit.attempt import SessionT, TaskT
from gymnast.kit.environment import Environment
from gymnast.kit.task_server import EnvironmentSettings
from gymnast.sandbox import Limits, Sandbox, SandboxError, SandboxSettings, open_sandbox
from gymnast.types.encoding import show
from gymnast.types.failure import BODY_LIMIT, FailureDetail, FailureKind, Stage, message_of
from gymnast.wire.message import Request
from gymnast.wire.server import ServerContext

_STAGES = {"/seed_session": Stage.SEED, "/verify": Stage.VERIFY, "/close_session": Stage.CLOSE}


class SandboxedSettings(EnvironmentSettings):
    """Settings of an environment with a sandbox."""

    sandbox: SandboxSettings = SandboxSettings()
    """The sandbox's driver, size and limits."""


class SandboxedEnvironment(Environment[TaskT, SessionT], Generic[TaskT, SessionT]):
    """An environment with a sandbox, open from start to stop. Authors use `self.sandbox`."""

    settings: SandboxedSettings

    def __init__(self, name: str, settings: SandboxedSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._resources = AsyncExitStack()
        self._sandbox: Sandbox | None = None

    @property
    def needs_sandbox(self) -> bool:
        """Whether the settings require a sandbox."""
        return True

    @property
    def sandbox(self) -> Sandbox:
        if self._sandbox is None:
            raise SandboxError(f"the sandbox of {self.name} is not open")
        return self._sandbox

    @property
    def limits(self) -> Limits:
        """The configured limits of a program; `dataclasses.replace` them to set a deadline."""
        return self.settings.sandbox.limits.limits()

    async def start(self) -> None:
        if self.needs_sandbox:
            self._sandbox = await self._resources.enter_async_context(open_sandbox(self.settings.sandbox))
        await super().start()

    async def stop(self) -> None:
        await super().stop()  # closes sessions, which may use the sandbox
        self._sandbox = None
        await self._resources.aclose()

    def failure_for(self, request: Request, error: Exception) -> FailureDetail:
        if not isinstance(error, SandboxError):
            return super().failure_for(request, error)
        return FailureDetail(
            FailureKind.SANDBOX_FAILED,
            _STAGES.get(request.path, Stage.TOOL),
            f"the sandbox of {self.name} failed at {request.path}: {message_of(error, 500)}",
            instance=self.name,
            status=500,
            body=show(error, BODY_LIMIT),
        )
