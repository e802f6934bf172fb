"""Docker, Podman and Apptainer: a container that idles, commands executed in it, files copied into and out of it."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
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
from gymnast.compat.nemo_gym.sandbox.providers.running import program, run_to_end

CREATE_TIMEOUT_S = 600.0


@dataclass(slots=True)
class DockerCreateConfig:
    """How containers are made; a spec's own options are added."""

    image: str | None = None
    network: str | None = None
    pull: str = "missing"
    extra_args: list[str] = field(default_factory=list)
    create_timeout_s: float = CREATE_TIMEOUT_S


class DockerProvider:
    """Containers of Docker, or of Podman where that is what is installed."""

    name: ClassVar[str] = "docker"

    def __init__(self, create: DockerCreateConfig | dict[str, Any] | None = None, **options: Any) -> None:
        given = create if isinstance(create, DockerCreateConfig) else DockerCreateConfig(**(create or {}), **options)
        self._config = given

    def create_command(self, engine: str, name: str, spec: SandboxSpec) -> list[str]:
        """The command that makes a container."""
        image, limits = spec.image or self._config.image, spec.limits()
        if not image:
            raise SandboxCreateError("a container needs an image: set `image` of the spec or of the provider")
        words = [engine, "run", "--detach", "--init", "--name", name, "--pull", self._config.pull]
        words += ["--network", self._config.network] if self._config.network else []
        words += ["--workdir", spec.workdir] if spec.workdir else []
        words += ["--cpus", str(limits.cpu)] if limits.cpu else []
        words += ["--memory", f"{limits.memory_mib}m"] if limits.memory_mib else []
        words += ["--gpus", str(limits.gpu)] if limits.gpu else []
        words += [word for key, value in spec.env.items() for word in ("--env", f"{key}={value}")]
        words += [word for port in spec.ports for word in ("--publish", f"127.0.0.1::{port}")]
        idle = spec.entrypoint or ["sleep", "infinity"]
        return [*words, *self._config.extra_args, "--entrypoint", idle[0], image, *idle[1:]]

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        engine, name = program("docker", "podman"), f"gymnast-{uuid.uuid4().hex[:12]}"
        words = self.create_command(engine, name, spec)
        made = await run_to_end(words, timeout_s=spec.ready_timeout_s or self._config.create_timeout_s)
        if made.return_code:
            await run_to_end([engine, "rm", "--force", name], timeout_s=60)
            raise SandboxCreateError(f"{Path(engine).name} run failed: {(made.stderr or '').strip()}")
        return SandboxHandle(name, self.name, engine)

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
        words = [handle.raw, "exec"]
        words += ["--workdir", cwd] if cwd else []
        words += ["--user", str(user)] if user is not None else []
        words += [word for key, value in (env or {}).items() for word in ("--env", f"{key}={value}")]
        return await run_to_end([*words, handle.sandbox_id, "sh", "-c", command], timeout_s=timeout_s)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        folder = str(Path(target_path).parent)
        await _checked(run_to_end([handle.raw, "exec", handle.sandbox_id, "mkdir", "-p", folder], timeout_s=60))
        await _checked(
            run_to_end([handle.raw, "cp", str(source_path), f"{handle.sandbox_id}:{target_path}"], timeout_s=600)
        )

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        await _checked(
            run_to_end([handle.raw, "cp", f"{handle.sandbox_id}:{source_path}", str(target_path)], timeout_s=600)
        )

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        words = [handle.raw, "inspect", "--format", "{{.State.Running}}", handle.sandbox_id]
        found = await run_to_end(words, timeout_s=60)
        if found.return_code:
            return SandboxStatus.STOPPED
        return SandboxStatus.RUNNING if (found.stdout or "").strip() == "true" else SandboxStatus.STOPPED

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        found = await _checked(run_to_end([handle.raw, "port", handle.sandbox_id, str(port)], timeout_s=60))
        return SandboxEndpoint(f"http://{(found.stdout or '').split()[0]}")

    async def close(self, handle: SandboxHandle) -> None:
        await run_to_end([handle.raw, "rm", "--force", handle.sandbox_id], timeout_s=60)


class ApptainerProvider:
    """Instances of Apptainer (or Singularity), with a writable layer that ends with them."""

    name: ClassVar[str] = "apptainer"

    def __init__(self, image: str | None = None, extra_args: list[str] | None = None, **_: Any) -> None:
        self._image = image
        self._extra = list(extra_args or ())

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        engine, name = program("apptainer", "singularity"), f"gymnast-{uuid.uuid4().hex[:12]}"
        image = spec.image or self._image
        if not image:
            raise SandboxCreateError("a container needs an image: set `image` of the spec or of the provider")
        words = [engine, "instance", "start", "--containall", "--writable-tmpfs", *self._extra]
        words += [word for key, value in spec.env.items() for word in ("--env", f"{key}={value}")]
        made = await run_to_end([*words, image, name], timeout_s=spec.ready_timeout_s or CREATE_TIMEOUT_S)
        if made.return_code:
            raise SandboxCreateError(f"{Path(engine).name} instance start failed: {(made.stderr or '').strip()}")
        return SandboxHandle(name, self.name, engine)

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
        words = [handle.raw, "exec", *(("--pwd", cwd) if cwd else ())]
        words += [word for key, value in (env or {}).items() for word in ("--env", f"{key}={value}")]
        return await run_to_end([*words, f"instance://{handle.sandbox_id}", "sh", "-c", command], timeout_s=timeout_s)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        words = [handle.raw, "exec", f"instance://{handle.sandbox_id}", "sh", "-c"]
        script = 'mkdir -p "$(dirname "$1")" && cat > "$1"'
        process = await asyncio.create_subprocess_exec(
            *words, script, "sh", target_path, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate(await asyncio.to_thread(source_path.read_bytes))
        if process.returncode:
            raise OSError(f"{target_path} could not be written: {said.decode(errors='replace')}")

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        process = await asyncio.create_subprocess_exec(
            handle.raw, "exec", f"instance://{handle.sandbox_id}", "cat", source_path,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        data, said = await process.communicate()
        if process.returncode:
            raise OSError(f"{source_path} could not be read: {said.decode(errors='replace')}")
        await asyncio.to_thread(target_path.write_bytes, data)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        found = await run_to_end([handle.raw, "instance", "list", handle.sandbox_id], timeout_s=60)
        return SandboxStatus.RUNNING if handle.sandbox_id in (found.stdout or "") else SandboxStatus.STOPPED

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        return SandboxEndpoint(f"http://127.0.0.1:{port}")  # instances share the network of the host

    async def close(self, handle: SandboxHandle) -> None:
        await run_to_end([handle.raw, "instance", "stop", handle.sandbox_id], timeout_s=60)


async def _checked(running: Any) -> SandboxExecResult:
    found: SandboxExecResult = await running
    if found.return_code:
        raise OSError((found.stderr or found.stdout or "the sandbox's engine failed").strip())
    return found
