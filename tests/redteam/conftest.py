"""One sandbox for every hostile program of a file: what one breaks, the next one shows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from gymnast.sandbox import Sandbox, SandboxSettings, open_sandbox


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared() -> AsyncIterator[Sandbox]:
    async with open_sandbox(SandboxSettings(pool_size=2)) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(shared: Sandbox) -> AsyncIterator[Sandbox]:
    yield shared
    for _ in range(2):
        after = await shared.run_python("print(sum(range(10)))")
        assert (after.ending, after.exit_code, after.stdout) == ("exited", 0, "45\n"), "the jail was harmed"
