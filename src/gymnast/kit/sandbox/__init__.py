"""Running programs that a model wrote: never as us, never without limits."""

from gymnast.kit.sandbox.interface import (
    CallResult,
    Calls,
    Ending,
    Execution,
    Limits,
    Program,
    PythonSession,
    Sandbox,
    SandboxError,
)
from gymnast.kit.sandbox.opening import open_sandbox
from gymnast.kit.sandbox.settings import LimitSettings, SandboxSettings

__all__ = [
    "CallResult",
    "Calls",
    "Ending",
    "Execution",
    "LimitSettings",
    "Limits",
    "Program",
    "PythonSession",
    "Sandbox",
    "SandboxError",
    "SandboxSettings",
    "open_sandbox",
]
