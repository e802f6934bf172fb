"""Images for container programs, made of the host's Python: nothing is downloaded."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.parts import skip_without

SYSTEM_PYTHON = Path("/usr/bin/python3")
NOT_NEEDED = re.compile(r"/test|/config-|/(__pycache__|ensurepip|idlelib|lib2to3|pydoc_data|tkinter|turtledemo)(/|$)")
"""Parts of the standard library that only make an image large."""


def is_running(program: str) -> bool:
    """Whether a container program is installed and its engine answers."""
    if shutil.which(program) is None:
        return False
    return subprocess.run([program, "info"], capture_output=True, check=False).returncode == 0


def podman(*words: str, check: bool = True) -> str:
    return subprocess.run(["podman", *words], capture_output=True, check=check, text=True).stdout


def make_image(folder: Path) -> Path:
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


@contextmanager
def podman_image(name: str, folder: Path) -> Iterator[str]:
    """An image for Podman for as long as a test needs it."""
    if not is_running("podman"):
        skip_without("podman")
    if not SYSTEM_PYTHON.exists():
        skip_without("podman", "no system Python to make an image of")
    image = f"localhost/{name}-{os.getpid()}"  # tests of one module may run in several processes
    podman("import", str(make_image(folder)), image)
    try:
        yield image
    finally:
        podman("rmi", "--force", image, check=False)
