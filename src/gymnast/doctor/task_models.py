"""Finds the task model of a builtin environment. Other code is not executed for it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gymnast.config.roots import BUILTIN

if TYPE_CHECKING:
    from gymnast.store.manifest import Manifest


def task_model_of(manifest: Manifest | None, instance: str) -> Any:
    """The task model of a run's instance, or None."""
    settings = manifest.settings.get(instance) if manifest is not None else None
    implementation = settings.get("implementation") if isinstance(settings, dict) else None
    if not isinstance(implementation, str) or not (BUILTIN / implementation / "app.py").is_file():
        return None
    name = f"gymnast.builtin.{implementation.replace('/', '.')}.app"
    try:
        __import__(name)
    except Exception:  # noqa: BLE001 - the diagnosis continues without it
        return None
    members = vars(sys.modules[name]).values()
    servers = [member for member in members if isinstance(member, type) and member.__module__ == name]
    return next((server.task_type for server in servers if hasattr(server, "task_type")), None)
