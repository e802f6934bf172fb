"""The interface of a sandbox, the same for every driver (bubblewrap, Docker, Podman, Apptainer)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Ending = Literal["exited", "timeout", "memory", "output", "killed"]
"""exited: with any exit code; output: wrote more than allowed; killed: by a signal, for too many processes, or because
it took its own jail down."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use."""

    wall_s: float = 10.0
    cpu_s: float = 10.0
    memory_mb: int = 512
    processes: int = 64
    file_mb: int = 16
    tmp_mb: int = 64
    output_bytes: int = 1 << 20
    """For each of standard output and standard error."""


@dataclass(frozen=True, slots=True)
class Execution:
    """How a program ended."""

    ending: Ending
    exit_code: int | None
    """None unless `ending` is "exited"."""
    stdout: str
    stderr: str
    seconds: float
    cpu_seconds: float = 0.0
    result: Any = None
    """For a step of a session: the repr of its last expression, as the interpreter printed it."""

    @property
    def ok(self) -> bool:
        return self.ending == "exited" and self.exit_code == 0


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of one call of the program's function."""

    outcome: Literal["returned", "raised", "not_reached"] | Ending
    """not_reached: the program ended during an earlier call. An ending: the program ended during this one."""
    value: Any = None
    """What it returned, decoded from JSON: tuples become lists, and objects that compare equal to anything are lost."""
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.outcome == "returned"


@dataclass(frozen=True, slots=True)
class FunctionCalls:
    """The results of several calls in one process, and how that process ended."""

    results: tuple[CallResult, ...]
    """One per list of arguments."""
    execution: Execution


@dataclass(frozen=True, slots=True)
class Program:
    """A command to run. `files` are written to its working directory, by relative path."""

    command: Sequence[str] = ("python3", "main.py")
    files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)


class PythonSession(Protocol):
    """A Python interpreter that keeps its variables between calls. `alive` is false once it was killed."""

    @property
    def alive(self) -> bool: ...

    async def execute(self, code: str, limits: Limits) -> Execution:
        """Run code. `result` is the repr of the last line if that is an expression, else None.

        Afterwards all processes of the session are stopped until the next call. Once it is not `alive`, the result is
        "killed".
        """
        ...


class Sandbox(Protocol):
    """Runs programs in isolation, several at the same time up to the pool's size."""

    async def run(self, program: Program) -> Execution:
        """Run a program to its end. Raises SandboxError only when the sandbox itself fails."""
        ...

    async def run_python(self, code: str, *, stdin: bytes = b"", limits: Limits | None = None) -> Execution:
        """Run a Python program from the warm pool."""
        ...

    async def call_function(
        self, code: str, function: str, arguments: Sequence[Sequence[Any]], limits: Limits | None = None
    ) -> FunctionCalls:
        """Run `code`, then call its function with each list of arguments; the deadline applies to each call.

        Arguments go in and returned values come out, both as JSON. Compare them outside the sandbox: whatever the
        program prints, patches or forges affects only its own results. `function` is `f`, `Class.method`, or a method
        of a class called Solution.
        """
        ...

    def python_session(self) -> AbstractAsyncContextManager[PythonSession]:
        """A stateful interpreter."""
        ...


class SandboxError(Exception):
    """The sandbox failed, not the program in it: an infrastructure failure, never a reward of 0.

    A program that stops, starves or kills what watches it does not cause one: that is how the program ended.
    """
