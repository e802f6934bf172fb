"""How programs are kept apart: which driver, how many at once, and what each may use unless the caller says more."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from gymnast.kit.sandbox.interface import Limits
from gymnast.kit.settings import Settings

DriverName = Literal["auto", "bubblewrap", "docker", "podman", "apptainer", "none"]


class LimitSettings(Settings):
    """`Limits`, as a configuration says them."""

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
    """auto: bubblewrap, and nothing else in its place where it is missing."""
    unsafe_no_sandbox: bool = False
    """Must be true for `driver: none`, which runs programs as you, with limits but without walls."""
    pool_size: PositiveInt | None = None
    """How many programs run at once; by default as many as there are cores."""
    session_limit: PositiveInt = 256
    """How many stateful interpreters exist at once."""
    recycle_after: NonNegativeInt = 500
    """Programs after which a warm jail is replaced by a new one; 1 replaces it every time."""
    limits: LimitSettings = LimitSettings()
    """For calls that name no limits of their own."""
    python: Path | None = None
    """The Python that programs get, with its packages. By default the one Gymnast runs on, with the standard library
    only. It must not be an environment in which Gymnast is installed."""
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
    """Modules that a warm interpreter has imported already."""
    read_only: tuple[Path, ...] = ()
    """Further folders that programs may read, at the same paths."""
    hide: tuple[Path, ...] = ()
    """Folders below the readable ones that programs must not see."""
    image: str = Field(default="docker.io/library/python:3.11-slim")
    """For docker, podman (an image) and apptainer (an image, a .sif file or a folder)."""
    cgroup: Literal["auto", "off"] | Path = "auto"
    """Where control groups for jails are made: found by itself, nowhere, or below a folder delegated to you."""
