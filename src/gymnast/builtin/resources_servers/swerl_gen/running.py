"""Runs a row's repository in the sandbox: what goes in, and what its reports mean.

Under strict scoring a report counts only if it carries the run's secret, every wanted test passed, and the canaries,
tests that must fail, did fail: they detect a patch that makes every test pass.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import orjson

from gymnast.kit import Execution, JsonObject, Limits, Program, Sandbox, SandboxError, bounded, precompile

from .sandbox_main import STARTED

_HERE: Final = Path(__file__).parent
_DISTRIBUTIONS: Final = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
_CANARIES: Final = """


def test_{name}_a():
    assert {left} == {right}


def test_{name}_b():
    raise RuntimeError({left})
"""


class RowError(ValueError):
    """A row that cannot be run, whatever the answer."""


@dataclass(frozen=True, slots=True)
class Repository:
    """What a row's repository consists of."""

    files: Mapping[str, str] = field(default_factory=dict)
    archive: bytes = b""


@dataclass(frozen=True, slots=True)
class Verification:
    """How a run in the sandbox ended."""

    status: str
    report: JsonObject


async def run_action(
    sandbox: Sandbox, limits: Limits, action: str, repository: Repository, request: Mapping[str, Any]
) -> Verification:
    """Run one action of sandbox_main.py. Raises RowError if the row is broken, SandboxError if the sandbox is."""
    body = {
        "action": action,
        "versions": _versions(),
        "files": repository.files,
        "archive": bool(repository.archive),
        **request,
    }
    files = {
        "main.py": precompile(_HERE / "sandbox_main.py").encode(),
        "logs.py": (_HERE / "logs.py").read_bytes(),
        **({"archive": repository.archive} if repository.archive else {}),
    }
    execution = await sandbox.run(Program(files=files, stdin=_encode(body), limits=limits))
    if execution.ending != "exited":
        return Verification("timeout" if execution.ending == "timeout" else "done", {"ending": execution.ending})
    report = _parse(execution)
    if "broken" in report:
        raise RowError(str(report["broken"]))
    return Verification("done", report)


@cache
def _versions() -> dict[str, str]:
    """The versions of pytest and what it imports, as far as they are installed here."""
    return {name: version(name) for name in _DISTRIBUTIONS if find_spec(name) is not None}


def _encode(body: JsonObject) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError:  # integers beyond 64 bits, and lone surrogates
        return json.dumps(body).encode()


def _parse(execution: Execution) -> JsonObject:
    """The report. None at all is a failure of the sandbox, except after the answer's part has started."""
    _, _, text = execution.stdout.rpartition(f"{STARTED}\n")
    try:
        report = json.loads(text)
    except ValueError:
        report = None
    if isinstance(report, dict) and execution.exit_code == 0:
        return report
    if execution.stdout != text:
        return {"ending": "failed", "log": bounded(execution.stderr[-500:])}
    raise SandboxError(f"no report from the sandbox: {bounded(execution.stderr[-500:])}")


@dataclass(frozen=True, slots=True)
class TestRun:
    """One run of pytest: its secret, its canaries and the tests that it should pass."""

    __test__ = False

    files: tuple[str, ...]
    secret: str
    canary: str

    @classmethod
    def make(cls, names: Sequence[str]) -> TestRun:
        files = tuple(dict.fromkeys(name.partition("::")[0] for name in names))
        return cls(files, secrets.token_hex(16), secrets.token_hex(6))

    def request(self) -> JsonObject:
        number = secrets.randbelow(1_000_000)
        return {
            "test_files": list(self.files),
            "secret": self.secret,
            "canaries": _CANARIES.format(name=self.canary, left=number, right=number + 1),
            "runner": (_HERE / "pytest_runner.py").read_text(encoding="utf-8"),
        }

    def read_passed_tests(self, report: JsonObject) -> tuple[set[str], str | None]:
        """The tests that passed, and why the report cannot be trusted, if so."""
        outcomes: dict[str, list[tuple[str, str]]] = {}
        ended = False
        for line in str(report.get("results", "")).splitlines():
            entry = _entry(line)
            if entry is None or entry.get("secret") != self.secret or ended:
                return set(), "the report of the tests was tampered with"
            if entry.get("end"):
                ended = True
            else:
                outcome = "xfail" if entry.get("xfail") else str(entry.get("outcome"))
                outcomes.setdefault(str(entry.get("test")), []).append((str(entry.get("when")), outcome))
        if not ended:
            return set(), "the tests ended before all of them ran"
        for file in {name.partition("::")[0] for name in outcomes}:
            for kind in ("a", "b"):
                phases = outcomes.get(f"{file}::test_{self.canary}_{kind}", [])
                if not any(outcome == "failed" for _, outcome in phases):
                    return set(), "tests pass that must fail"
        whole = [("setup", "passed"), ("call", "passed"), ("teardown", "passed")]
        return {name for name, phases in outcomes.items() if phases == whole}, None


def _entry(line: str) -> JsonObject | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def with_deadline(limits: Limits, seconds: float) -> Limits:
    """The sandbox's limits with a deadline for the whole verification."""
    return replace(limits, wall_s=seconds, cpu_s=seconds)
