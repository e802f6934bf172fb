"""`nemo_gym.sandbox.api`: a sandbox of any provider, for async and for synchronous code."""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, Self

from gymnast.compat.nemo_gym.sandbox.config import resolve_provider_config
from gymnast.compat.nemo_gym.sandbox.providers import create_provider
from gymnast.compat.nemo_gym.sandbox.providers.base import (
    ConnectableProvider,
    SandboxCreateError,
    SandboxEndpoint,
    SandboxExecResult,
    SandboxHandle,
    SandboxProvider,
    SandboxSpec,
    SandboxStatus,
)
from gymnast.compat.nemo_gym.sandbox.providers.local import BubblewrapProvider
from gymnast.compat.nemo_gym.surface import missing_from

SYNC_TIMEOUT_S: Final = 3600.0
MAX_PORT: Final = 65535


class AsyncSandbox:
    """A sandbox. `async with AsyncSandbox(provider, spec) as sandbox:` starts and stops it."""

    def __init__(
        self, provider: SandboxProvider | Mapping[str, Any] | str = "bubblewrap", spec: SandboxSpec | None = None
    ) -> None:
        """`provider`: a provider, its configuration, or the name of a provider or of a config block."""
        self._provider: SandboxProvider = _provider(provider)
        self._spec = spec
        self._handle: SandboxHandle | None = None
        self._is_stopped = False

    @property
    def can_start(self) -> bool:
        """Whether `start` needs no further spec."""
        return self._spec is not None or getattr(self._provider, "name", None) == BubblewrapProvider.name

    @property
    def handle(self) -> SandboxHandle:
        if self._handle is None:
            raise RuntimeError("the sandbox is not started")
        return self._handle

    async def start(self, spec: SandboxSpec | None = None) -> "AsyncSandbox":
        """Create the sandbox; nothing if `async with` has already done so."""
        if self._is_stopped:
            raise RuntimeError("the sandbox was stopped; create another one")
        if self._handle is not None:
            if spec is None or spec == self._spec:
                return self
            raise RuntimeError("the sandbox is already started")
        self._spec = spec or self._spec or SandboxSpec()
        self._handle = await self._provider.create(self._spec)
        try:
            if self._spec.files and self._provider.name != "bubblewrap":  # which starts with them
                await self._write(self._spec.files)
        except BaseException:
            await self.stop()
            raise
        return self

    async def _write(self, files: Mapping[str, str]) -> None:
        for path, text in files.items():
            with NamedTemporaryFile("w", suffix=Path(path).suffix) as source:
                source.write(text)
                source.flush()
                await self.upload(source.name, path)

    async def exec(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float | None = 180,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Run a shell command."""
        workdir = cwd or (self._spec.workdir if self._spec is not None else None)
        return await self._provider.exec(self.handle, command, cwd=workdir, env=env, timeout_s=timeout_s, user=user)

    async def upload(self, local_path: Path | str, remote_path: str) -> None:
        """Copy a file in."""
        await self._provider.upload_file(self.handle, Path(local_path), remote_path)

    async def download(self, remote_path: str, local_path: Path | str) -> None:
        """Copy a file out."""
        Path(local_path).parent.mkdir(parents=True, exist_ok=True)
        await self._provider.download_file(self.handle, remote_path, Path(local_path))

    async def status(self) -> SandboxStatus:
        if self._handle is not None:
            return await self._provider.status(self._handle)
        return SandboxStatus.STOPPED if self._is_stopped else SandboxStatus.UNKNOWN

    async def endpoint(self, port: int) -> SandboxEndpoint:
        """The address of a port that the spec declares."""
        if type(port) is not int or not 1 <= port <= MAX_PORT:
            raise ValueError(f"expected a port between 1 and {MAX_PORT}, got {port!r}")
        declared = self._spec.ports if self._spec is not None else ()
        if port not in declared:
            raise ValueError(f"port {port} is not one of the ports of the sandbox's spec: {list(declared)}")
        if not hasattr(self._provider, "endpoint"):
            raise NotImplementedError(f"the sandbox provider '{self._provider.name}' has no endpoints")
        return await self._provider.endpoint(self.handle, port)

    async def stop(self) -> None:
        """Remove the sandbox, and close the provider's own connections if it has any. Again does nothing."""
        if self._is_stopped:
            return
        self._is_stopped = True
        handle, self._handle = self._handle, None
        try:
            if handle is not None:
                await self._provider.close(handle)
        finally:
            close_provider = getattr(self._provider, "aclose", None)
            if close_provider is not None:
                await close_provider()

    async def serialize(self, *, scope: str | None = None) -> dict[str, Any]:
        """A descriptor with which another process can connect to it, made by the provider if it can."""
        if isinstance(self._provider, ConnectableProvider):
            descriptor = await self._provider.serialize_handle(self.handle, scope=scope)
            workdir = self._spec.workdir if self._spec is not None else None
            return {**descriptor, "workdir": descriptor.get("workdir") or workdir}
        handle = asdict(self.handle)
        handle["raw"] = (
            {key: str(value) if isinstance(value, Path) else value for key, value in handle["raw"].items()}
            if isinstance(handle["raw"], dict)
            else handle["raw"]
        )
        return {**handle, "scope": scope}

    @classmethod
    async def connect(cls, descriptor: Mapping[str, Any] | Any, *, provider: SandboxProvider) -> "AsyncSandbox":
        """Connect to a sandbox by the descriptor of another process."""
        if not isinstance(descriptor, Mapping) and hasattr(descriptor, "to_dict"):
            descriptor = descriptor.to_dict()
        if isinstance(provider, ConnectableProvider):
            result = cls(provider, SandboxSpec(workdir=descriptor.get("workdir")))
            result._handle = await provider.connect(descriptor)
            return result
        result = cls(provider)
        result._handle = _read_handle(descriptor)
        if await result.status() is not SandboxStatus.RUNNING:
            raise SandboxCreateError(f"sandbox {descriptor['sandbox_id']} is not running")
        return result

    async def __aenter__(self) -> Self:
        if self._handle is None and self._spec is not None:
            await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class Sandbox:
    """A sandbox for synchronous code, with an event loop in a thread."""

    def __init__(
        self, provider: SandboxProvider | Mapping[str, Any] | str = "bubblewrap", spec: SandboxSpec | None = None
    ) -> None:
        self._sandbox = AsyncSandbox(provider, spec)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandbox", daemon=True)
        self._thread.start()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("the sandbox was stopped; create another one")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SYNC_TIMEOUT_S)

    def start(self, spec: SandboxSpec | None = None) -> "Sandbox":
        self._run(self._sandbox.start(spec))
        return self

    def exec(self, command: str, **options: Any) -> SandboxExecResult:
        result: SandboxExecResult = self._run(self._sandbox.exec(command, **options))
        return result

    def upload(self, local_path: Path | str, remote_path: str) -> None:
        self._run(self._sandbox.upload(local_path, remote_path))

    def download(self, remote_path: str, local_path: Path | str) -> None:
        self._run(self._sandbox.download(remote_path, local_path))

    def status(self) -> SandboxStatus:
        if self._loop.is_closed():
            return SandboxStatus.STOPPED
        result: SandboxStatus = self._run(self._sandbox.status())
        return result

    def endpoint(self, port: int) -> SandboxEndpoint:
        result: SandboxEndpoint = self._run(self._sandbox.endpoint(port))
        return result

    def stop(self) -> None:
        """Remove the sandbox and end the thread. Again does nothing."""
        if self._loop.is_closed():
            return
        try:
            self._run(self._sandbox.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        if self._sandbox.can_start:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _read_handle(descriptor: Mapping[str, Any]) -> SandboxHandle:
    """The handle in a descriptor of `AsyncSandbox.serialize`."""
    missing = [key for key in ("sandbox_id", "provider_name", "raw") if key not in descriptor]
    if missing:
        raise RuntimeError(f"the sandbox provider cannot connect with a descriptor without {', '.join(missing)}")
    raw = descriptor["raw"]
    if isinstance(raw, dict) and "folder" in raw:
        raw = {**raw, "folder": Path(raw["folder"])}
    return SandboxHandle(descriptor["sandbox_id"], descriptor["provider_name"], raw)


def _provider(provider: SandboxProvider | Mapping[str, Any] | str) -> Any:
    if isinstance(provider, str):
        from gymnast.compat.nemo_gym.sandbox.providers import list_providers  # noqa: PLC0415 - its only use

        provider = {provider: {}} if provider in list_providers() else resolve_provider_config(provider)
    return create_provider(resolve_provider_config(provider)) if isinstance(provider, Mapping) else provider


__getattr__ = missing_from("nemo_gym.sandbox.api")
