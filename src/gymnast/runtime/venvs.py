"""Virtual environments for instances that bring their own requirements.

Built once for a given content of the requirements, interpreter and Gymnast; laid over the parent's packages, so that
Gymnast itself need not be installed again; rebuilt when broken.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
import shutil
import site
import sys
import tomllib
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from gymnast.errors import StartError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BUILD_TIMEOUT_S: Final = 1800.0
_OURS: Final = frozenset({"gymnast", "nemo-gym"})
_COMMENT: Final = re.compile(r"(^|\s)#.*")
"""As pip has it: a `#` inside of a URL is none."""
_EDITABLE: Final = re.compile(r"^(-e|--editable)[ =]*")
_INCLUDED: Final = re.compile(r"(?:-r|--requirement)[ =]*(.+)")
_WITH_PATH: Final = frozenset({"-e", "--editable", "-c", "--constraint"})
_MARKER: Final = "gymnast-complete"
_FIRST_PIP_FOR_OTHERS: Final = Version("22.3")
"""The first with `--python`."""


def requirement_lines(folder: Path) -> list[str]:
    """What a server's folder asks for, without the lines that stand for the framework itself."""
    listed = folder / "requirements.txt"
    project = folder / "pyproject.toml"
    if listed.exists():
        lines = _listed(listed)
    elif project.exists():
        lines = list(tomllib.loads(project.read_text()).get("project", {}).get("dependencies", []))
    else:
        return []
    return [_standing_alone(line, folder) for line in lines if line and not _is_framework(line, folder)]


def _listed(file: Path) -> list[str]:
    """The lines of a requirements file and of those that it includes."""
    found: list[str] = []
    for line in file.read_text().replace("\\\n", " ").splitlines():
        asked = _COMMENT.sub("", line).strip()
        included = _INCLUDED.match(asked)
        found += _listed(file.parent / included[1]) if included else [asked]
    return found


def _is_framework(line: str, folder: Path) -> bool:
    """A line such as `-e nemo-gym[dev] @ ../../`, or the checkout itself."""
    asked = _EDITABLE.sub("", line)
    is_checkout = asked.startswith("..") and (folder / asked.split("[")[0]).resolve() == folder.resolve().parent.parent
    return is_checkout or _name(asked) in _OURS


def _standing_alone(line: str, folder: Path) -> str:
    """A line without paths that are meant from the server's folder: the installer is not run there."""
    option, space, asked = line.partition(" ")
    if option in _WITH_PATH and (folder / asked.strip()).exists():
        return f"{option}{space}{(folder / asked.strip()).resolve()}"
    return str((folder / line).resolve()) if line.startswith(("./", "../")) else line


def unmet(folder: Path) -> list[str]:
    """The requirements of a folder that this interpreter's packages do not satisfy."""
    return [line for line in requirement_lines(folder) if not _is_met(line)]


async def ensure_venv(folder: Path, cache_dir: Path, log: Path) -> Path:
    """The python of a virtual environment with the folder's requirements. Builds it if it is not there or broken."""
    lines = requirement_lines(folder)
    home = cache_dir / "venvs" / _key(lines)
    python = home / "bin" / "python"
    home.parent.mkdir(parents=True, exist_ok=True)
    async with _locked(home.with_suffix(".lock")):
        if (home / _MARKER).exists() and await _works(python):
            return python
        shutil.rmtree(home, ignore_errors=True)
        await _build(home, lines, log)
        (home / _MARKER).touch()
    return python


async def _build(home: Path, lines: list[str], log: Path) -> None:
    wanted = home.with_suffix(".txt")
    wanted.write_text("\n".join(lines) + "\n")
    make, install = _commands(home, wanted)
    for command in (make, install) if lines else (make,):
        await _run(command, log)
    packages = next((home / "lib").glob("python*/site-packages"))
    # Processed after the venv's own packages, so those win; `addsitedir` also honours editable installs.
    text = "".join(f"import site; site.addsitedir({parent!r})\n" for parent in _parent_packages())
    (packages / "gymnast_parent.pth").write_text(text)


def _commands(home: Path, wanted: Path) -> tuple[list[str], list[str]]:
    """How to make a virtual environment, and how to install what is wanted into it."""
    uv, python = shutil.which("uv"), str(home / "bin" / "python")
    if uv:
        return (
            [uv, "venv", "--quiet", "--python", sys.executable, str(home)],
            [uv, "pip", "install", "--quiet", "--python", python, "-r", str(wanted)],
        )
    make = [sys.executable, "-m", "venv", str(home)]
    install = ["install", "--quiet", "--disable-pip-version-check", "-r", str(wanted)]
    if _has_pip_for_others():  # to give a venv a pip of its own takes seconds
        return [*make, "--without-pip"], [sys.executable, "-m", "pip", "--python", python, *install]
    return make, [python, "-m", "pip", *install]


def _has_pip_for_others() -> bool:
    """Whether our own pip can install into another environment."""
    try:
        return Version(metadata.version("pip")) >= _FIRST_PIP_FOR_OTHERS
    except metadata.PackageNotFoundError:
        return False


async def _run(command: list[str], log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out
        )
        try:
            async with asyncio.timeout(BUILD_TIMEOUT_S):
                code = await process.wait()
        except BaseException:
            process.kill()
            await process.wait()
            raise
    if code != 0:
        raise StartError(
            f"building a virtual environment failed: {Path(command[0]).name} ended with code {code}",
            where=str(log),
            next="last lines: " + tail(log, 5),
        )


def tail(log: Path, lines: int) -> str:
    """The last lines of a log, or a note that there are none."""
    try:
        size = log.stat().st_size
        with log.open("rb") as stream:
            stream.seek(max(0, size - 64 * 1024))
            text = stream.read().decode("utf-8", errors="replace")
    except OSError:
        return "(no log)"
    kept = [line for line in text.splitlines() if line.strip()][-lines:]
    return "\n".join(kept) or "(the log is empty)"


async def _works(python: Path) -> bool:
    try:
        process = await asyncio.create_subprocess_exec(
            str(python), "-c", "import gymnast", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
    except OSError:
        return False
    return await process.wait() == 0


def _key(lines: list[str]) -> str:
    content = "\n".join([sys.version, sys.prefix, metadata.version("gymnast"), *sorted(lines)])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _parent_packages() -> list[str]:
    return [path for path in site.getsitepackages() if os.path.isdir(path)]  # noqa: PTH112 - strings in, strings out


@asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    """One builder at a time; others wait, without blocking the loop, and then find it built."""
    with path.open("w") as stream:
        async with asyncio.timeout(BUILD_TIMEOUT_S):
            while True:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.2)
        yield


def _name(line: str) -> str:
    match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""


def _is_met(line: str) -> bool:
    try:
        wanted = Requirement(line)
    except InvalidRequirement:
        return False  # an option or a URL: only an installer can tell
    if wanted.marker is not None and not wanted.marker.evaluate():
        return True
    try:
        return wanted.specifier.contains(metadata.version(wanted.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False
