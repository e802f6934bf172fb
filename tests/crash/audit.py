"""The audit of a run from its files alone: nothing lost, nothing invented, nothing altered, nothing kept twice.

It knows the right reward of every task, so that it need not believe what the engine says of itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.crash.faulty_policy import completion
from tests.crash.harness import Key, Tasks

_PASSING: Final = (".new", ".partial", ".repaired", ".lock", ".sock")
"""What only a run that is under way may have beside its files."""


@dataclass(frozen=True)
class Files:
    """What the files of a run say."""

    output: Path
    scored_lines: list[bytes]
    """Complete lines; a torn end is not one."""
    scored: dict[Key, dict[str, Any]]
    failures: list[dict[str, Any]]
    failed: set[Key]
    """Not scored, and failed for good."""
    planned: list[Key]
    manifest: dict[str, Any] | None
    is_done: bool

    @property
    def owed(self) -> set[Key]:
        return set(self.planned) - set(self.scored) - self.failed


def beside(output: Path, suffix: str) -> Path:
    """Another file of the run."""
    return output.with_name(output.stem + suffix)


def complete_lines(path: Path) -> list[bytes]:
    """The lines of a file that have their newline; none if it is not there."""
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def key_of(row: dict[str, Any]) -> Key:
    return row["_ng_task_index"], row["_ng_rollout_index"]


def read_files(output: Path, max_attempts: int) -> Files:
    """Read what is there, strictly: every complete line must be whole."""
    lines = complete_lines(output)
    rows = [json.loads(line) for line in lines]
    scored = {key_of(row): row for row in rows}
    assert len(scored) == len(rows), f"kept twice: {[key for key, n in Counter(map(key_of, rows)).items() if n > 1]}"
    failures = [json.loads(line) for line in complete_lines(beside(output, "_failures.jsonl"))]
    attempts = Counter(map(key_of, failures))
    for_good = {key_of(row) for row in failures if row.get("_ng_failure_terminal")}
    for_good |= {key for key, number in attempts.items() if number >= max_attempts}
    plan = [json.loads(line) for line in complete_lines(beside(output, "_materialized_inputs.jsonl"))]
    manifest = beside(output, "_run.json")
    return Files(
        output,
        lines,
        scored,
        failures,
        for_good - set(scored),
        [key_of(row) for row in plan],
        json.loads(manifest.read_bytes()) if manifest.exists() else None,
        output.with_name(output.name + ".done").exists(),
    )


def assert_true_so_far(files: Files, tasks: Tasks) -> None:
    """What holds at any moment, whatever was killed: nothing invented, nothing altered, nothing foreign."""
    assert not files.planned or (len(files.planned) == len(set(files.planned)) and set(files.planned) == tasks.keys())
    assert set(files.scored) <= tasks.keys()
    assert {key_of(row) for row in files.failures} <= tasks.keys()
    for key, row in files.scored.items():
        assert_right(row, key, tasks)
    for row in files.failures:
        assert "reward" not in row, "a failure has a reward"
        assert row["failure"]["kind"] == row["_ng_failure_class"] != "unknown"
    if files.manifest is not None:
        counts = files.manifest["counts"]
        assert counts["requested"] == len(tasks.keys())
        assert counts["requested"] == counts["scored"] + sum(counts["failed"].values()) + counts["owed"]
        if files.manifest["state"] == "complete":
            assert not files.owed
    if files.is_done:
        assert files.manifest is not None
        assert files.manifest["state"] == "complete"


def assert_right(row: dict[str, Any], key: Key, tasks: Tasks) -> None:
    """A scored row has the reward that its task deserves, for what the policy really said."""
    letter = tasks.letter(key[0])
    assert row["reward"] == tasks.reward(key[0]), f"{key}: reward {row['reward']}"
    assert row["extracted_answer"] == letter, f"{key}: {row['extracted_answer']!r} instead of {letter!r}"
    said = "".join(part["text"] for item in row["response"]["output"] for part in item.get("content") or ())
    assert said == completion(letter)["choices"][0]["message"]["content"]
    assert row["agent_ref"] == {"name": "mcqa_simple_agent"}


def assert_complete(files: Files, tasks: Tasks) -> None:
    """What holds at the end: every requested rollout is scored or has failed for good, and the books say exactly so."""
    assert_true_so_far(files, tasks)
    assert len(files.planned) == len(tasks.keys())
    assert not files.owed
    assert files.manifest is not None
    assert (files.manifest["state"], files.is_done) == ("complete", True)
    counts = files.manifest["counts"]
    assert (counts["requested"], counts["owed"]) == (len(tasks.keys()), 0)
    assert counts["scored"] == len(files.scored)
    assert sum(counts["failed"].values()) == len(files.failed)
    assert counts["attempts"] >= len(files.scored_lines) + len(files.failures)
    last = {key_of(row): row["failure"]["kind"] for row in files.failures if key_of(row) in files.failed}
    assert {kind: number for kind, number in counts["failed"].items() if number} == dict(Counter(last.values()))
    assert json.loads(files.output.with_name(files.output.name + ".done").read_bytes()) == counts


def assert_tidy(output: Path) -> None:
    """A run that ended by itself has left nothing that only a running one needs."""
    left = [path.name for path in output.parent.iterdir() if path.name.endswith(_PASSING)]
    assert not left, f"left behind: {left}"


def assert_kept(before: Iterable[bytes], after: Files) -> None:
    """Scored lines that were complete are still there, byte for byte."""
    lost = set(before) - set(after.scored_lines)
    assert not lost, f"{len(lost)} scored lines were lost or altered, e.g. {next(iter(lost))[-120:]!r}"


def assert_only_owed(events: Sequence[dict[str, Any]], before: Files) -> None:
    """An invocation works on what was owed when it began and on nothing else."""
    worked = {(e["task"], e["rollout"]) for e in events if e["type"] in {"rollout_scored", "rollout_failed"}}
    settled = set(before.scored) | before.failed
    assert not worked & settled, f"settled, but run again: {sorted(worked & settled)[:5]}"
