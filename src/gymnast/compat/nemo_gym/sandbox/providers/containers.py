"""Docker, Podman and Apptainer: an idle container, with commands run in it and files copied in and out."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gymnast.compat.nemo_gym.sandbox.providers.base import (
    SandboxCreateError,
    SandboxEndpoint,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
)
from gymnast.compat.nemo_gym.sandbox.providers.container_settings import (
    ApptainerCreateConfig,
    ApptainerExecConfig,
    DockerCreateConfig,
    DockerExecConfig,
    read_settings,
)
from gymnast.compat.nemo_gym.sandbox.providers.subprocesses import RUNTIME_RETURN_CODE, find_program, run_process
from gymnast.sandbox.containers import apptainer_exec, docker_exec, docker_remove, docker_run, env_options

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENGINE_FAILURES: Final = ("Error response from daemon", "No such container", "no such container", "no instance found")


class DockerProvider:
    """Docker containers, or Podman containers if only that is installed."""

    name: ClassVar[str] = "docker"

    def __init__(
        self,
        create: DockerCreateConfig | Mapping[str, Any] | None = None,
        exec: DockerExecConfig | Mapping[str, Any] | None = None,  # noqa: A002 - the name in configurations
        probe: Any = None,
        **options: Any,
    ) -> None:
        """`options` are settings of `create`. There is no probe: a container that started is usable."""
        block = create if isinstance(create, DockerCreateConfig) else {**(create or {}), **options}
        self._create_config = read_settings(DockerCreateConfig, block)
        self._exec_config = read_settings(DockerExecConfig, exec)

    def create_command(self, engine: str, name: str, spec: SandboxSpec) -> list[str]:
        """The command that creates a container."""
        image, limits = spec.image or self._create_config.image, spec.limits()
        if not image:
            raise SandboxCreateError("a container needs an image: set `image` in the spec or the provider")
        options = ["--gpus", str(limits.gpu)] if limits.gpu else []
        options += [
            word for port in spec.ports for word in ("--publish", f"{self._create_config.publish_host}::{port}")
        ]
        return docker_run(
            engine,
            image,
            spec.entrypoint or ["sleep", "infinity"],
            name=name,
            mode=("--detach", "--init") if self._create_config.use_init else ("--detach",),
            options=[*options, *self._create_config.options()],
            pull=self._create_config.pull,
            network=self._create_config.network,
            workdir=spec.workdir,
            cpus=limits.cpu,
            memory_mb=limits.memory_mib,
            env=spec.env,
        )

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        engine, name = find_program("docker", "podman"), f"gymnast-{uuid.uuid4().hex[:12]}"
        words = self.create_command(engine, name, spec)
        result = await run_process(words, timeout_s=spec.ready_timeout_s or self._create_config.start_timeout_s)
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
        timeout_s: float | None = None,
        user: str | int | None = None,
        stdin: bytes | None = None,
    ) -> SandboxExecResult:
        """Run a shell command; without `timeout_s`, the one of the settings applies."""
        argv = docker_exec(
            handle.raw,
            handle.sandbox_id,
            ("sh", "-c", command),
            options=[*(["--interactive"] if stdin is not None else []), *self._exec_config.extra_exec_args],
            workdir=cwd,
            user=None if user is None else "0" if user == "root" else str(user),
            env=env,
        )
        result = await run_process(argv, timeout_s=self._timeout_s(timeout_s), stdin=stdin)
        return _mark_engine_failure(result)

    def _timeout_s(self, timeout_s: float | None) -> float | None:
        return self._exec_config.default_timeout_s if timeout_s is None else timeout_s

    async def aclose(self) -> None:
        """Nothing: it has no connections of its own."""

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        folder = str(Path(target_path).parent)
        await _require_success(
            run_process([handle.raw, "exec", handle.sandbox_id, "mkdir", "-p", folder], timeout_s=60)
        )
        await _require_success(
            run_process([handle.raw, "cp", str(source_path), f"{handle.sandbox_id}:{target_path}"], timeout_s=600)
        )

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        await _require_success(
            run_process([handle.raw, "cp", f"{handle.sandbox_id}:{source_path}", str(target_path)], timeout_s=600)
        )

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        words = [handle.raw, "inspect", "--format", "{{.State.Running}}", handle.sandbox_id]
        result = await run_process(words, timeout_s=60)
        if result.return_code:
            return SandboxStatus.STOPPED
        return SandboxStatus.RUNNING if (result.stdout or "").strip() == "true" else SandboxStatus.STOPPED

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        result = await _require_success(run_process([handle.raw, "port", handle.sandbox_id, str(port)], timeout_s=60))
        return SandboxEndpoint(f"http://{(result.stdout or '').split()[0]}")

    async def close(self, handle: SandboxHandle) -> None:
        await run_process(docker_remove(handle.raw, handle.sandbox_id), timeout_s=60)


class ApptainerProvider:
    """Apptainer or Singularity instances, with a temporary writable layer."""

    name: ClassVar[str] = "apptainer"

    def __init__(
        self,
        create: ApptainerCreateConfig | Mapping[str, Any] | None = None,
        exec: ApptainerExecConfig | Mapping[str, Any] | None = None,  # noqa: A002 - the name in configurations
        probe: Any = None,
        bin_path: str | None = None,
        **options: Any,
    ) -> None:
        """`options` are settings of `create`; `bin_path`: the folder of the program, instead of PATH."""
        block = create if isinstance(create, ApptainerCreateConfig) else {**(create or {}), **options}
        self._create_config = read_settings(ApptainerCreateConfig, block)
        self._exec_config = read_settings(ApptainerExecConfig, exec)
        self._bin_path = bin_path

    def start_command(self, engine: str, name: str, spec: SandboxSpec) -> list[str]:
        """The command that starts an instance."""
        image = spec.image or self._create_config.image
        if not image:
            raise SandboxCreateError("a container needs an image: set `image` in the spec or the provider")
        own = self._create_config.extra_start_args
        words = [engine, "instance", "start", "--containall"]
        words += [word for word in ("--writable-tmpfs",) if word not in own]
        words += [word for bind in self._exec_config.default_binds for word in ("--bind", bind)]
        return [*words, *own, *env_options(spec.env), image, name]

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        engine, name = _require_apptainer(self._bin_path), f"gymnast-{uuid.uuid4().hex[:12]}"
        timeout_s = spec.ready_timeout_s or self._create_config.start_timeout_s
        result = await run_process(self.start_command(engine, name, spec), timeout_s=timeout_s)
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
        timeout_s: float | None = None,
        user: str | int | None = None,
        stdin: bytes | None = None,
    ) -> SandboxExecResult:
        """Run a shell command; without `timeout_s`, the one of the settings applies."""
        limit_s = self._exec_config.default_timeout_s if timeout_s is None else timeout_s
        instance = f"instance://{handle.sandbox_id}"
        options = self._exec_config.extra_exec_args
        argv = apptainer_exec(handle.raw, instance, ("sh", "-c", command), options=options, workdir=cwd, env=env)
        return _mark_engine_failure(await run_process(argv, timeout_s=limit_s, stdin=stdin))

    async def aclose(self) -> None:
        """Nothing: it has no connections of its own."""

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


def _require_apptainer(bin_path: str | None = None) -> str:
    """The program, from a folder or from PATH."""
    return str(Path(bin_path) / "apptainer") if bin_path else find_program("apptainer", "singularity")


def _mark_engine_failure(result: SandboxExecResult) -> SandboxExecResult:
    """Tell a failure of the engine, such as a container that is gone, from one of the command."""
    if result.return_code and any(text in (result.stderr or "") for text in _ENGINE_FAILURES):
        return replace(result, return_code=RUNTIME_RETURN_CODE, error_type="sandbox")
    return result


async def _require_success(running: Any) -> SandboxExecResult:
    result: SandboxExecResult = await running
    if result.return_code:
        raise OSError((result.stderr or result.stdout or "the container command failed").strip())
    return result
