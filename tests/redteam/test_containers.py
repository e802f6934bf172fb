"""The same attacks in containers, where programs share their namespaces with what watches them."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gymnast.sandbox import Sandbox, SandboxSettings, open_sandbox
from tests.helpers.container_images import podman_image
from tests.redteam.attempts import HEAD, PROGRAMS, TAIL
from tests.redteam.test_own_jail import FAILURES, HOARDERS, LEFTOVERS, QUICK, SHORT, WATCHER_ATTACKS, attack

pytestmark = pytest.mark.asyncio(loop_scope="module")
OF_THE_IMAGE = {
    "password files and homes": "the image and the engine have files of their own there",
    "what the host mounted": "as above",
    "setuid programs": "as above",
    "other processes": "the first process and its child can be seen, not read",
    "kernel parameters that the next program could read": "there is no next program: a container serves one",
    "the kernel's choice of what to kill": "as above",
    "terminals of others": "the engine mounts them",
    "files it was not given": "a session has two channels",
    "its own limits": "a session's time on the processor is limited for each step",
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def container(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sandbox]:
    with podman_image("gymnast-redteam-python", tmp_path_factory.mktemp("image")) as image:
        async with open_sandbox(SandboxSettings(driver="podman", image=image, pool_size=2)) as opened:
            yield opened


async def test_programs_are_contained(container: Sandbox) -> None:
    async with container.python_session() as session:
        for name in PROGRAMS.keys() - OF_THE_IMAGE.keys():
            result = await session.execute(HEAD + PROGRAMS[name] + TAIL, QUICK)
            assert result.ok, (name, result)
            assert "ESCAPED" not in result.stdout, (name, result)


async def test_nothing_runs_between_two_steps(container: Sandbox) -> None:
    """A thread that never waits uses no time on the processor while nothing is asked of the session."""
    async with container.python_session() as session:
        for code in ("import time", LEFTOVERS["a thread"], LEFTOVERS["a daemon"]):
            assert (await session.execute(code, QUICK)).ok
        used = "sum(map(int, open('/proc/self/stat').read().rpartition(')')[2].split()[11:13]))"
        before = await session.execute(f"({used}, time.monotonic())", QUICK)
        await asyncio.sleep(2)
        after = await session.execute(f"({used}, time.monotonic())", QUICK)
        (ticks, at), (more_ticks, later) = ast.literal_eval(before.result), ast.literal_eval(after.result)
        assert later - at >= 2
        assert more_ticks - ticks < 100, "a thread that ran would have used most of 200 ticks"
    async with container.python_session() as session:
        assert (await session.execute(HOARDERS, QUICK)).ending == "memory"


@pytest.mark.parametrize("name", WATCHER_ATTACKS)
async def test_attacks_on_what_watches_are_outcomes(container: Sandbox, name: str) -> None:
    assert (await container.run_python(attack(name), limits=SHORT)).ending in FAILURES
    assert (await container.run_python("print(1)")).ok
