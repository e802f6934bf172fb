"""What environments ask of a sandbox, whichever driver provides it (bubblewrap, Docker, Podman, Apptainer)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Ending = Literal["exited", "timeout", "memory", "output", "killed"]
"""exited: by itself, with any code; output: wrote more than allowed; killed: by a signal, or too many processes."""


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
    """Of standard output and of standard error, each."""


@dataclass(frozen=True, slots=True)
class Execution:
    """How a program ended."""

    ending: Ending
    exit_code: int | None
    """None unless it exited by itself."""
    stdout: str
    stderr: str
    seconds: float
    cpu_seconds: float = 0.0
    result: Any = None
    """For a step of a session: the text of its last line's value, in the interpreter's own words."""

    @property
    def ok(self) -> bool:
        return self.ending == "exited" and self.exit_code == 0


@dataclass(frozen=True, slots=True)
class CallResult:
    """What came of one call of the program's function."""

    outcome: Literal["returned", "raised", "not_reached"] | Ending
    """not_reached: the program ended in an earlier call. Otherwise an ending: of the program, in this call."""
    value: Any = None
    """What it returned, through JSON: tuples arrive as lists, and objects that equal everything do not arrive."""
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.outcome == "returned"


@dataclass(frozen=True, slots=True)
class Calls:
    """What came of several calls in one process, and how that process ended."""

    results: tuple[CallResult, ...]
    """One for each list of arguments."""
    execution: Execution


@dataclass(frozen=True, slots=True)
class Program:
    """Something to run. `files` are put into its working directory, by relative path."""

    command: Sequence[str] = ("python3", "main.py")
    files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)


class PythonSession(Protocol):
    """A Python interpreter that keeps its variables between calls. Lost when it is killed: then `alive` is false."""

    @property
    def alive(self) -> bool: ...

    async def execute(self, code: str, limits: Limits) -> Execution:
        """Run code; `result` is the repr of the last line if that is an expression, else None."""
        ...


class Sandbox(Protocol):
    """Runs programs apart from everything else. Several at once; the pool bounds how many."""

    async def run(self, program: Program) -> Execution:
        """Run a program to its end. Raises SandboxError only when the sandbox itself fails."""
        ...

    async def run_python(self, code: str, *, stdin: bytes = b"", limits: Limits | None = None) -> Execution:
        """Run a Python program from the warm pool."""
        ...

    async def call_function(
        self, code: str, function: str, arguments: Sequence[Sequence[Any]], limits: Limits | None = None
    ) -> Calls:
        """Define `code`, then call its function with each list of arguments; the deadline holds for each call.

        Only arguments go in and only returned values come out, both as JSON. Compare them outside: what the program
        prints, patches or forges changes nothing but its own answers. `function` may be `f`, `Class.method`, or a
        method of a class called Solution.
        """
        ...

    def python_session(self) -> AbstractAsyncContextManager[PythonSession]:
        """A stateful interpreter."""
        ...


class SandboxError(Exception):
    """The sandbox itself failed (not the program in it): an infrastructure failure, never a reward of 0."""
