"""Commands behind walls: they reach the policy and their own folder, and nothing else of the machine."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gymnast.errors import UserError
from gymnast.sandbox.command_jail import CommandSandboxSettings, open_command_jail
from tests.helpers.command_worlds import CLIENT, World
from tests.helpers.parts import needs

pytestmark = needs("bubblewrap")
PYTHON = str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())
WALLS = {"read_only": [str(Path(sys.base_prefix).resolve())]}


@pytest.fixture
def folder() -> Any:
    """Where every user may enter: root starts jails as nobody."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def walled(stack: AsyncExitStack, folder: Path, program: str, replies: list[Any], **settings: Any) -> World:
    command = [PYTHON, "-c", CLIENT + program]
    world = World(folder, "", replies, **{"command": command, "sandbox": WALLS, **settings})
    await world.agent.start()
    stack.push_async_callback(world.agent.stop)
    return world


async def test_a_command_in_the_sandbox_asks_the_policy_and_writes_its_answer(
    stack: AsyncExitStack, folder: Path
) -> None:
    program = """
said = chat([user(sys.stdin.read())])["content"]
open("notes.txt", "w").write("mine")
open(os.environ["GYMNAST_ANSWER_FILE"], "w").write(said + " " + str(os.getuid()))
"""
    world = await walled(stack, folder, program, ["the answer"], answer_from="file")
    await world.record()
    assert world.sums.last_text == "the answer 65534"
    assert not list(world.scratch.iterdir())


@pytest.mark.parametrize(
    "attempt",
    [
        "open('/etc/shadow').read()",
        "os.listdir(os.path.join('/root', '.ssh'))",
        "open('/usr/marker', 'w')",
        "open('/var/tmp/marker', 'w')",
        "os.kill(os.getppid() if os.getppid() > 1 else 999999, 9)",
        "os.mkdir('/marker')",
        f"open({str(Path(__file__).resolve())!r}).read()",
        "os.setuid(0)",
    ],
)
async def test_what_is_not_its_own_it_does_not_reach(stack: AsyncExitStack, folder: Path, attempt: str) -> None:
    program = f"""
try:
    {attempt}
    said = "reached"
except OSError as error:
    said = "refused"
chat([user("hi")])
print(said)
"""
    world = await walled(stack, folder, program, ["ok"], answer_from="stdout")
    await world.record()
    assert world.sums.last_text == "refused\n"


async def test_a_command_in_the_sandbox_is_ended_with_what_it_started(stack: AsyncExitStack, folder: Path) -> None:
    program = """
chat([user("hi")])
import subprocess, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
time.sleep(600)
"""
    world = await walled(stack, folder, program, ["ok"], timeout_s=1)
    failure = await world.failure()
    assert failure.kind == "agent_timeout"


def test_a_working_folder_of_another_users_is_refused(folder: Path) -> None:
    with pytest.raises(ValidationError, match="its own fresh folder"):
        World(folder, "", ["x"], sandbox=WALLS, working_dir="/var/tmp")


async def test_a_folder_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(UserError, match="missing is not a directory"):
        await open_command_jail(CommandSandboxSettings(read_only=(folder / "missing",)))
