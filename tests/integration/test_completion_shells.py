"""Real shells complete command lines with the scripts that `gymnast completion` prints."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gymnast.cli.completion import SHELLS
from tests.helpers.parts import skip_without

PATIENCE_S = 120.0
SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or ""
READY = "rea" + "dy"  # not as a whole in the line that is typed
SETUP = {
    "bash": "source ./script; echo rea''dy\n",
    "zsh": "autoload -U compinit; compinit -u -D; source ./script; echo rea''dy\n",
}
COMMAND = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}
LINES = [
    ("gymnast coll", "gymnast collect"),
    ("gymnast collect --num-r", "gymnast collect --num-repeats"),
    ("gymnast collect -e mcq", "gymnast collect -e mcqa"),
    ("gymnast collect --environment=mcq", "gymnast collect --environment=mcqa"),
    ("gymnast collect -e mcqa ++mcqa.res", "gymnast collect -e mcqa ++mcqa.resources_servers."),
    ("gymnast profile run", "gymnast profile runs/only.jsonl"),
    (r"gymnast collect -c my\ c", r"gymnast collect -c my\ conf.yaml"),
    ('gymnast collect -c "my c', 'gymnast collect -c "my conf.yaml"'),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "gymnast"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m gymnast.cli.main "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    (tmp_path / "my conf.yaml").write_text("")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "only_run.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Terminal:
    """An interactive shell in a pseudo-terminal."""

    def __init__(self, shell: str) -> None:
        self.process, self._terminal = pty.fork()
        if self.process == 0:
            os.environ.update(TERM="dumb", PS1="$ ", HISTFILE="/dev/null")
            os.execvp(COMMAND[shell][0], COMMAND[shell])

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def read_until(self, text: str) -> str:
        """What the shell prints up to `text`, or all of it if that does not come."""
        seen, deadline = "", time.monotonic() + PATIENCE_S
        while text not in seen and time.monotonic() < deadline:
            if select.select([self._terminal], [], [], 0.2)[0]:
                seen += os.read(self._terminal, 65536).decode(errors="replace")
        return seen

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process, 9)
        os.waitpid(self.process, 0)
        os.close(self._terminal)


@pytest.fixture
def terminal(request: pytest.FixtureRequest, folder: Path) -> Iterator[Terminal]:
    shell = request.param
    if shutil.which(shell) is None:
        skip_without(shell)
    (folder / "script").write_text(SHELLS[shell])
    opened = Terminal(shell)
    try:
        opened.type(SETUP[shell])
        assert READY in opened.read_until(READY)
        yield opened
    finally:
        opened.close()


@pytest.mark.parametrize("terminal", ["bash", "zsh"], indirect=True)
def test_a_tab_completes_the_line(terminal: Terminal) -> None:
    for typed, completed in LINES:
        terminal.type(f"{typed}\t")
        assert completed in terminal.read_until(completed), typed
        terminal.type("\x15")


def test_fish_offers_the_same(folder: Path) -> None:
    if shutil.which("fish") is None:
        skip_without("fish")
    (folder / "script").write_text(SHELLS["fish"])

    def offer(line: str) -> str:
        code = f"source ./script; complete -C {line!r}"
        return subprocess.run(["fish", "--no-config", "-c", code], check=True, capture_output=True, text=True).stdout

    assert offer("gymnast coll") == "collect\tCollect scored rollouts for a dataset.\n"
    assert offer("gymnast collect --environment=mcq") == "--environment=mcqa\n"
    assert offer("gymnast profile run") == "runs/only.jsonl\n"
    assert offer("gymnast collect -c my") == "my conf.yaml\n"


def test_the_bash_script_is_clean() -> None:
    check = subprocess.run(
        [SHELLCHECK, "--shell=bash", "-"], input=SHELLS["bash"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stdout
