"""Virtual environments for instances with their own requirements.

Cached by the requirements, the interpreter and the version of Gymnast. They fall back to the parent's packages, so that
Gymnast itself is not installed again. A broken one is rebuilt.
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
from typing import TYPE_CHECKING, Any, Final

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from gymnast.errors import StartError
from gymnast.runtime.expected_packages import SURFACE, find_missing_imports, installed_requirements

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from packaging.specifiers import SpecifierSet

BUILD_TIMEOUT_S: Final = 1800.0
_FRAMEWORKS: Final = frozenset({"gymnast", "nemo-gym"})
_ROOTS: Final = ("gymnast", SURFACE)
_COMMENT: Final = re.compile(r"(^|\s)#.*")
"""As in pip: a `#` inside a URL does not start a comment."""
_EDITABLE: Final = re.compile(r"^(-e|--editable)[ =]*")
_INCLUDED: Final = re.compile(r"(?:-r|--requirement)[ =]*(.+)")
_WITH_PATH: Final = frozenset({"-e", "--editable", "-c", "--constraint"})
_ALWAYS: Final = "python_version > '0'"
_OVERRIDES: Final = "overrides.txt"
"""Versions that uv installs whatever packages say, next to a server's requirements."""
_MARKER: Final = "gymnast-complete"
_FIRST_PIP_FOR_OTHERS: Final = Version("22.3")
"""The first with `--python`."""


def requirement_lines(folder: Path) -> list[str]:
    """The requirements in a server's directory, without those for the framework itself."""
    requirements = folder / "requirements.txt"
    project = folder / "pyproject.toml"
    if requirements.exists():
        lines = _read_requirements(requirements)
    elif project.exists():
        lines = _read_project(project)
    else:
        return []
    return [_resolve_paths(line, folder) for line in lines if line and not _is_framework(line, folder)]


def _read_requirements(file: Path) -> list[str]:
    """The lines of a requirements file and of the files that it includes."""
    lines: list[str] = []
    for text in file.read_text().replace("\\\n", " ").splitlines():
        line = _COMMENT.sub("", text).strip()
        included = _INCLUDED.match(line)
        lines += _read_requirements(file.parent / included[1]) if included else [line]
    return lines


def _read_project(file: Path) -> list[str]:
    """The dependencies of a project, each from the source that its `tool.uv.sources` names, if any."""
    content = tomllib.loads(file.read_text())
    sources = {_package_name(name): source for name, source in _table(content, "tool", "uv", "sources").items()}
    lines = _table(content, "project").get("dependencies", [])
    return [
        line if _package_name(line) in _FRAMEWORKS else _from_source(line, sources.get(_package_name(line)))
        for line in lines
    ]


def _uv_settings(folder: Path) -> list[str]:
    """What decides which versions uv installs: `tool.uv` of a server's project beyond its sources, and overrides."""
    project, overrides = folder / "pyproject.toml", folder / _OVERRIDES
    content = tomllib.loads(project.read_text()) if project.exists() else {}
    settings = [f"{key}={value}" for key, value in _table(content, "tool", "uv").items() if key != "sources"]
    return [*settings, overrides.read_text()] if overrides.exists() else settings


def _table(content: dict[str, Any], *keys: str) -> dict[str, Any]:
    for key in keys:
        content = content.get(key, {})
    return content


def _from_source(line: str, source: dict[str, Any] | list[dict[str, Any]] | None) -> str:
    """A dependency as a line that any installer understands. Without it, another package of that name could come."""
    if isinstance(source, list):  # one per platform; uv chooses by their markers
        source = next((each for each in source if Marker(each.get("marker", _ALWAYS)).evaluate()), None)
    requirement, where = Requirement(line), source or {}
    name = requirement.name + (f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else "")
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    if "git" in where:
        revision = next((f"@{where[key]}" for key in ("rev", "tag", "branch") if key in where), "")
        subfolder = f"#subdirectory={where['subdirectory']}" if "subdirectory" in where else ""
        return f"{name} @ git+{where['git'].removeprefix('git+')}{revision}{subfolder}{marker}"
    if "url" in where:
        return f"{name} @ {where['url']}{marker}"
    if "path" in where:
        local = where["path"] if where["path"].startswith((".", "/")) else f"./{where['path']}"
        return f"-e {local}" if where.get("editable") else local
    return line


def _is_framework(line: str, folder: Path) -> bool:
    """Whether a line is the framework, such as `-e nemo-gym[dev] @ ../../`, or the checkout itself."""
    target = _EDITABLE.sub("", line)
    is_checkout = target.startswith("..") and (folder / target.split("[")[0]).resolve() == folder.resolve().parents[1]
    return is_checkout or _package_name(target) in _FRAMEWORKS


def _resolve_paths(line: str, folder: Path) -> str:
    """Make paths relative to the server's directory absolute: the installer runs elsewhere."""
    option, space, target = line.partition(" ")
    if option in _WITH_PATH and (folder / target.strip()).exists():
        return f"{option}{space}{(folder / target.strip()).resolve()}"
    return str((folder / line).resolve()) if line.startswith(("./", "../")) else line


def unmet_requirements(folder: Path) -> list[str]:
    """The requirements of a directory that are not installed here."""
    return [line for line in requirement_lines(folder) if not _is_met(line)]


def say_nothing(_text: str) -> None:
    """Take a message and drop it."""


