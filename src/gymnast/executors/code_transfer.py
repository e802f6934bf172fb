"""How code gets to where jobs run: as installed, as a snapshot of a git repository, or in a container.

Each choice has a digest, which the submission records.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

import msgspec

from gymnast import __version__
from gymnast.config.environ import child_environ
from gymnast.errors import UserError
from gymnast.rollouts.identity import folder_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.sidecars.component import Container

CodeChoice = Literal["installed", "snapshot", "snapshot+dirty", "container"]
CHOICES: Final[tuple[CodeChoice, ...]] = get_args(CodeChoice)
_GIT_TIMEOUT_S: Final = 120.0


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs run."""

    choice: CodeChoice
    digest: str
    """`gymnast 0.1.0 1f2e…`, `git:<tree>`, or the image."""
    folder: str | None = None
    """Where a snapshot is unpacked."""
    workdir: str | None = None
    """The folder in the snapshot that matches the one of the submit."""
    packages: tuple[str, ...] = ()
    """Folders of a snapshot on Python's path."""
    note: str | None = None
    """A warning: uncommitted changes that were left out."""

    def environment(self) -> dict[str, str]:
        """Variables that put a snapshot's packages first on Python's path."""
        return {"PYTHONPATH": ":".join(self.packages)} if self.packages else {}

    def relocate(self, before: Path, after: Path) -> Code:
        """The same code as if it had been unpacked elsewhere."""

        def move(text: str) -> str:
            return str(after / Path(text).relative_to(before))

        return msgspec.structs.replace(
            self,
            folder=move(self.folder) if self.folder else None,
            workdir=move(self.workdir) if self.workdir else None,
            packages=tuple(map(move, self.packages)),
        )

    def details(self) -> dict[str, str]:
        """For the submission's record."""
        details = {"code": self.choice, "code_digest": self.digest, "code_folder": self.folder, "code_note": self.note}
        return {name: value for name, value in details.items() if value is not None}


def prepare_code(choice: CodeChoice, *, into: Path, cwd: Path, container: Container | None = None) -> Code:
    """Prepare the code for jobs. A snapshot is unpacked below `into`, once for each state of the repository."""
    if choice == "container":
        assert container is not None
        return Code(choice=choice, digest=f"image:{container.image}{_file_digest(container.image)}")
    if choice == "installed":
        package = Path(__file__).parents[1]
        return Code(choice=choice, digest=f"gymnast {__version__} {folder_digest(package)}")
    return _make_snapshot(choice, into=into, cwd=cwd)


def _make_snapshot(choice: CodeChoice, *, into: Path, cwd: Path) -> Code:
    root = Path(_git(cwd, "rev-parse", "--show-toplevel").strip())
    changed = _git(root, "status", "--porcelain").splitlines()
    with tempfile.TemporaryDirectory(prefix="gymnast-code-") as scratch:
        env = _isolated_git(root, Path(scratch))
        tree = _write_tree(root, env, dirty=choice == "snapshot+dirty" and bool(changed))
        folder = into / tree
        if not folder.exists():
            _unpack(root, tree, env, Path(scratch) / "code.tar", folder)
    workdir = folder / cwd.resolve().relative_to(root.resolve())
    warning = f"{len(changed)} uncommitted changes were left out (--code snapshot+dirty includes them)"
    return Code(
        choice=choice,
        digest=f"git:{tree}",
        folder=str(folder),
        workdir=str(workdir if workdir.is_dir() else folder),
        packages=tuple(str(path) for path in (folder / "src", folder) if path.is_dir()),
        note=warning if choice == "snapshot" and changed else None,
    )


def _isolated_git(root: Path, scratch: Path) -> dict[str, str]:
    """Variables for an index and an object store in `scratch`, so that the repository is not changed."""
    objects = scratch / "objects"
    objects.mkdir()
    own = _git(root, "rev-parse", "--path-format=absolute", "--git-path", "objects").strip()
    return {
        "GIT_INDEX_FILE": str(scratch / "index"),
        "GIT_OBJECT_DIRECTORY": str(objects),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": own,
    }


def _write_tree(root: Path, env: Mapping[str, str], *, dirty: bool) -> str:
    """The tree of the last commit, or of that and everything changed or new that is not ignored."""
    if not dirty:
        return _git(root, "rev-parse", "HEAD^{tree}").strip()
    _git(root, "read-tree", "HEAD", env=env)
    _git(root, "add", "--all", env=env)
    return _git(root, "write-tree", env=env).strip()


def _unpack(root: Path, tree: str, env: Mapping[str, str], packed: Path, folder: Path) -> None:
    _git(root, "archive", f"--output={packed}", tree, env=env)
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{tree}-", dir=folder.parent))
    with tarfile.open(packed) as archive:
        if hasattr(tarfile, "tar_filter"):  # Python 3.11.4 and newer
            archive.extraction_filter = staticmethod(tarfile.tar_filter)
        archive.extractall(new)  # noqa: S202 - what git itself wrote
    new.chmod(0o755)
    try:
        new.rename(folder)
    except OSError:  # another submit unpacked the same tree first
        shutil.rmtree(new)
        if not folder.is_dir():
            raise


def _git(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - fixed words and the name of a tree
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's own git
            env=child_environ(env or {}),
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise UserError("a snapshot needs git", next="install it, or use --code installed") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"git {arguments[0]} took more than {_GIT_TIMEOUT_S:.0f} s", where=str(folder)) from error
    if done.returncode:
        raise UserError(
            f"cannot make a snapshot of the code: {done.stderr.strip() or done.stdout.strip()}",
            where=f"git {' '.join(arguments)} in {folder}",
            next="submit from inside a git repository with a commit, or use --code installed",
        )
    return done.stdout


def _file_digest(image: str) -> str:
    """Size and time of an image file: reading tens of gigabytes at every submit would take too long."""
    path = Path(image)
    if not image.startswith("/") or not path.is_file():
        return ""
    stat = path.stat()
    return f" ({stat.st_size} bytes, modified {stat.st_mtime:.0f})"
