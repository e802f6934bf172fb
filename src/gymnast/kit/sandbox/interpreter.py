"""Which Python the programs get, where its files are, and what beside it they must not see."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import gymnast
from gymnast.errors import UserError
from gymnast.kit.sandbox.settings import SandboxSettings

OURS: Final = Path(gymnast.__file__).resolve().parent
_ASK: Final = """
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
    """A Python for programs."""

    executable: Path
    readable: tuple[Path, ...]
    hidden: tuple[Path, ...]


async def interpreter_for(settings: SandboxSettings) -> Interpreter:
    """Ask the configured Python, or the one that ours stands on, where it lives."""
    executable = settings.python or Path(getattr(sys, "_base_executable", None) or sys.executable)
    process = None
    try:
        process = await asyncio.create_subprocess_exec(
            str(executable), "-I", "-c", _ASK, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        said, complaint = await process.communicate()
    except OSError as error:
        raise UserError(f"cannot start {executable}: {error.strerror}", next="set sandbox.python") from error
    finally:
        if process is not None and process.returncode is None:
            process.kill()
    if process.returncode != 0:
        raise UserError(f"{executable} is no usable Python: {complaint.decode()[-400:]}", next="set sandbox.python")
    found = json.loads(said)
    if settings.python is not None and found["has_gymnast"]:
        raise UserError(
            f"programs would see Gymnast and its environments in {executable}",
            next="set sandbox.python to an environment made for the programs, with the packages they may use",
        )
    packages = () if settings.python is not None else tuple(map(Path, found["packages"]))
    return described(Path(found["executable"]), map(Path, found["prefixes"]), packages, settings)


def described(
    executable: Path, prefixes: Iterable[Path], packages: Iterable[Path], settings: SandboxSettings
) -> Interpreter:
    """What of it is shown and what is hidden."""
    readable = (Path("/usr"), *prefixes, *(folder.resolve() for folder in settings.read_only))
    for folder in readable:
        if folder.is_relative_to("/tmp") or not folder.is_dir():  # noqa: S108 - the jail's own stands in its place
            raise UserError(
                f"programs cannot be shown {folder}",
                where="sandbox.read_only, sandbox.python",
                next="name folders that exist, and not below /tmp: programs have a /tmp of their own",
            )
    hidden = (*packages, OURS, *(folder.resolve() for folder in settings.hide))
    return Interpreter(executable, _outermost(readable), tuple(path for path in _outermost(hidden) if path.is_dir()))


def _outermost(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Without repetitions and folders inside of others."""
    kept: list[Path] = []
    for folder in sorted(set(folders), key=lambda path: len(path.parts)):
        if not any(folder.is_relative_to(outer) for outer in kept):
            kept.append(folder)
    return tuple(kept)
