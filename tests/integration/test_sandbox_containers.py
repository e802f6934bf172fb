"""The container drivers against the real programs, where these are installed, on images made of the host's Python."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymnast.sandbox import Limits, SandboxSettings, open_sandbox
from tests.helpers.container_images import is_running, make_image, podman, podman_image
from tests.helpers.parts import needs, skip_without


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with podman_image("gymnast-test-python", tmp_path_factory.mktemp("image")) as name:
        yield name


async def test_podman_runs_programs_behind_the_same_interface(image: str) -> None:
    settings = SandboxSettings(driver="podman", image=image, pool_size=1)
    async with open_sandbox(settings) as sandbox:
        found = await sandbox.run_python("import os; print(os.getuid(), input())", stdin=b"hi\n")
        assert (found.ending, found.exit_code, found.stdout) == ("exited", 0, "65534 hi\n")
        hostile = (
            "import os, socket\nfor n in (2, 9, 15): os.kill(1, n)\nsocket.create_connection(('192.0.2.1', 80), 1)"
        )
        assert (await sandbox.run_python(hostile)).exit_code == 1
        assert "Read-only" in (await sandbox.run_python("open('/x', 'w')")).stderr
        assert (await sandbox.run_python("while True: pass", limits=Limits(wall_s=0.5))).ending == "timeout"
        assert (await sandbox.run_python("x = bytearray(1 << 30)")).ending == "memory"
        calls = await sandbox.call_function("def f(a): return a * 2", "f", [[1], [2]])
        assert [result.value for result in calls.results] == [2, 4]
        async with sandbox.python_session() as session:
            await session.execute("x = 3", Limits())
            assert (await session.execute("x", Limits())).result == "3"
    assert not podman("ps", "--all", "--quiet", "--filter", f"ancestor={image}").strip()


@pytest.fixture
def busy_nobody() -> Iterator[None]:
    """Hundreds of threads of the user that programs in containers run as."""
    become = "import os, threading, time\nos.setgid(65534)\nos.setuid(65534)\n"
    threads = "for _ in range(500): threading.Thread(target=time.sleep, args=(600,)).start()\nprint(flush=True)"
    process = subprocess.Popen([sys.executable, "-c", become + threads], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        yield
    finally:
        process.kill()
        process.communicate()


@needs("root")
async def test_other_processes_of_the_containers_user_do_not_count(image: str, busy_nobody: None) -> None:
    """The kernel counts all processes of a user on the host, and those of other jails belong to the same one."""
    async with open_sandbox(SandboxSettings(driver="podman", image=image, pool_size=1)) as sandbox:
        assert (await sandbox.run_python("print(1)")).stdout == "1\n"
        many = "import os, time\nfor _ in range(1000):\n    if not os.fork(): time.sleep(600)"
        limited = await sandbox.run_python(many, limits=Limits(wall_s=60.0, processes=32))
        assert limited.ending != "timeout"
        assert (limited.ending, limited.exit_code) != ("exited", 0)


async def test_docker_runs_a_program() -> None:
    if not is_running("docker"):
        skip_without("a Docker engine")
    async with open_sandbox(SandboxSettings(driver="docker", pool_size=1)) as sandbox:
        assert (await sandbox.run_python("print(1)")).stdout == "1\n"


@needs("Apptainer")
async def test_apptainer_runs_a_program(tmp_path: Path) -> None:
    folder = tmp_path / "image"
    folder.mkdir()
    with tarfile.open(make_image(tmp_path)) as archive:
        archive.extractall(folder)
    async with open_sandbox(SandboxSettings(driver="apptainer", image=str(folder), pool_size=1)) as sandbox:
        assert (await sandbox.run_python("print(1)")).stdout == "1\n"
