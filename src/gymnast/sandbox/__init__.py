"""Sandboxes for model-written programs: isolated from the host, with limits on time, memory and output."""

from gymnast.sandbox.drivers import open_sandbox
from gymnast.sandbox.interface import (
    CallResult,
    Ending,
    Execution,
    FunctionCalls,
    Limits,
    Program,
    PythonSession,
    Sandbox,
    SandboxError,
)
from gymnast.sandbox.settings import LimitSettings, SandboxSettings

__all__ = [
    "CallResult",
    "Ending",
    "Execution",
    "FunctionCalls",
    "LimitSettings",
    "Limits",
    "Program",
    "PythonSession",
    "Sandbox",
    "SandboxError",
    "SandboxSettings",
    "open_sandbox",
]