async def ensure_venv(folder: Path, cache_dir: Path, log: Path, say: Callable[[str], None] = say_nothing) -> Path:
    """The Python of a virtual environment with the directory's requirements. Builds it if missing or broken.

    Says so first: that may take minutes.
    """
    lines, bounds = [*requirement_lines(folder), *find_missing_imports(folder)], own_bounds()
    home = (cache_dir / "venvs" / _cache_key([*lines, *_uv_settings(folder), *bounds])).absolute()
    python = home / "bin" / "python"
    home.parent.mkdir(parents=True, exist_ok=True)
    async with _hold_lock(home.with_suffix(".lock")):
        if (home / _MARKER).exists() and await _works(python):
            return python
        shutil.rmtree(home, ignore_errors=True)
        if lines:
            say(f"installing the packages that {folder.name} requires, which may take minutes (log: {log})")
        await _build(home, lines, bounds, folder, log)
        (home / _MARKER).touch()
    return python


def own_bounds() -> list[str]:
    """The versions that Gymnast and its installed dependencies allow of each other, as constraints for an installer.

    The packages of a server's environment come before ours in its process. Without these bounds, math-verify would
    bring a parser runtime that the configuration library cannot use.
    """
    bounds: dict[str, None] = {}
    pending, seen = list(_ROOTS), set(_ROOTS)
    while pending:
        for requirement in installed_requirements(pending.pop()):
            name = _package_name(requirement.name)
            if name not in _FRAMEWORKS and _is_bound(requirement.specifier):
                bounds[f"{requirement.name}{requirement.specifier}"] = None
            if name not in seen:
                seen.add(name)
                pending.append(name)
    return sorted(bounds)


def _is_bound(specifier: SpecifierSet) -> bool:
    """Whether a specifier bounds versions. An exact one ties two packages, which an installer replaces together."""
    exact = any(each.operator == "==" and not each.version.endswith(".*") for each in specifier)
    return bool(specifier) and not exact


async def _build(home: Path, lines: list[str], bounds: list[str], folder: Path, log: Path) -> None:
    requirements, constraints = home.with_suffix(".txt"), home.with_suffix(".bounds.txt")
    requirements.write_text("\n".join(lines) + "\n")
    constraints.write_text("\n".join(bounds) + "\n")
    make, install = _commands(home, requirements, folder)
    await _run(make, log, cwd=home.parent)
    if lines:
        try:
            await _run([*install, "-c", str(constraints)], log, cwd=home.parent)
        except StartError:  # a server may insist on what we do not allow, and not use what that breaks
            await _run(install, log, cwd=home.parent)
    packages = next((home / "lib").glob("python*/site-packages"))
    # Processed after the venv's own packages, which take precedence; `addsitedir` also handles editable installs.
    text = "".join(f"import site; site.addsitedir({parent!r})\n" for parent in _parent_packages())
    (packages / "gymnast_parent.pth").write_text(text)


def _commands(home: Path, wanted: Path, folder: Path) -> tuple[list[str], list[str]]:
    """How to make a virtual environment, and how to install what is wanted into it.

    uv reads `tool.uv` (overrides, constraints) of the server's project, and its `overrides.txt`; pip has no overrides.
    """
    uv, python = shutil.which("uv"), str(home / "bin" / "python")
    if uv:
        install = [uv, "--directory", str(folder.absolute()), "pip", "install", "--quiet", "--python", python]
        if (folder / _OVERRIDES).exists():
            install += ["--override", _OVERRIDES]
        return [uv, "venv", "--quiet", "--python", sys.executable, str(home)], [*install, "-r", str(wanted)]
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


async def _run(command: list[str], log: Path, *, cwd: Path) -> None:
    """Run an installer away from the checkout, whose files (`.python-version`, modules) would change what runs."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, cwd=cwd
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
            f"building a virtual environment failed: {Path(command[0]).name} exited with code {code}",
            where=str(log),
            next="last lines: " + read_tail(log, 5),
        )


def read_tail(log: Path, lines: int, start: int = 0) -> str:
    """The last lines of a log after the offset `start`, or a note that there are none."""
    try:
        size = log.stat().st_size
        with log.open("rb") as stream:
            stream.seek(max(start, size - 64 * 1024))
            text = stream.read().decode("utf-8", errors="replace")
    except OSError:
        return "(no log)"
    last = [line for line in text.splitlines() if line.strip()][-lines:]
    return "\n".join(last) or "(the log is empty)"


async def _works(python: Path) -> bool:
    try:
        process = await asyncio.create_subprocess_exec(
            str(python), "-c", "import gymnast", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
    except OSError:
        return False
    return await process.wait() == 0


def _cache_key(lines: list[str]) -> str:
    content = "\n".join([sys.version, sys.prefix, metadata.version("gymnast"), *sorted(lines)])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _parent_packages() -> list[str]:
    return [path for path in site.getsitepackages() if os.path.isdir(path)]  # noqa: PTH112 - strings in, strings out


@asynccontextmanager
async def _hold_lock(path: Path) -> AsyncIterator[None]:
    """Allow one builder at a time. Others wait without blocking the loop, then find it built."""
    with path.open("w") as stream:
        async with asyncio.timeout(BUILD_TIMEOUT_S):
            while True:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.2)
        yield


def _package_name(line: str) -> str:
    match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""


def _is_met(line: str) -> bool:
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return False  # an option or a URL: only an installer can tell
    if requirement.marker is not None and not requirement.marker.evaluate():
        return True
    try:
        return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False
