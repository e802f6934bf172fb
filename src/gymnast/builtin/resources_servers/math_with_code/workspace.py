"""The Python interpreter of a rollout: started at the first call, replaced after it was killed."""

from __future__ import annotations

from contextlib import AsyncExitStack

from gymnast.kit import Execution, Limits, PythonSession, Sandbox


class Workspace:
    """The interpreter of a rollout. A rollout that never uses it costs nothing."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._resources = AsyncExitStack()
        self._python: PythonSession | None = None

    async def execute(self, code: str, limits: Limits) -> Execution:
        """Run code in the interpreter of the rollout's earlier calls."""
        python = self._python
        if python is None or not python.alive:
            await self.close()
            self._python = python = await self._resources.enter_async_context(self._sandbox.python_session())
        return await python.execute(code, limits)

    @property
    def is_lost(self) -> bool:
        """Whether there was an interpreter and its variables are gone."""
        return self._python is not None and not self._python.alive

    async def close(self) -> None:
        self._python = None
        resources, self._resources = self._resources, AsyncExitStack()
        await resources.aclose()
