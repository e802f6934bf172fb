"""`gym --version` and `ng_version`: versions, and what this machine is."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from gymnast import __version__
from gymnast.config.roots import BUILTIN

NEMO_GYM: Final = "0.5.1"
"""The version of NeMo Gym whose commands, wire and files these are."""
_PACKAGES: Final = ("openai", "ray")


def print_version(*, as_json: bool) -> None:
    """Print the versions of Gymnast, of the NeMo Gym that it is compatible with, and of what they run on."""
    print(json.dumps(version_info()) if as_json else "\n".join(version_lines()))


def version_info() -> dict[str, Any]:
    """The versions, with NeMo Gym's keys; `gymnast` is ours."""
    machine = os.uname()
    return {
        "nemo_gym": NEMO_GYM,
        "gymnast": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "python_path": sys.executable,
        "installation_path": str(BUILTIN.parent),
        "dependencies": {name: _installed_version(name) for name in _PACKAGES},
        "system": {
            "os": f"{machine.sysname} {machine.release}",
            "platform": f"{machine.sysname}-{machine.release}-{machine.machine}",
            "architecture": machine.machine,
            "processor": machine.machine,
            "cpus": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 2),
        },
    }


def version_lines() -> list[str]:
    info = version_info()
    return [
        f"gymnast {info['gymnast']} (commands, wire and files of NeMo Gym {info['nemo_gym']})",
        f"Python {info['python']} ({info['python_path']}) on {info['system']['platform']}",
        *(f"{name} {installed or 'not installed'}" for name, installed in info["dependencies"].items()),
    ]


def _installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
