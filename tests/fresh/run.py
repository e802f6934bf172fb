"""What a newcomer does: a clone, `make demo`, `make test`, the README's commands, a wheel. Run by `make test-fresh`.

    python3 tests/fresh/run.py [--keep] [--steps demo,test,readme,wheel] [--flaky FILE]

It clones the last commit of this checkout into a scratch folder (its path has a space and an accent) and works there as
an unprivileged user with an empty home folder and, on the path, only python3, make, git and the basic tools of a shell.
Nothing of this checkout's environment is used; only settings of pip and of proxies are passed on. It uses nothing but
Python's standard library, because it runs before anything is installed. With --flaky, failed tests run once more, and
those that pass then are added to that file.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = (
    "make git sh bash env cat cp mv rm ln ls mkdir rmdir touch chmod head tail sort uniq wc tr cut sed grep awk sleep "
    "true false test kill find dirname basename uname date id tee xargs mktemp printf expr tar gzip stty which"
)
PASSED_ON = re.compile(r"PIP_|SSL_CERT|REQUESTS_CA|https?_proxy$|no_proxy$", re.IGNORECASE)
PYTHON_WORKS = "import sys, ensurepip, venv; assert sys.version_info >= (3, 11)"


@dataclass(frozen=True)
class Newcomer:
    """A user with nothing of their own."""

    folder: Path
    uid: int | None
    """None: the user who runs this."""
    gid: int | None
    environ: Mapping[str, str]

    def run(self, words: Sequence[str], cwd: Path, *, quiet: bool = False) -> int:
        """The exit code of a command, run as this user in a session of its own."""
        with subprocess.Popen(
            words,
            cwd=cwd,
            env=dict(self.environ),
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if quiet else None,
            stderr=subprocess.DEVNULL if quiet else None,
        ) as process:
            return process.wait()

    def own(self, path: Path) -> None:
        """Give a folder and all that is in it to this user."""
        if self.uid is not None and self.gid is not None:
            for each in (path, *path.rglob("*")):
                os.chown(each, self.uid, self.gid, follow_symlinks=False)

    def leftovers(self) -> list[tuple[int, str]]:
        """Processes of this user that work below the scratch folder."""
        left = []
        for entry in Path("/proc").iterdir():
            try:
                if str(self.folder) in str((entry / "cwd").readlink()):
                    left.append((int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
            except (OSError, ValueError):
                continue
        return [(pid, words) for pid, words in left if pid != os.getpid()]

    def end_leftovers(self) -> None:
        for pid, _ in self.leftovers():
            os.kill(pid, signal.SIGKILL)


def make_newcomer(folder: Path) -> Newcomer:
    """An unprivileged user if we are root, otherwise the current one; with an empty home and a bare path."""
    nobody = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    home, tools, temporary = folder / "home", folder / "bin", folder / "tmp"
    for each in (home, tools, temporary):
        each.mkdir()
    for name in TOOLS.split():
        if (path := shutil.which(name)) is not None:
            (tools / name).symlink_to(path)
    environ = {name: value for name, value in os.environ.items() if PASSED_ON.match(name)}
    environ |= {"HOME": str(home), "PATH": str(tools), "TMPDIR": str(temporary), "TERM": "dumb"}
    user = Newcomer(folder, nobody and nobody.pw_uid, nobody and nobody.pw_gid, environ)
    folder.chmod(0o755)
    user.own(folder)
    return user


def find_python(user: Newcomer) -> str | None:
    """A Python of 3.11 or newer that the user can run and make environments with."""
    names = ["python3", *(f"python3.{minor}" for minor in range(11, 15))]
    found = [os.path.realpath(path) for name in names if (path := shutil.which(name)) is not None]
    for python in [sys.executable, *found, "/usr/local/bin/python3", "/usr/bin/python3"]:
        try:
            if user.run([python, "-c", PYTHON_WORKS], user.folder, quiet=True) == 0:
                return python
        except OSError:
            continue
    return None


def install_python() -> None:
    """Debian's own Python has no ensurepip until this package is there."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        words = "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv"
        subprocess.run(["sh", "-c", words], stdout=subprocess.DEVNULL, check=False)


