"""What the crash tests run: tasks of which the right reward is known, an endpoint, and collections one after the other.

Everything is a process of its own that can be killed; nothing that was started outlives its block.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import psutil

from tests.helpers.commands import BIN, Outcome
from tests.helpers.jsonl import write_jsonl

ROOT: Final = Path(__file__).resolve().parents[2]
LETTERS: Final = "ABCD"
PATIENCE_S: Final = 300.0
"""How long a collection may take at most: far more than any of them needs."""
Key = tuple[int, int]
Victim = Literal["collector", "worker", "child", "policy"]
_MODULES: Final = {"worker": "gymnast.rollouts.worker", "child": "gymnast.runtime.child"}


# --- tasks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tasks:
    """Questions of which the policy gets some right and some wrong; which ones is known here only."""

    number: int
    repeats: int
    seed: int = 0

    def letter(self, task: int) -> str:
        """What the policy is told to answer."""
        return random.Random(f"letter/{self.seed}/{task}").choice(LETTERS)

    def reward(self, task: int) -> float:
        return float(random.Random(f"reward/{self.seed}/{task}").random() < 0.6)

    def write(self, path: Path) -> Path:
        return write_jsonl(path, [self._row(task) for task in range(self.number)])

    def keys(self) -> set[Key]:
        return {(task, rollout) for task in range(self.number) for rollout in range(self.repeats)}

    def _row(self, task: int) -> dict[str, Any]:
        told = self.letter(task)
        right = told if self.reward(task) else LETTERS[(LETTERS.index(told) + 1) % len(LETTERS)]
        content = f"Question {task} of {self.seed}: answer with the letter {told}."
        return {
            "responses_create_params": {"input": [{"role": "user", "content": content}]},
            "options": [{letter: f"option {letter}"} for letter in LETTERS],
            "expected_answer": right,
            "uuid": f"task-{task}",
        }


# --- processes -------------------------------------------------------------------------------------------------------


class Policy:
    """The endpoint in a process of its own, which can be killed and comes back at the same address."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.crash.faulty_policy", "--port", str(self.port), *self._arguments]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def served(self) -> Counter[str]:
        """How often each behaviour was met since the endpoint was last started."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/served", timeout=60) as answer:
            return Counter(json.load(answer))


@contextmanager
def policy_running(*arguments: str) -> Iterator[Policy]:
    """An endpoint that is gone afterwards."""
    policy = Policy(*arguments)
    try:
        policy.start()
        yield policy
    finally:
        policy.kill()


class Collection:
    """One `gymnast collect` after the other on the same output, each in a process of its own."""

    def __init__(self, folder: Path, tasks: Tasks, url: str, *arguments: str, output: str = "x.jsonl") -> None:
        self.folder = folder
        self.output = folder / output
        self.invocations = 0
        self.talks_to = self.output.stem
        """What the files with its talk are called."""
        self.process: subprocess.Popen[bytes] | None = None
        self._arguments = (
            *("collect", "-e", "mcqa", "--model-type", "vllm_model", "-m", "faulty", "--model-url", url),
            *("-i", str(tasks.write(folder / "tasks.jsonl")), "-o", output, "-n", str(tasks.repeats), "--json"),
            *arguments,
        )
        self._seen: set[psutil.Process] = set()

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        """Begin, or resume if there was an invocation before."""
        resume = ("--resume",) if self.invocations else ()
        self.invocations += 1
        command = [str(BIN / "gymnast"), *self._arguments, *resume, *more]
        with self._talk("out").open("wb") as out, self._talk("err").open("wb") as err:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=out, stderr=err)
        return self.process

    def finish(self, *more: str) -> Outcome:
        """Wait for the end of what runs (start it if nothing does)."""
        process = self.process or self.start(*more)
        deadline = time.monotonic() + PATIENCE_S
        while process.poll() is None:
            assert time.monotonic() < deadline, f"hung; it said:\n{self.said()}"
            self._descendants()
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
        self.process = None
        return Outcome(process.returncode, self._talk("out").read_text(), self.said())

    def said(self) -> str:
        return self._talk("err").read_text()

    def events(self) -> list[dict[str, Any]]:
        """What the last invocation told of itself; a killed one may have been cut off in the middle of a line."""
        return [json.loads(line) for line in self.talk().split(b"\n")[:-1]]

    def talk(self) -> bytes:
        """Its events as they stand on standard output."""
        return self._talk("out").read_bytes()

    def processes(self, kind: Victim) -> list[psutil.Process]:
        """The living worker or child processes of the running collection, oldest first."""
        found = [process for process in self._descendants() if _MODULES[kind] in _command_line(process)]
        return sorted(found, key=lambda process: process.pid)

    def kill(self) -> None:
        """SIGKILL to the collector alone: what it started has to notice by itself."""
        assert self.process is not None
        self._descendants()
        self.process.kill()
        self.process.wait()
        self.process = None

    def stop(self) -> None:
        """Leave nothing behind."""
        if self.process is not None:
            self.kill()
        for process in self._still_alive(timeout_s=0):
            process.kill()

    def assert_nothing_left(self) -> None:
        """Everything that any of the collectors started ended with it."""
        alive = [_command_line(process) for process in self._still_alive(timeout_s=10)]
        assert not alive, f"left running: {alive}"

    def _still_alive(self, *, timeout_s: float) -> list[psutil.Process]:
        _, alive = psutil.wait_procs(self._seen, timeout=timeout_s)
        return [process for process in alive if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]

    def _descendants(self) -> list[psutil.Process]:
        if self.process is None or self.process.poll() is not None:
            return []
        try:
            found = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        self._seen.update(found)
        return found

    def _talk(self, stream: str) -> Path:
        return self.folder / f"{self.talks_to}-{self.invocations}.{stream}"


@contextmanager
def collecting(folder: Path, tasks: Tasks, url: str, *arguments: str, output: str = "x.jsonl") -> Iterator[Collection]:
    """A collection that has left nothing running afterwards."""
    collection = Collection(folder, tasks, url, *arguments, output=output)
    try:
        yield collection
        collection.assert_nothing_left()
    finally:
        collection.stop()


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""
