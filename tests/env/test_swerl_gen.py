"""swerl_gen: edits in answers, patches that attack their tests, archives, and failures of the infrastructure."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gymnast.builtin.resources_servers.swerl_gen import logs
from gymnast.builtin.resources_servers.swerl_gen.app import SwerlGen, SwerlGenSettings, SwerlGenTask
from gymnast.builtin.resources_servers.swerl_gen.edits import extract_patch, find_edits, find_script
from gymnast.builtin.resources_servers.swerl_gen.running import TestRun
from gymnast.builtin.resources_servers.swerl_gen.sandbox_main import is_protected
from gymnast.builtin.resources_servers.swerl_gen.strict_answers import file_patch, find_diff, find_strict_patch
from gymnast.sandbox import SandboxError
from tests.helpers.environments import Subject, check_cases, collect_examples, response, said, started
from tests.helpers.jsonl import example_rows
from tests.helpers.parts import needs

sandboxed = needs("bubblewrap")
SLUGS, _, _, MEAN, SCRIPT, _ = example_rows("swerl_gen")
OLD, NEW = "        return self.total // self.count", "        return self.total / self.count if self.count else None"


def edit(path: str, search: str, replace: str) -> str:
    return f"```python\n### {path}\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n```"


def solution(*edits: str) -> str:
    return "<solution>\n" + "\n".join(edits) + "\n</solution>"


FIX = solution(edit("mean.py", OLD, NEW))


def hack(code: str) -> str:
    """An answer that puts code at the start of the module."""
    first = '"""A running mean."""'
    return solution(edit("mean.py", first, f"{first}\n{code}"))


@asynccontextmanager
async def swerl_gen(**settings: Any) -> AsyncIterator[Subject]:
    async with started(SwerlGen, SwerlGenSettings(**{"sandbox_timeout": 120, **settings})) as subject:
        yield subject


# --- answers ----------------------------------------------------------------------------------------------------------


def test_edits_are_found_by_path_and_once() -> None:
    one, two = edit("a.py", "x", "y"), edit("a.py", "z", "")
    assert find_edits(f"{one}\n{two}\n{one}") == {"a.py": [("x", "y"), ("z", "")]}
    assert find_edits("```\n### a.py <<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE```") == {"a.py ": [("x", "y")]}
    assert find_edits(one.replace("### ", "##")) == {}


@pytest.mark.parametrize(
    "text",
    [
        "```\n### a\n<<<<<<< SEARCH\n" * 50_000,
        "```\n### a\n<<<<<<< SEARCH\n\n=======\n" * 30_000,
        "\n>>>>>>> REPLACE" * 60_000,
        "`" * 1_000_000,
        "```python\n" * 100_000,
    ],
)
def test_a_megabyte_of_openings_takes_no_time(text: str) -> None:
    assert find_edits(text) == {}
    find_script(text)


def test_a_patch_from_edits() -> None:
    files = {"repo/a.py": "x = 1\ny = 2\n"}
    text = solution(edit("repo/a.py", "y = 2", "y = 3"))
    patch = extract_patch(text, files, remove_repo_name=True, relaxed=False)
    assert patch == "diff --git a/a.py b/a.py\n--- old\n+++ new\n@@ -1,2 +1,2 @@\n x = 1\n-y = 2\n+y = 3\n"
    assert extract_patch(text.replace("<solution>", ""), files, remove_repo_name=True, relaxed=False) is None
    assert extract_patch(text.replace("<solution>", ""), files, remove_repo_name=True, relaxed=True) == patch


def test_strict_patches() -> None:
    assert file_patch("a.py", "x", "y") == (
        "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n"
        "-x\n\\ No newline at end of file\n+y\n\\ No newline at end of file\n"
    )
    assert "new file mode 100644\n--- /dev/null\n+++ b/n.py\n" in file_patch("n.py", None, "y\n")
    diff = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x\n+y\n"
    assert find_diff(f"So:\n```diff\n{diff}```\nDone.") == diff
    assert find_diff("--- a line of dashes") is None
    assert find_strict_patch(f"<think><solution>{diff}</solution></think>No.", {}, remove_repo_name=False) is None


# --- reports ----------------------------------------------------------------------------------------------------------


def results(run: TestRun, **changes: str) -> str:
    """The report of a run in which t passes and the canaries fail."""
    outcomes = {"t": "passed", f"test_{run.canary}_a": "failed", f"test_{run.canary}_b": "failed", **changes}
    lines = [
        {
            "secret": run.secret,
            "test": f"a.py::{name}",
            "when": when,
            "outcome": outcome if when == "call" else "passed",
        }
        for name, outcome in outcomes.items()
        for when in ("setup", "call", "teardown")
    ]
    return "".join(json.dumps(line) + "\n" for line in [*lines, {"secret": run.secret, "end": True}])


def test_reports_that_cannot_be_trusted() -> None:
    run = TestRun.make(["a.py::t", "a.py::u"])
    assert run.files == ("a.py",)
    good = results(run)
    assert run.read_passed_tests({"results": good}) == ({"a.py::t"}, None)
    ended = "ended before"
    forged, passing = "tampered", "must fail"
    for text, problem in [
        ("", ended),
        (good.rpartition("{")[0], ended),
        ("noise\n" + good, forged),
        (good.replace(run.secret, "0" * 32, 1), forged),
        (good + good, forged),
        (results(run, **{f"test_{run.canary}_b": "passed"}), passing),
        (results(run, **{f"test_{run.canary}_a": "skipped"}), passing),
    ]:
        names, reason = run.read_passed_tests({"results": text})
        assert names == set()
        assert problem in str(reason)


@pytest.mark.parametrize(
    ("path", "existed", "protected"),
    [
        ("pkg/module.py", True, False),
        ("pkg/new.py", False, False),
        ("tests/test_a.py", True, True),
        ("tests/test_other.py", True, False),
        ("conftest.py", False, True),
        ("pkg/conftest.py", True, True),
        ("pytest.ini", False, True),
        ("setup.cfg", True, True),
        ("pyproject.toml", True, True),
        ("pytest.py", False, True),
        ("_pytest/runner.py", False, True),
        ("json/__init__.py", False, True),
        ("random.py", False, True),
        ("json/__init__.py", True, False),
        ("sitecustomize.py", False, True),
        ("x.pth", False, True),
    ],
)
def test_what_a_patch_may_not_touch(path: str, existed: bool, protected: bool) -> None:  # noqa: FBT001 - parameters
    assert is_protected(path, ["tests/test_a.py"], existed) is protected


def test_a_resolution_needs_a_patch_that_was_applied() -> None:
    instance = {"repo": "a/b", "FAIL_TO_PASS": '["t"]', "PASS_TO_PASS": []}
    assert logs.resolution("Applied patch x cleanly.\nPASSED t", instance) == logs.FULL
    assert logs.resolution("PASSED t", instance) == logs.NO


# --- the sandbox ------------------------------------------------------------------------------------------------------


@sandboxed
async def test_verifier_cases() -> None:
    async with swerl_gen() as subject:
        await check_cases(subject, "swerl_gen")


NEVER = """
import builtins


