"""Our commands called as functions in this process: the exit code and the output of a process without starting one."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.helpers.commands import Outcome


def invoke_command(
    folder: Path, command: str, *arguments: str, env: Mapping[str, str] | None = None, encoding: str = "utf-8"
) -> Outcome:
    """Call an installed command as if it were typed in a folder; `encoding` is that of its output."""
    (entry,) = entry_points(group="console_scripts", name=command)
    main = entry.load()
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace", write_through=True)
    with pytest.MonkeyPatch.context() as patch, chdir(folder), redirect_stdout(out), redirect_stderr(err):
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", [command, *arguments])
        code = _exit_code(main)
    return Outcome(code, _text(out), _text(err))


def _exit_code(main: Callable[[], object]) -> int:
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
