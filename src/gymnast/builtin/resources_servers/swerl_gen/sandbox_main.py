"""Runs inside the sandbox: unpacks a repository, applies a patch, runs tests, and reports on standard output.

Standard library only, with `logs.py` next to it. This process never imports the repository's code. What runs the code
under test are children with their own output files; they cannot read or write this process's descriptors.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import importlib.metadata
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_STATUS = re.compile(r"reproduction test status:(\w+)")
_GIT = ["git", "-c", "user.name=swerl", "-c", "user.email=swerl@localhost", "-c", "init.defaultBranch=main"]
_PR_SET_DUMPABLE = 4
_ROOT_HOME = "/root"  # where scripts of NeMo Gym's rows expect their files
_MAX_TAIL = 20_000
_MAX_RESULTS = 1 << 20
_MAX_LOG = 32 << 20
_COMMANDS = {
    "pytest": "#!/usr/bin/env python3\nimport pytest\n\nraise SystemExit(pytest.console_main())\n",
    "python": '#!/bin/sh\nexec python3 "$@"\n',
}
_WITH_TOOLS = """\
export PATH="$1:$PATH" PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$1" HOME="$2"
shift 2
exec "$@"
"""
_PY = "import sys\nfrom _pytest._py import error, path\nsys.modules.update({'py.error': error, 'py.path': path})\n"
"""The module `py`, which pytest has as a single file and imports; the sandbox shows folders only."""
STARTED = "the answer's part starts"
Report = dict[str, Any]


class BrokenRowError(Exception):
    """The row cannot be run, whatever the answer."""


class Workspace:
    """The repository and the folders around it."""

    def __init__(self, request: Report) -> None:
        self.root = Path.cwd().resolve()
        self.repo = self.root / "testbed"
        self.home = self.root / "home"
        self.tools = self.root / "tools"
        self.base_dir = str(request["instance"].get("base_dir") or "/testbed")
        for folder in (self.repo, self.home, self.tools):
            folder.mkdir()
        for name, text in _COMMANDS.items():
            (self.tools / name).write_text(text)
            (self.tools / name).chmod(0o755)
        (self.tools / "py.py").write_text(_PY)
        self._add_metadata(request["versions"])

    def command(self, *argv: str) -> list[str]:
        """A command that finds the tools of this workspace."""
        return ["bash", "-c", _WITH_TOOLS, "bash", str(self.tools), str(self.home), *argv]

    def _add_metadata(self, versions: dict[str, str]) -> None:
        """Tell the versions of packages that were mounted without their metadata; pytest prints one of them."""
        for name, version in versions.items():
            try:
                importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                folder = self.tools / f"{name}-{version}.dist-info"
                folder.mkdir()
                (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    def script(self, text: str) -> str:
        """A script with the paths of containers replaced by those of this workspace."""
        return text.replace(f"{_ROOT_HOME}/", f"{self.home}/").replace(self.base_dir, str(self.repo))

    def run(self, argv: list[str], stdin: str = "") -> tuple[int, str, str]:
        """Run a command in the repository. Output that is not UTF-8 is an error, as for a log that cannot be read."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            done = subprocess.run(  # noqa: S603 - inside of the sandbox
                self.command(*argv), input=stdin.encode(), stdout=out, stderr=errors, cwd=self.repo, check=False
            )
            out.seek(0)
            errors.seek(0)
            return done.returncode, out.read().decode(), errors.read().decode()

    def bash(self, text: str) -> str:
        """The output of a script, without colours."""
        _, out, errors = self.run(["bash", "-c", self.script(text)])
        return _plain(out) + _plain(errors)

    def git(self, *arguments: str, stdin: str = "") -> tuple[int, str]:
        code, out, errors = self.run([*_GIT, *arguments], stdin)
        return code, out + errors

    def apply(self, patch: str) -> tuple[int, str]:
        """Apply a patch; the exit code and what git says."""
        code, text = self.git("apply", "-v", "-", stdin=f"{patch}\n")
        return code, text.replace("…", "...")