class Never(Exception):
    pass


builtins.AssertionError = Never
"""
DESCRIPTORS = """
import glob, os

for path in glob.glob('/proc/[0-9]*/fd/*'):
    try:
        os.write(os.open(path, os.O_WRONLY | os.O_NONBLOCK), b'{"results": ""}')
    except OSError:
        pass
"""
REPORTS = """
import os

for fd in range(3, 20):
    try:
        os.write(fd, b'{"test": "tests/test_mean.py::test_fractions"}' + os.linesep.encode())
    except OSError:
        pass
"""
DESELECTS = """
import _pytest.main

_pytest.main.Session.perform_collect = lambda self, *_, **__: setattr(self, 'items', []) or []
"""
ATTACKS: dict[str, str] = {
    "hangs": "while True:\n    pass",
    "exits with success": "import os\n\nos._exit(0)",
    "ends all processes": "import os, signal\n\nos.kill(-1, signal.SIGKILL)",
    "writes to every descriptor it can open": DESCRIPTORS,
    "rewrites the tests": "open('tests/test_mean.py', 'w').write('def test_fractions(): pass\\n')",
    "makes assertions something else": NEVER,
    "writes reports of its own": REPORTS,
    "deselects tests": DESELECTS,
}


@sandboxed
@pytest.mark.parametrize("name", ATTACKS)
async def test_a_patch_that_attacks_its_tests_gets_nothing(name: str) -> None:
    async with swerl_gen(scoring="strict", sandbox_timeout=60 if name != "hangs" else 15) as subject:
        verdict = await subject.verify(MEAN, hack(ATTACKS[name]))
        assert verdict["reward"] == 0.0, verdict["verification_result"]
        assert verdict["verification_result"]["resolution"] == "RESOLVED_NO"


FULL_DISK = """
import os

size = 1 << 20
while size:
    try:
        with open(f'../fill{size}', 'ab') as file:
            while file.write(b'x' * size):
                file.flush()
    except OSError:
        size //= 4
for name in ('..', '.'):
    os.chmod(name, 0)
