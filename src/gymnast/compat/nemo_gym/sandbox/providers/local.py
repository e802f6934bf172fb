"""The provider `bubblewrap`: a local folder inside a sandbox of `gymnast.sandbox`. Needs no image.

Files in the working folder persist between commands; the rest of the machine is read-only or hidden.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any, ClassVar

from gymnast.compat.nemo_gym.sandbox.providers.base import (
    SandboxCreateError,
    SandboxEndpoint,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
)
from gymnast.compat.nemo_gym.sandbox.providers.subprocesses import run_process
from gymnast.errors import UserError
from gymnast.sandbox.command_jail import CommandJail, CommandSandboxSettings, open_command_jail

_PATH = "/usr/local/bin:/usr/bin:/bin"


class BubblewrapProvider:
    """Sandboxes without containers."""

    name: ClassVar[str] = "bubblewrap"

    def __init__(self, read_only: list[str] | None = None, **_: Any) -> None:
        self._settings = CommandSandboxSettings(read_only=tuple(Path(folder) for folder in read_only or ()))
        self._jail: CommandJail | None = None

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        try:
            self._jail = self._jail or await open_command_jail(self._settings)
        except UserError as error:
            raise SandboxCreateError(str(error)) from error
        folder = await asyncio.to_thread(_make_folder, spec)
        return SandboxHandle(uuid.uuid4().hex, self.name, {"folder": folder, "env": dict(spec.env)})

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float | None = 180,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        folder: Path = handle.raw["folder"]
        assert self._jail is not None
        workdir = _inside(folder, cwd) if cwd else folder
        argv = self._jail.wrap(["sh", "-c", command], workdir, [folder])
        environ = {"PATH": _PATH, "HOME": str(folder), "LANG": "C.UTF-8", **handle.raw["env"], **(env or {})}
        return await run_process(argv, timeout_s=timeout_s, env=environ)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        target = _inside(handle.raw["folder"], target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(shutil.copyfile, source_path, target)

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        source = _inside(handle.raw["folder"], source_path)
        if source.is_symlink() or not source.is_file():
            raise FileNotFoundError(f"the sandbox has no file {source_path}")
        await asyncio.to_thread(shutil.copyfile, source, target_path)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        return SandboxStatus.RUNNING if handle.raw["folder"].exists() else SandboxStatus.STOPPED

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        return SandboxEndpoint(f"http://127.0.0.1:{port}")  # the host's network

    async def close(self, handle: SandboxHandle) -> None:
        await asyncio.to_thread(shutil.rmtree, handle.raw["folder"], ignore_errors=True)


def _make_folder(spec: SandboxSpec) -> Path:
    """Create a folder with the initial files of a sandbox."""
    folder = Path(tempfile.mkdtemp(prefix="gymnast-sandbox-"))
    folder.chmod(0o755)
    for name, text in spec.files.items():
        path = _inside(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def _inside(folder: Path, path: str) -> Path:
    """Translate a path of the sandbox to this machine; absolute paths start at its folder."""
    relative = Path(path)
    if relative.is_absolute() and relative.is_relative_to(folder):
        relative = relative.relative_to(folder)
    resolved = (folder / str(relative).lstrip("/")).resolve()
    if not resolved.is_relative_to(folder.resolve()):
        raise ValueError(f"{path} is outside of the sandbox")
    return resolved