def main() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # or children could write to our standard output
    request = json.loads(sys.stdin.buffer.read())
    try:
        report = _ACTIONS[request["action"]](request)
    except BrokenRowError as error:
        report = {"broken": str(error)}
    sys.stdout.write(json.dumps(report))


def _announce_answer() -> None:
    """Report that the row's own part worked: what fails from here on is the work of the answer."""
    sys.stdout.write(f"{STARTED}\n")
    sys.stdout.flush()


def unpack(request: Report) -> Workspace:
    """The repository of a row, as a git repository with one commit at least."""
    work = Workspace(request)
    if shutil.which("git") is None:
        raise BrokenRowError("git is not installed where programs run")
    for name, text in request["files"].items():
        path = (work.repo / name).resolve()
        if not path.is_relative_to(work.repo):
            raise BrokenRowError(f"the path '{name}' leads out of the repository")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, newline="")
    if request["archive"]:
        _unpack_archive(work, work.root / "archive", request["instance"].get("base_commit"))
    if not (work.repo / ".git").exists():
        for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "--allow-empty", "-m", "base")):
            code, text = work.git(*arguments)
            if code:
                raise BrokenRowError(f"git {arguments[0]}: {text[-500:]}")
    _announce_answer()
    return work


def _unpack_archive(work: Workspace, archive: Path, commit: str | None) -> None:
    data = archive.read_bytes()
    if data.startswith(b"# v"):  # a git bundle
        code, text = work.git("clone", "-q", str(archive), ".")
        if code == 0 and commit:
            code, text = work.git("checkout", "-q", commit)
        if code:
            raise BrokenRowError(f"the bundle cannot be checked out: {text[-500:]}")
        return
    try:
        if data.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(data)) as files:
                files.extractall(work.repo)  # noqa: S202 - it drops paths that lead out
        else:
            with tarfile.open(fileobj=io.BytesIO(data)) as files:
                files.extractall(work.repo, filter="data")
    except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise BrokenRowError(f"the archive cannot be read: {error}") from error
    entries = list(work.repo.iterdir())
    if len(entries) == 1 and entries[0].is_dir() and entries[0].name != ".git":
        inner = entries[0].rename(work.root / "unpacked")
        work.repo.rmdir()
        inner.rename(work.repo)


# --- as NeMo Gym does -------------------------------------------------------------------------------------------------


def evaluate(request: Report) -> Report:
    """Set up, apply the patch, run the test script, and read its log."""
    logs: Any = importlib.import_module("logs")  # next to this file in the sandbox
    work, instance = unpack(request), request["instance"]
    own_parser = "run_script.sh" in instance and "parsing_script.py" in instance
    if own_parser:
        for name in ("run_script.sh", "parsing_script.py"):
            (work.home / name).write_text(work.script(instance[name]))
    try:
        log = work.bash(instance["setup_script"]) + work.apply(request["patch"])[1] + work.bash(instance["test_script"])
        results = None
        if own_parser and logs.is_patched(log):
            tests = json.loads((work.home / "output.json").read_text()).get("tests", {})
            results = {test.get("name", ""): test.get("status", "") for test in tests}
        return {"resolution": logs.resolution(log, instance, results), "log": log[-_MAX_TAIL:]}
    except (ValueError, LookupError, TypeError, AttributeError, OSError) as error:
        return {"resolution": None, "log": f"{type(error).__name__}: {error}"}


def reproduce(request: Report) -> Report:
    """Run a script before and after the reference patch, in the same folder."""
    work, script = unpack(request), request["script"]
    try:
        codes = []
        for patch in (None, request["patch"]):
            work.bash(request["instance"]["regression_script"])
            if patch is not None:
                work.apply(patch)
            path = work.repo / script["name"]
            if not path.exists():
                path.write_text(script["code"] + "\n", newline="")
            command = f"python {path.name} 2>&1; code=$?; echo; echo reproduction test status:$code"
            _, out, _ = work.run(["bash", "-c", command])
            codes.append([int(status) for status in _STATUS.findall(out)[:1]])
    except (ValueError, OSError):
        codes = [None, None]  # type: ignore[list-item]
    return {"before": codes[0], "after": codes[1]}