"""
VOIDS: dict[str, str] = {
    "fills the disk": FULL_DISK,
    "prints what is not text": "import os\n\nos.write(1, bytes([255, 254]) * 9)",
    "removes everything": "import shutil\n\nshutil.rmtree('..', ignore_errors=True)",
    "ends the process that reports": "import os, signal\n\nos.kill(os.getppid(), signal.SIGTERM)",
}


@sandboxed
async def test_what_an_answer_does_to_its_own_sandbox_is_not_a_failure_of_ours() -> None:
    """Otherwise an answer that is wrong could have itself retried until it is dropped."""
    async with swerl_gen(scoring="strict", sandbox_timeout=60) as subject:
        for code in VOIDS.values():
            assert (await subject.verify(MEAN, hack(code)))["reward"] == 0.0, code
            assert (await subject.verify(SCRIPT, f"```python\n{code}\n```"))["reward"] == 0.0, code


@sandboxed
async def test_a_hang_is_a_timeout_in_nemo_gyms_words() -> None:
    async with swerl_gen(sandbox_timeout=8) as subject:
        verdict = await subject.verify(MEAN, hack("while True:\n    pass"))
        result = {"return_codes_after_patch": None, "return_codes_before_patch": None}
        assert verdict["verification_result"] == {"status": "timeout", "resolution": None, **result}
        assert verdict["reward"] == 0.0


def packed(files: dict[str, str], kind: str, folder: Path) -> Path:
    """The files as an archive."""
    path = folder / f"repository.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                archive.writestr(f"mean-1.0/{name}", text)
    elif kind == "bundle":
        source = folder / "source"
        for name, text in files.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_text(text)
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        for command in (
            ["init", "-q"],
            ["add", "-A"],
            ["commit", "-qm", "base"],
            ["bundle", "create", str(path), "HEAD"],
        ):
            subprocess.run(["git", *who, *command], cwd=source, check=True, capture_output=True)
    else:
        with tarfile.open(path, "w:gz") as tar:
            for name, text in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text.encode())
                tar.addfile(entry, io.BytesIO(text.encode()))
    return path


@sandboxed
@pytest.mark.parametrize("kind", ["tar.gz", "zip", "bundle"])
async def test_a_repository_may_be_an_archive(kind: str, tmp_path: Path) -> None:
    metadata = {name: value for name, value in MEAN["metadata"].items() if name != "files"}
    archive = str(packed(MEAN["metadata"]["files"], kind, tmp_path))
    async with swerl_gen() as subject:
        verdict = await subject.verify({**MEAN, "metadata": {**metadata, "archive": archive}}, FIX)
        assert verdict["reward"] == 1.0, verdict


@sandboxed
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row["metadata"].update(files={"../out.py": ""}), "leads out of the repository"),
        (lambda row: row["instance"].update(FAIL_TO_PASS="[]"), "at least one test"),
        (lambda row: row["instance"].update(FAIL_TO_PASS="{"), "FAIL_TO_PASS"),
        (lambda row: row["instance"].update(FAIL_TO_PASS=["test_a (tests.A)"]), "expected tests such as"),
        (lambda row: row["instance"].pop("repo"), "missing: repo"),
    ],
)
async def test_rows_that_cannot_be_scored_are_refused(change: Callable[[Any], Any], message: str) -> None:
    row = json.loads(json.dumps(MEAN))
    change(row)
    async with swerl_gen(scoring="strict") as subject:
        reply = await subject.calls.call("env", "/verify", {**row, "response": response(said(FIX))})
        assert reply.status == 422
        assert message in str(reply.body)


@pytest.mark.parametrize("name", [0, 7.5, False, ["a"]])
def test_an_instance_may_have_any_id(name: Any) -> None:
    instance = {**example_rows("swerl_gen")[0]["instance"], "instance_id": name}
    assert SwerlGenTask.model_validate({"instance": instance}).instance["instance_id"] == name


@sandboxed
async def test_a_sandbox_that_fails_is_a_failure_and_not_a_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> None:
        raise SandboxError("no jail today")

    async with swerl_gen() as subject:
        monkeypatch.setattr(subject.server.sandbox, "run", fail)
        reply = await subject.calls.call("env", "/verify", {**MEAN, "response": response(said(FIX))})
        assert reply.status == 500
        assert reply.failure is not None
        assert reply.failure.kind == "sandbox_failed"


@sandboxed
async def test_a_run_over_the_examples(tmp_path: Path) -> None:
    fixes = [
        solution(edit("text/slugs.py", "    return slug[:limit]", '    return slug[:limit].rstrip("-")')),
        solution(edit("intervals.py", "        return self.high - self.low + 1", "        return 0")),
        "no idea",
        FIX,
        "```python\nimport sys\nfrom text.slugs import shorten\nsys.exit(2 if shorten('a-b', 2) == 'a-' else 0)\n```",
        "```python\nraise SystemExit(2)\n```",
    ]
    records = await collect_examples(tmp_path, "swerl_gen", fixes)
    assert [record["reward"] for record in records] == [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]
    assert records[4]["verification_result"]["return_codes_before_patch"] == [2]
    assert SLUGS["mode"] == "eval"
    assert SCRIPT["mode"] == "repro-gen"
