"""Settings of a sandbox: the driver, how many programs run at the same time, and their default limits."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from gymnast.config.server_settings import Settings
from gymnast.sandbox.interface import Limits

DriverName = Literal["auto", "bubblewrap", "docker", "podman", "apptainer", "none"]


class LimitSettings(Settings):
    """`Limits` in a configuration."""

    wall_s: PositiveFloat = 10.0
    cpu_s: PositiveFloat = 10.0
    memory_mb: PositiveInt = 512
    processes: PositiveInt = 64
    file_mb: PositiveInt = 16
    tmp_mb: PositiveInt = 64
    output_bytes: PositiveInt = 1 << 20

    def limits(self) -> Limits:
        return Limits(**self.model_dump())


class SandboxSettings(Settings):
    """The `sandbox` block of an environment that runs programs."""

    driver: DriverName = "auto"
    """auto: bubblewrap; an error where it is missing, never a weaker driver."""
    unsafe_no_sandbox: bool = False
    """Must be true for `driver: none`, which runs programs unsandboxed as your user, with limits only."""
    pool_size: PositiveInt | None = None
    """Programs that run at the same time; by default the number of cores."""
    session_limit: PositiveInt = 256
    """Stateful interpreters that exist at the same time."""
    recycle_after: NonNegativeInt = 500
    """Replace a warm jail after this many programs; 1 uses a new one for each program, 0 never replaces."""
    limits: LimitSettings = LimitSettings()
    """Limits of calls that give none."""
    python: Path | None = None
    """The Python that programs get, with its packages. By default the one that Gymnast runs on, with the standard
    library only. Gymnast must not be installed in it."""
    packages: tuple[str, ...] = ()
    """Packages of Gymnast's own Python that programs may import, such as numpy. Bubblewrap only, without `python`."""
    preload: tuple[str, ...] = (
        "bisect",
        "collections",
        "functools",
        "heapq",
        "itertools",
        "json",
        "math",
        "random",
        "re",
    )
    """Modules that a warm interpreter has already imported."""
    read_only: tuple[Path, ...] = ()
    """Additional folders that programs may read, at the same paths."""
    hide: tuple[Path, ...] = ()
    """Folders below the readable ones to hide from programs."""
    image: str = Field(default="docker.io/library/python:3.11-slim")
    """For docker, podman (an image) and apptainer (an image, a .sif file or a folder)."""
    cgroup: Literal["auto", "off"] | Path = "auto"
    """Where to create control groups for jails: detected (auto), nowhere (off), or in a folder delegated to you."""