# --- strictly ---------------------------------------------------------------------------------------------------------


def test(request: Report) -> Report:
    """Apply a patch that leaves the tests alone, and run the tests with pytest."""
    work = unpack(request)
    setup = work.bash(request["instance"]["setup_script"])
    if "error: patch" in setup:
        raise BrokenRowError(f"setup_script: {setup[-500:]}")
    before = _snapshot(work.repo)
    if request["patch"]:
        code, text = work.apply(request["patch"])
        if code:
            return {"refused": f"the patch does not apply: {text[-300:].strip()}"}
    after = _snapshot(work.repo)
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    protected = [path for path in changed if is_protected(path, request["test_files"], path in before)]
    if protected:
        return {"refused": f"the patch changes what tests depend on: {', '.join(protected[:5])}"}
    shutil.rmtree(work.repo / ".git")
    return _run_pytest(work, request)


def is_protected(path: str, test_files: list[str], existed: bool) -> bool:  # noqa: FBT001 - its meaning is clear where it is called
    """Whether a patch may not touch a file: tests, what configures them, and what shadows Python's own modules."""
    name = Path(path)
    if path in test_files or name.suffix == ".pth" or path.startswith(".git/"):
        return True
    if name.name in {"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", "sitecustomize.py", "usercustomize.py"}:
        return True
    if existed:
        return name.name in {"tox.ini", "setup.cfg", "pyproject.toml"} and len(name.parts) == 1
    shadowing = sys.stdlib_module_names | {"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py"}
    return name.parts[0].partition(".")[0] in shadowing or name.name in {"tox.ini", "setup.cfg"}


def _snapshot(folder: Path) -> dict[str, str]:
    """Every file below a folder by a digest of its type, mode and content."""
    digests = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if name.parts[0] == ".git" or (path.is_dir() and not path.is_symlink()):
            continue
        data = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        digests[str(name)] = f"{path.lstat().st_mode:o} {hashlib.sha256(data).hexdigest()}"
    return digests


def _run_pytest(work: Workspace, request: Report) -> Report:
    for name in request["test_files"]:
        if (work.repo / name).is_file():
            with (work.repo / name).open("a") as file:
                file.write(request["canaries"])
    (work.root / "runner.py").write_text(request["runner"])
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as channel:
        arguments = {"secret": request["secret"], "files": request["test_files"], "channel": channel.fileno()}
        done = subprocess.run(  # noqa: S603 - inside of the sandbox
            work.command(sys.executable, str(work.root / "runner.py")),
            input=json.dumps(arguments).encode(),
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=work.repo,
            pass_fds=(channel.fileno(),),
            check=False,
        )
        out.seek(0)
        channel.seek(0)
        written = channel.read(_MAX_RESULTS).decode(errors="replace")
        log = out.read(_MAX_LOG)[-_MAX_TAIL:]
    return {"results": written, "exit_code": done.returncode, "log": log.decode(errors="replace")}


def run_script(request: Report) -> Report:
    """The exit code of a script in the repository, after a patch if there is one."""
    work, script = unpack(request), request["script"]
    work.bash(request["instance"]["regression_script"])
    if request["patch"]:
        code, text = work.apply(request["patch"])
        if code:
            raise BrokenRowError(f"instance.patch does not apply: {text[-300:].strip()}")
    shutil.rmtree(work.repo / ".git")  # it would tell whether the patch is applied
    (work.repo / script["name"]).write_text(script["code"] + "\n", newline="")
    code, _, _ = work.run(["python3", script["name"]])
    return {"exit_code": code}


def _plain(text: str) -> str:
    return _COLORS.sub("", text.replace("…", "..."))


_ACTIONS = {"evaluate": evaluate, "reproduce": reproduce, "test": test, "run_script": run_script}

if __name__ == "__main__":
    main()
