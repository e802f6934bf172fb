"""Files that were damaged between two runs: what is whole is kept, what is not is set aside, nothing is believed."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.crash.audit import (
    Files,
    assert_complete,
    assert_kept,
    assert_only_owed,
    beside,
    complete_lines,
    key_of,
    read_files,
)
from tests.crash.harness import Policy, Tasks, collecting, policy_running

TASKS = Tasks(12, 4)
ATTEMPTS = 3
ARGUMENTS = (
    *("--max-attempts", str(ATTEMPTS), "--concurrency", "8"),
    "++policy_model.responses_api_models.vllm_model.max_attempts=1",
)


@dataclass(frozen=True)
class Interrupted:
    """A run that was drained: some rollouts are scored, some attempts failed, some are owed."""

    folder: Path
    policy: Policy
    files: Files

    def invented(self, **changes: Any) -> bytes:
        """A record of a rollout that is still owed, which nobody ever scored."""
        key = min(self.files.owed)
        row = json.loads(self.files.scored_lines[0])
        row.update({"_ng_task_index": key[0], "_ng_rollout_index": key[1], "reward": 0.5, **changes})
        identity = {name: row.pop(name) for name in ("_ng_task_index", "_ng_rollout_index", "agent_ref")}
        kept = {name: value for name, value in row.items() if value is not ...}
        return json.dumps({**kept, **identity}, separators=(",", ":")).encode()


@pytest.fixture(scope="module")
def policy() -> Iterator[Policy]:
    with policy_running("--slow-s", "0.05", "--fault", "500=0.1") as running:
        yield running


@pytest.fixture(scope="module")
def original(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    folder = tmp_path_factory.mktemp("interrupted")
    with collecting(folder, TASKS, policy.url, *ARGUMENTS) as collection:
        process = collection.start()
        while b"rollout_failed" not in (talk := collection.talk()) or talk.count(b"rollout_scored") < 15:
            assert process.poll() is None, collection.said()
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert collection.finish().code == 130
    files = read_files(folder / "x.jsonl", ATTEMPTS)
    assert files.owed
    assert files.failures
    return Interrupted(folder, policy, files)


@pytest.fixture
def interrupted(original: Interrupted, tmp_path: Path) -> Interrupted:
    """A copy to damage."""
    shutil.copytree(original.folder, tmp_path, dirs_exist_ok=True)
    return Interrupted(tmp_path, original.policy, read_files(tmp_path / "x.jsonl", ATTEMPTS))


Bytes = Callable[[Interrupted], bytes]

LINES: dict[str, Bytes] = {
    "torn": lambda run: run.invented()[:-30],
    "torn and joined with the next": lambda run: run.invented()[:200] + run.invented(),
    "zeros and then a record": lambda run: bytes(512) + run.invented(),
    "binary": lambda _: bytes(byte for byte in range(256) if byte not in b"\r\n") * 4,
    "white space": lambda _: b"   ",
    "null": lambda _: b"null",
    "a list": lambda run: b"[" + run.invented() + b"]",
    "an empty object": lambda _: b"{}",
    "no key": lambda _: b'{"reward":1.0}',
    "broken inside": lambda run: run.invented().replace(b'"response":', b'"response"', 1),
    "bad UTF-8 inside": lambda run: run.invented().replace(b"Question", b"Qu\xff\xfestion", 1),
    "nested without end": lambda _: b"[" * 100_000,
    "text as index": lambda run: run.invented(_ng_rollout_index="0"),
}
"""What no file of a run may hold."""
UNSCORED: dict[str, Bytes] = {
    "no reward": lambda run: run.invented(reward=...),
    "null reward": lambda run: run.invented(reward=None),
    "text as reward": lambda run: run.invented(reward="1.0"),
    "truth as reward": lambda run: run.invented(reward=True),
    "NaN as reward": lambda run: run.invented(reward=float("nan")),
    "a second record": lambda run: json.dumps({**json.loads(run.files.scored_lines[-1]), "reward": 0.25}).encode(),
}
"""What is no record of a scored rollout, or not the first one."""
ENDS: dict[str, Bytes] = {
    "torn": lambda run: run.invented()[:-30],
    "zeros": lambda _: bytes(4096),
    "blank lines": lambda _: b"\n\r\n  \n",
    "half of a key": lambda run: run.invented()[: run.invented().rindex(b"_ng_rollout_index") + 5],
}


def scattered(lines: list[bytes], damage: list[bytes], seed: int) -> bytes:
    """The lines of a file with damage between them, the lines in their order."""
    chance = random.Random(seed)
    for line in damage:
        lines.insert(chance.randrange(1, len(lines) + 1), line)
    return b"".join(line + b"\n" for line in lines)


def assert_mended(run: Interrupted) -> None:
    """The run is resumed to its end and everything that was whole before is still there."""
    with collecting(run.folder, TASKS, run.policy.url, *ARGUMENTS) as collection:
        collection.invocations = 1
        done = collection.finish()
        assert done.code in {0, 1}, done.err
        assert "Traceback" not in done.err
        after = read_files(collection.output, ATTEMPTS)
        assert_complete(after, TASKS)
        assert_kept(run.files.scored_lines, after)
        assert_only_owed(collection.events(), run.files)


@pytest.mark.parametrize("seed", range(2))
def test_damaged_lines_among_the_scored_rollouts(interrupted: Interrupted, seed: int) -> None:
    output = interrupted.files.output
    damage = [make(interrupted) for make in (*LINES.values(), *UNSCORED.values())]
    # A second record is one because it comes second: the first line stays the first, and the last is where it was.
    *lines, last = interrupted.files.scored_lines
    output.write_bytes(scattered([last, *lines], damage, seed))
    assert_mended(interrupted)
    assert sorted(complete_lines(output.with_name("x.jsonl.damaged"))) == sorted(damage)


@pytest.mark.parametrize("seed", range(2))
def test_damaged_lines_among_the_failures(interrupted: Interrupted, seed: int) -> None:
    failures = beside(interrupted.files.output, "_failures.jsonl")
    damage = [make(interrupted) for make in LINES.values()]
    damage.append(interrupted.invented(reward=..., failure="evidence of a wrong type"))
    failures.write_bytes(scattered(complete_lines(failures), damage, seed))
    assert_mended(interrupted)
    assert sorted(complete_lines(failures.with_name("x_failures.jsonl.damaged"))) == sorted(damage)


@pytest.mark.parametrize("end", ENDS)
def test_damaged_ends(interrupted: Interrupted, end: str) -> None:
    for path in (interrupted.files.output, beside(interrupted.files.output, "_failures.jsonl")):
        with path.open("ab") as stream:
            stream.write(ENDS[end](interrupted))
    assert_mended(interrupted)


def test_a_scored_line_that_lost_its_end_is_owed_again(interrupted: Interrupted) -> None:
    output = interrupted.files.output
    output.write_bytes(output.read_bytes()[:-20])
    cut = Interrupted(interrupted.folder, interrupted.policy, read_files(output, ATTEMPTS))
    assert len(cut.files.owed) == len(interrupted.files.owed) + 1
    assert_mended(cut)
    assert key_of(json.loads(interrupted.files.scored_lines[-1])) in read_files(output, ATTEMPTS).scored
