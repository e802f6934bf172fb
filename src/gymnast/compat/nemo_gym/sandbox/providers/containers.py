"""Docker, Podman and Apptainer: an idle container, with commands run in it and files copied in and out."""

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
from gymnast.compat.nemo_gym.sandbox.providers.subprocesses import find_program, run_process
from gymnast.sandbox.containers import apptainer_exec, docker_exec, docker_remove, docker_run, env_options

CREATE_TIMEOUT_S = 600.0


@dataclass(slots=True)
class DockerCreateConfig:
    """How containers are created; the options of the spec are added."""

    image: str | None = None
    network: str | None = None
    pull: str = "missing"
    extra_args: list[str] = field(default_factory=list)
    create_timeout_s: float = CREATE_TIMEOUT_S


class DockerProvider:
    """Docker containers, or Podman containers if only that is installed."""

    name: ClassVar[str] = "docker"

    def __init__(self, create: DockerCreateConfig | dict[str, Any] | None = None, **options: Any) -> None:
        config = create if isinstance(create, DockerCreateConfig) else DockerCreateConfig(**(create or {}), **options)
        self._config = config

    def create_command(self, engine: str, name: str, spec: SandboxSpec) -> list[str]:
        """The command that creates a container."""
        image, limits = spec.image or self._config.image, spec.limits()
        if not image:
            raise SandboxCreateError("a container needs an image: set `image` in the spec or the provider")
        options = ["--gpus", str(limits.gpu)] if limits.gpu else []
        options += [word for port in spec.ports for word in ("--publish", f"127.0.0.1::{port}")]
        return docker_run(
            engine,
            image,
            spec.entrypoint or ["sleep", "infinity"],
            name=name,
            mode=("--detach", "--init"),
            options=[*options, *self._config.extra_args],
            pull=self._config.pull,
            network=self._config.network,
            workdir=spec.workdir,
            cpus=limits.cpu,
            memory_mb=limits.memory_mib,
            env=spec.env,
        )

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        engine, name = find_program("docker", "podman"), f"gymnast-{uuid.uuid4().hex[:12]}"
        words = self.create_command(engine, name, spec)
        result = await run_process(words, timeout_s=spec.ready_timeout_s or self._config.create_timeout_s)
        if result.return_code:
            await run_process(docker_remove(engine, name), timeout_s=60)
            raise SandboxCreateError(f"{Path(engine).name} run failed: {(result.stderr or '').strip()}")
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
        user_name = str(user) if user is not None else None
        argv = docker_exec(handle.raw, handle.sandbox_id, ("sh", "-c", command), workdir=cwd, user=user_name, env=env)
        return await run_process(argv, timeout_s=timeout_s)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        folder = str(Path(target_path).parent)
        await _checked(run_process([handle.raw, "exec", handle.sandbox_id, "mkdir", "-p", folder], timeout_s=60))
        await _checked(
            run_process([handle.raw, "cp", str(source_path), f"{handle.sandbox_id}:{target_path}"], timeout_s=600)
        )

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        await _checked(
            run_process([handle.raw, "cp", f"{handle.sandbox_id}:{source_path}", str(target_path)], timeout_s=600)
        )

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        words = [handle.raw, "inspect", "--format", "{{.State.Running}}", handle.sandbox_id]
        result = await run_process(words, timeout_s=60)
        if result.return_code:
            return SandboxStatus.STOPPED
        return SandboxStatus.RUNNING if (result.stdout or "").strip() == "true" else SandboxStatus.STOPPED

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        result = await _checked(run_process([handle.raw, "port", handle.sandbox_id, str(port)], timeout_s=60))
        return SandboxEndpoint(f"http://{(result.stdout or '').split()[0]}")

    async def close(self, handle: SandboxHandle) -> None:
        await run_process(docker_remove(handle.raw, handle.sandbox_id), timeout_s=60)


class ApptainerProvider:
    """Apptainer or Singularity instances, with a temporary writable layer."""

    name: ClassVar[str] = "apptainer"

    def __init__(self, image: str | None = None, extra_args: list[str] | None = None, **_: Any) -> None:
        self._image = image
        self._extra = list(extra_args or ())

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        engine, name = find_program("apptainer", "singularity"), f"gymnast-{uuid.uuid4().hex[:12]}"
        image = spec.image or self._image
        if not image:
            raise SandboxCreateError("a container needs an image: set `image` in the spec or the provider")
        words = [engine, "instance", "start", "--containall", "--writable-tmpfs", *self._extra]
        words += env_options(spec.env)
        result = await run_process([*words, image, name], timeout_s=spec.ready_timeout_s or CREATE_TIMEOUT_S)
        if result.return_code:
            raise SandboxCreateError(f"{Path(engine).name} instance start failed: {(result.stderr or '').strip()}")
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
        instance = f"instance://{handle.sandbox_id}"
        argv = apptainer_exec(handle.raw, instance, ("sh", "-c", command), workdir=cwd, env=env)
        return await run_process(argv, timeout_s=timeout_s)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        words = [handle.raw, "exec", f"instance://{handle.sandbox_id}", "sh", "-c"]
        script = 'mkdir -p "$(dirname "$1")" && cat > "$1"'
        process = await asyncio.create_subprocess_exec(
            *words, script, "sh", target_path, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        _, stderr = await process.communicate(await asyncio.to_thread(source_path.read_bytes))
        if process.returncode:
            raise OSError(f"cannot write {target_path}: {stderr.decode(errors='replace')}")

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        process = await asyncio.create_subprocess_exec(
            handle.raw, "exec", f"instance://{handle.sandbox_id}", "cat", source_path,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        data, stderr = await process.communicate()
        if process.returncode:
            raise OSError(f"cannot read {source_path}: {stderr.decode(errors='replace')}")
        await asyncio.to_thread(target_path.write_bytes, data)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        result = await run_process([handle.raw, "instance", "list", handle.sandbox_id], timeout_s=60)
        return SandboxStatus.RUNNING if handle.sandbox_id in (result.stdout or "") else SandboxStatus.STOPPED

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        return SandboxEndpoint(f"http://127.0.0.1:{port}")  # instances share the host's network

    async def close(self, handle: SandboxHandle) -> None:
        await run_process([handle.raw, "instance", "stop", handle.sandbox_id], timeout_s=60)


async def _checked(running: Any) -> SandboxExecResult:
    result: SandboxExecResult = await running
    if result.return_code:
        raise OSError((result.stderr or result.stdout or "the container command failed").strip())
    return result
