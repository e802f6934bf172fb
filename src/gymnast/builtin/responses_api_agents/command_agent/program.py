"""Finds the program of a command before the first rollout, and says how to install one that is missing.

A command works in a fresh folder, so paths that are relative to where Gymnast was started are made absolute.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.kit import CommandSpec, FailureDetail, FailureKind, Stage, UserError, inherited_environ

from .rollout_folder import fill, fixed_placeholders

if TYPE_CHECKING:
    from .app import CommandAgentSettings

_SCRIPTS: Final = (".py", ".sh", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl")
_MAX_ARGUMENT_BYTES: Final = 128 << 10
"""Of one argument, on Linux."""
_IMPORT_TIMEOUT_S: Final = 120.0
_MAX_IMPORT_ERROR: Final = 300


def find_unusable_text(spec: CommandSpec, agent: str) -> FailureDetail | None:
    """The failure of a task whose text cannot be an argument or a variable: too long, or with a NUL character."""
    for text in (*spec.argv, *(f"{name}={value}" for name, value in spec.environment.items())):
        size_bytes = len(text.encode("utf-8", "surrogateescape"))
        if size_bytes < _MAX_ARGUMENT_BYTES and "\0" not in text:
            continue
        reason = "has a NUL character" if "\0" in text else f"is too long ({size_bytes:,} bytes)"
        message = f"the task's text {reason} for an argument or a variable: set prompt_via to stdin or file"
        return FailureDetail(FailureKind.AGENT_REJECTED, Stage.AGENT, message, instance=agent)
    return None


def resolve_paths(settings: CommandAgentSettings) -> str | list[str]:
    """The command with the relative paths of existing files made absolute. A shell command is left as it is."""
    command = settings.command
    if isinstance(command, str):
        return command
    return [_resolve(part, is_program=number == 0) for number, part in enumerate(command)]


def check_program(settings: CommandAgentSettings, agent: str) -> None:
    """Raise UserError if the program, or a Python package that it needs, is not installed."""
    if isinstance(settings.command, str) or settings.sandbox is not None:
        return
    program = fill(resolve_paths(settings)[0], fixed_placeholders(settings.python))
    environ = inherited_environ(settings.inherit_environment) | settings.environment
    if "{" in program:
        return
    if not program:
        raise UserError("the command is empty", where=agent, next="set `command` of the agent")
    path = Path(program)
    if path.is_absolute() and path.is_file() and not os.access(path, os.X_OK):
        raise UserError(f"the program '{program}' is not executable", where=agent, next=f"chmod +x {program}")
    if shutil.which(program, path=environ.get("PATH")) is None:
        searched = "" if "/" in program else " in PATH"
        raise UserError(
            f"the program '{program}' of the agent was not found{searched}",
            where=agent,
            next=settings.install or "install it, or fix `command` of the agent",
        )
    interpreter = _find_interpreter(path)
    if interpreter is not None and not Path(interpreter).exists():
        raise UserError(
            f"the program '{program}' needs the interpreter {interpreter}, which does not exist",
            where=agent,
            next=settings.install or f"fix the first line of {program}",
        )
    for package in settings.python_packages:
        _check_import(program, package, environ, settings, agent)


def _find_interpreter(path: Path) -> str | None:
    """The interpreter of a script, from its first line."""
    try:
        with path.open("rb") as file:
            first = file.readline(256)
    except OSError:
        return None
    words = first[2:].split() if first.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else None


def _check_import(
    python: str, package: str, environ: dict[str, str], settings: CommandAgentSettings, agent: str
) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that the settings name
            [python, "-c", f"import {package}"],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_IMPORT_TIMEOUT_S,
            check=False,
        )
        error = done.stderr.strip().splitlines()[-1:] if done.returncode else None
    except subprocess.TimeoutExpired:
        error = [f"still importing after {_IMPORT_TIMEOUT_S:.0f} s"]
    if error is None:
        return
    reason = f": {error[0][:_MAX_IMPORT_ERROR]}" if error else ""
    install = f"{settings.install}; " if settings.install else ""
    raise UserError(
        f"{python} cannot import the package '{package}'{reason}",
        where=agent,
        next=f"{install}another interpreter: ++agent_settings.python=PATH",
    )


def _resolve(part: str, *, is_program: bool) -> str:
    if part.startswith(("/", "-", "{")) or not ("/" in part or (part.endswith(_SCRIPTS) and not is_program)):
        return part
    path = Path.cwd() / part
    return str(path) if path.is_file() else part
