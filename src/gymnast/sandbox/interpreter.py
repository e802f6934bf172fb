"""The Python that programs get: where its files are, and which files near it are hidden from them."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import gymnast
from gymnast.errors import UserError
from gymnast.sandbox.settings import SandboxSettings

PACKAGE_DIR: Final = Path(gymnast.__file__).resolve().parent
_INSPECT: Final = """
import importlib.util, json, os, site, sys
print(json.dumps({
    "executable": sys.executable,
    "prefixes": [os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)],
    "packages": [os.path.realpath(p) for p in site.getsitepackages()],
    "has_gymnast": importlib.util.find_spec("gymnast") is not None,
}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python for programs: its executable, the folders to show and the folders below them to hide."""

    executable: Path
    readable: tuple[Path, ...]
    hidden: tuple[Path, ...]
    packages: tuple[Path, ...] = ()
    """Folders of packages of our own Python to show."""


async def find_interpreter(settings: SandboxSettings) -> Interpreter:
    """Inspect the configured Python, or the base interpreter of our own."""
    executable = settings.python or Path(getattr(sys, "_base_executable", None) or sys.executable)
    process = None
    try:
        process = await asyncio.create_subprocess_exec(
            str(executable), "-I", "-c", _INSPECT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        output, errors = await process.communicate()
    except OSError as error:
        raise UserError(f"cannot start {executable}: {error.strerror}", next="set sandbox.python") from error
    finally:
        if process is not None and process.returncode is None:
            process.kill()
    if process.returncode != 0:
        raise UserError(f"{executable} is not a usable Python: {errors.decode()[-400:]}", next="set sandbox.python")
    paths = json.loads(output)
    if settings.python is not None and paths["has_gymnast"]:
        raise UserError(
            f"Gymnast is installed in {executable}: programs could read its environments",
            next="set sandbox.python to a virtual environment with only the packages that programs may use",
        )
    packages = () if settings.python is not None else tuple(map(Path, paths["packages"]))
    python = describe_interpreter(Path(paths["executable"]), map(Path, paths["prefixes"]), packages, settings)
    return python if settings.python is not None else replace(python, packages=find_packages(settings.packages))


def find_packages(names: Iterable[str]) -> tuple[Path, ...]:
    """The folders of packages of our own Python, with those of the libraries that wheels put next to them."""
    folders: list[Path] = []
    for name in names:
        spec = importlib.util.find_spec(name) if name.isidentifier() else None
        if spec is None or not spec.submodule_search_locations:
            raise UserError(
                f"no package {name!r} is installed with Gymnast",
                where="sandbox.packages",
                next="install it, or set sandbox.python to a Python that has it",
            )
        folder = Path(spec.submodule_search_locations[0]).resolve()
        folders += [folder, folder.with_name(f"{name}.libs")]
    return tuple(folder for folder in folders if folder.is_dir())


def describe_interpreter(
    executable: Path, prefixes: Iterable[Path], packages: Iterable[Path], settings: SandboxSettings
) -> Interpreter:
    """Decide which folders are shown and which are hidden."""
    readable = (Path("/usr"), *prefixes, *(folder.resolve() for folder in settings.read_only))
    for folder in readable:
        if folder.is_relative_to("/tmp") or not folder.is_dir():  # noqa: S108 - the jail mounts its own
            raise UserError(
                f"cannot show {folder} to programs",
                where="sandbox.read_only, sandbox.python",
                next="list directories that exist and are not below /tmp: programs get their own /tmp",
            )
    hidden = (*packages, PACKAGE_DIR, *(folder.resolve() for folder in settings.hide))
    return Interpreter(executable, _outermost(readable), tuple(path for path in _outermost(hidden) if path.is_dir()))


def _outermost(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Drop duplicates and folders inside others."""
    outermost: list[Path] = []
    for folder in sorted(set(folders), key=lambda path: len(path.parts)):
        if not any(folder.is_relative_to(outer) for outer in outermost):
            outermost.append(folder)
    return tuple(outermost)
