"""What a sandbox promises around its life: before it starts, after it stopped, its ports, and providers of others."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gymnast.compat.nemo_gym.sandbox import AsyncSandbox, Sandbox, SandboxHandle, SandboxSpec, SandboxStatus
from gymnast.compat.nemo_gym.sandbox.providers import (
    SandboxEndpoint,
    create_provider,
    get_provider_class,
    register_provider,
)
from gymnast.compat.nemo_gym.sandbox.providers.apptainer import ApptainerProvider
from gymnast.compat.nemo_gym.sandbox.providers.docker import DockerProvider


class FarmProvider:
    """A provider of a third party, with connections of its own and sandboxes that others may connect to."""

    name = "farm"

    def __init__(self) -> None:
        self.events: list[str] = []

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        self.events.append("create")
        return SandboxHandle("box", self.name, object())

    async def exec(self, handle: SandboxHandle, command: str, **options: Any) -> Any:
        return handle.sandbox_id, command, options["cwd"]

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        return SandboxStatus.RUNNING

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        return SandboxEndpoint(f"http://farm:{port}")

    async def serialize_handle(self, handle: SandboxHandle, *, scope: str | None = None) -> dict[str, Any]:
        return {"sandbox_id": handle.sandbox_id, "scope": scope}

    async def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle:
        return SandboxHandle(descriptor["sandbox_id"], self.name, None)

    async def close(self, handle: SandboxHandle) -> None:
        self.events.append("close")

    async def aclose(self) -> None:
        self.events.append("aclose")


async def test_a_sandbox_is_unknown_then_running_then_stopped_for_good() -> None:
    provider: Any = FarmProvider()
    sandbox = AsyncSandbox(provider)
    assert await sandbox.status() is SandboxStatus.UNKNOWN
    await sandbox.start(SandboxSpec())
    assert await sandbox.status() is SandboxStatus.RUNNING
    await sandbox.stop()
    await sandbox.stop()
    assert provider.events == ["create", "close", "aclose"]
    assert await sandbox.status() is SandboxStatus.STOPPED
    with pytest.raises(RuntimeError, match="was stopped"):
        await sandbox.start(SandboxSpec())


async def test_a_sandbox_that_never_started_closes_its_provider() -> None:
    provider: Any = FarmProvider()
    async with AsyncSandbox(provider):
        pass
    assert provider.events == ["aclose"]


@pytest.mark.parametrize("port", [0, 65536, True, "80", 81])
async def test_only_declared_ports_have_an_endpoint(port: Any) -> None:
    provider: Any = FarmProvider()
    async with AsyncSandbox(provider, SandboxSpec(ports=[80])) as sandbox:
        assert (await sandbox.endpoint(80)).endpoint == "http://farm:80"
        with pytest.raises(ValueError, match="port"):
            await sandbox.endpoint(port)


async def test_a_provider_of_others_serializes_and_connects_its_own_way() -> None:
    """`connect` expected our own descriptor and raised KeyError: 'raw'."""
    provider: Any = FarmProvider()
    async with AsyncSandbox(provider, SandboxSpec(workdir="/w")) as sandbox:
        descriptor = await sandbox.serialize(scope="operate")
        assert descriptor == {"sandbox_id": "box", "scope": "operate", "workdir": "/w"}
        again: Any = await AsyncSandbox.connect({"sandbox_id": "box", "workdir": "/w"}, provider=provider)
        assert await again.exec("ls") == ("box", "ls", "/w")
    docker: Any = DockerProvider()
    with pytest.raises(RuntimeError, match="cannot connect with a descriptor without provider_name, raw"):
        await AsyncSandbox.connect({"sandbox_id": "box"}, provider=docker)


def test_a_synchronous_sandbox_starts_in_its_block_and_stops_twice() -> None:
    """A block without a spec tried to start at once, and a second stop waited for an hour."""
    provider: Any = FarmProvider()
    with Sandbox(provider) as sandbox:
        assert provider.events == []
        sandbox.start(SandboxSpec(ports=[80]))
        assert sandbox.endpoint(80).endpoint == "http://farm:80"
        sandbox.stop()
    assert sandbox.status() is SandboxStatus.STOPPED
    with pytest.raises(RuntimeError, match="was stopped"):
        sandbox.exec("ls")


def test_a_taken_name_of_a_provider_needs_override() -> None:
    with pytest.raises(ValueError, match="'docker' is already registered"):
        register_provider("docker", FarmProvider)
    with pytest.raises(ValueError, match="must not be empty"):
        register_provider("", FarmProvider)
    register_provider("docker", FarmProvider, override=True)
    try:
        assert get_provider_class("docker") is FarmProvider
    finally:
        register_provider("docker", DockerProvider, override=True)
    with pytest.raises(TypeError, match="expected a mapping of options"):
        create_provider({"docker": ["image"]})


@pytest.mark.parametrize("kind", [DockerProvider, ApptainerProvider])
async def test_a_container_command_has_its_settings_and_stdin(kind: Any, tmp_path: Path) -> None:
    """`default_timeout_s` and Docker's `extra_exec_args` were read and had no effect."""
    engine = tmp_path / "engine"
    engine.write_text(
        '#!/bin/sh\ncase "$*" in *slow*) sleep 60 ;;\n'
        '*gone*) echo "Error response from daemon: No such container" >&2; exit 1 ;; esac\n'
        'echo "$@"; cat\n'
    )
    engine.chmod(engine.stat().st_mode | stat.S_IXUSR)
    provider = kind(exec={"default_timeout_s": 0.5, "extra_exec_args": ["--privileged"]})
    handle = SandboxHandle("box", provider.name, str(engine))
    result = await provider.exec(handle, "cat", stdin=b"piped", timeout_s=30)
    assert "--privileged" in result.stdout
    assert result.stdout.endswith("\npiped")
    slow = await provider.exec(handle, "slow")
    assert (slow.stdout, slow.return_code, slow.error_type) == (None, 125, "timeout")
    gone = await provider.exec(handle, "gone", timeout_s=30)
    assert (gone.return_code, gone.error_type) == (125, "sandbox")
    await provider.aclose()