def put_python(user: Newcomer) -> None:
    """Make it the user's `python3`, by its own name, so that it finds its library."""
    python = find_python(user)
    if python is None:
        install_python()
        python = find_python(user)
    if python is None:
        sys.exit("no Python 3.11 or newer with venv that an unprivileged user can run; on Debian: python3-venv")
    command = user.folder / "bin" / "python3"
    command.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    command.chmod(0o755)
    print(f"python3 is {python}", flush=True)


def readme_script(activate: Path) -> str:
    """The README's commands, in order, as one script that stops at the first failure."""
    blocks = re.findall(r"^```bash\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return "\n".join(["set -e", f"source {shlex.quote(str(activate))}", *blocks])


COMPARE = """
import pathlib, sys, zipfile
(wheel,) = pathlib.Path("wheels").glob("gymnast-*.whl")
tracked = {line.strip().removeprefix("src/") for line in sys.stdin}
missing = tracked - set(zipfile.ZipFile(wheel).namelist())
sys.exit(f"not in the wheel: {sorted(missing)}" if missing or not tracked else 0)
"""


def wheel_script(clone: Path, venv: Path) -> str:
    """Build a wheel, compare it with the clone, install it; run the demo and the README's commands from it."""
    activate = venv / "bin" / "activate"
    lines = [
        "set -e",
        f"python3 -m venv {shlex.quote(str(venv))}",
        f"source {shlex.quote(str(activate))}",
        f"pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir wheels {shlex.quote(str(clone))}",
        f"git -C {shlex.quote(str(clone))} ls-files src/gymnast > tracked",
        f"python -c {shlex.quote(COMPARE)} < tracked",
        "pip install --quiet --disable-pip-version-check wheels/gymnast-*.whl",
        "gymnast demo --tasks-per-level 1 -n 2",
    ]
    return "\n".join([*lines, readme_script(activate)])


def repeat_failed_tests(user: Newcomer, clone: Path, flaky: Path) -> int:
    """Run once more what failed. Names of tests that pass now are added to `flaky`. Returns the exit code."""
    try:
        failed = list(json.loads((clone / ".pytest_cache/v/cache/lastfailed").read_text()))
    except (OSError, ValueError):
        return 1  # it ended before any test did: a second try would hide that
    code = user.run(["make", "test", "PYTEST_OPTIONS=--last-failed"], clone) if failed else 1
    if code == 0:
        with flaky.open("a") as lines:
            lines.writelines(f"{name}\n" for name in failed)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave the scratch folder")
    parser.add_argument("--steps", default="demo,test,readme,wheel", help="which of these to run (default: all)")
    parser.add_argument("--flaky", type=Path, help="run failed tests once more, and list here those that pass then")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gymnast fresh é "))
    clone, elsewhere, failed = folder / "gymnast", folder / "elsewhere", []
    elsewhere.mkdir()
    user = make_newcomer(folder)
    try:
        put_python(user)
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
        user.own(clone)
        commands = {
            "demo": (["make", "demo"], clone),
            "test": (["make", "test"], clone),
            "readme": (["bash", "-c", readme_script(Path(".venv/bin/activate"))], clone),
            "wheel": (["bash", "-c", wheel_script(clone, elsewhere / "venv")], elsewhere),
        }
        for step in options.steps.split(","):
            started = time.monotonic()
            command, cwd = commands[step]
            print(f"== {step}: {' '.join(command)[:40]!r}", flush=True)
            code = user.run(command, cwd)
            if code and step == "test" and options.flaky:
                print("== test: once more, what failed", flush=True)
                code = repeat_failed_tests(user, clone, options.flaky)
            left = user.leftovers() if "make" in command else []  # the README starts servers in the background
            user.end_leftovers()
            print(f"== {step}: exit code {code}, {time.monotonic() - started:.0f} s", flush=True)
            if code or left:
                failed.append(step)
            for pid, words in left:
                print(f"left running: {pid} {words}", flush=True)
    finally:
        user.end_leftovers()
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"fresh: {'failed: ' + ', '.join(failed) if failed else 'all steps passed'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
