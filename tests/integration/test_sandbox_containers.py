"""The container drivers against the real programs, where these are installed, on images made of the host's Python."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymnast.sandbox import Limits, SandboxSettings, open_sandbox
from tests.helpers.parts import needs, skip_without

SYSTEM_PYTHON = Path("/usr/bin/python3")
IMAGE = "localhost/gymnast-test-python"
NOT_NEEDED = re.compile(r"/test|/config-|/(__pycache__|ensurepip|idlelib|lib2to3|pydoc_data|tkinter|turtledemo)(/|$)")
"""Parts of the standard library that only make an image large."""


def _runs(program: str) -> bool:
    if shutil.which(program) is None:
        return False
    return subprocess.run([program, "info"], capture_output=True, check=False).returncode == 0


def _podman(*words: str, check: bool = True) -> str:
    return subprocess.run(["podman", *words], capture_output=True, check=check, text=True).stdout


def _image(folder: Path) -> Path:
    """The system's Python with its libraries, as an archive of a root file system."""
    real = SYSTEM_PYTHON.resolve()
    library = Path(f"/usr/lib/{real.name}")
    binaries = [real, *library.glob("lib-dynload/*.so")]
    linked = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=True).stdout
    with tarfile.open(folder / "image.tar", "w") as archive:
        for name in ("bin", "lib", "lib64"):
            if Path("/", name).is_symlink():
                archive.add(f"/{name}")
        archive.add(str(real), SYSTEM_PYTHON.as_posix())
        archive.add(library, filter=lambda item: None if NOT_NEEDED.search(item.name) else item)
        for path in sorted(set(re.findall(r"(/\S+\.so\S*) \(", linked))):
            resolved = Path(path).resolve()
            archive.add(str(resolved), str(Path(path).parent.resolve() / Path(path).name))
    return folder / "image.tar"


@pytest.fixture(scope="module")
def podman_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not _runs("podman"):
        skip_without("podman")
    if not SYSTEM_PYTHON.exists():
        skip_without("podman", "no system Python to make an image of")
    archive = _image(tmp_path_factory.mktemp("image"))
    _podman("import", str(archive), IMAGE)
    yield IMAGE
    _podman("rmi", "--force", IMAGE, check=False)


async def test_podman_runs_programs_behind_the_same_interface(podman_image: str) -> None:
    settings = SandboxSettings(driver="podman", image=podman_image, pool_size=1)
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
    assert "gymnast" not in _podman("ps", "--all", "--format", "{{.Names}}")


async def test_docker_runs_a_program() -> None:
    if not _runs("docker"):
        skip_without("a Docker engine")
    async with open_sandbox(SandboxSettings(driver="docker", pool_size=1)) as sandbox:
        assert (await sandbox.run_python("print(1)")).stdout == "1\n"


@needs("Apptainer")
async def test_apptainer_runs_a_program(tmp_path: Path) -> None:
    folder = tmp_path / "image"
    folder.mkdir()
    with tarfile.open(_image(tmp_path)) as archive:
        archive.extractall(folder)
    async with open_sandbox(SandboxSettings(driver="apptainer", image=str(folder), pool_size=1)) as sandbox:
        assert (await sandbox.run_python("print(1)")).stdout == "1\n"
