"""How code gets to where jobs run, on purpose: as it is installed, as a snapshot of a git repository, in a container.

Whatever is chosen has a digest, which the submission records.
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

    from gymnast.cluster.components.spec import Container

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
    """Where in the snapshot the command was given."""
    packages: tuple[str, ...] = ()
    """Folders of a snapshot in which Python looks for packages."""
    note: str | None = None
    """What a person should know: changes that stayed behind."""

    def environment(self) -> dict[str, str]:
        """Variables that make Python find a snapshot's packages first."""
        return {"PYTHONPATH": ":".join(self.packages)} if self.packages else {}

    def moved(self, before: Path, after: Path) -> Code:
        """The same as if it had been unpacked elsewhere."""

        def there(text: str) -> str:
            return str(after / Path(text).relative_to(before))

        return msgspec.structs.replace(
            self,
            folder=there(self.folder) if self.folder else None,
            workdir=there(self.workdir) if self.workdir else None,
            packages=tuple(map(there, self.packages)),
        )

    def details(self) -> dict[str, str]:
        """For the submission's record."""
        named = {"code": self.choice, "code_digest": self.digest, "code_folder": self.folder, "code_note": self.note}
        return {name: value for name, value in named.items() if value is not None}


def bring_code(choice: CodeChoice, *, into: Path, cwd: Path, container: Container | None = None) -> Code:
    """Make the chosen code ready for jobs; a snapshot goes below `into`, once for each state of the repository."""
    if choice == "container":
        assert container is not None
        return Code(choice=choice, digest=f"image:{container.image}{_file_digest(container.image)}")
    if choice == "installed":
        package = Path(__file__).parents[1]
        return Code(choice=choice, digest=f"gymnast {__version__} {folder_digest(package)}")
    return _snapshot(choice, into=into, cwd=cwd)


def _snapshot(choice: CodeChoice, *, into: Path, cwd: Path) -> Code:
    root = Path(_git(cwd, "rev-parse", "--show-toplevel").strip())
    changed = _git(root, "status", "--porcelain").splitlines()
    with tempfile.TemporaryDirectory(prefix="gymnast-code-") as scratch:
        env = _apart(root, Path(scratch))
        tree = _tree(root, env, dirty=choice == "snapshot+dirty" and bool(changed))
        folder = into / tree
        if not folder.exists():
            _unpack(root, tree, env, Path(scratch) / "code.tar", folder)
    workdir = folder / cwd.resolve().relative_to(root.resolve())
    left = f"{len(changed)} uncommitted changes stayed behind (--code snapshot+dirty takes them along)"
    return Code(
        choice=choice,
        digest=f"git:{tree}",
        folder=str(folder),
        workdir=str(workdir if workdir.is_dir() else folder),
        packages=tuple(str(place) for place in (folder / "src", folder) if place.is_dir()),
        note=left if choice == "snapshot" and changed else None,
    )


def _apart(root: Path, scratch: Path) -> dict[str, str]:
    """An index and a store of our own, so that looking at a repository changes nothing in it."""
    objects = scratch / "objects"
    objects.mkdir()
    own = _git(root, "rev-parse", "--path-format=absolute", "--git-path", "objects").strip()
    return {
        "GIT_INDEX_FILE": str(scratch / "index"),
        "GIT_OBJECT_DIRECTORY": str(objects),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": own,
    }


def _tree(root: Path, env: Mapping[str, str], *, dirty: bool) -> str:
    """The tree of what is committed, or of that and everything that is changed or new and not ignored."""
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
    except OSError:  # somebody else was quicker with the same tree
        shutil.rmtree(new)
        if not folder.is_dir():
            raise


def _git(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - fixed words and a tree's name
            ["git", "-C", str(folder), *words],  # noqa: S607 - the user's own git
            env=child_environ(env or {}),
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise UserError("a snapshot needs git", next="install it, or use --code installed") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"git {words[0]} took more than {_GIT_TIMEOUT_S:.0f} s", where=str(folder)) from error
    if done.returncode:
        raise UserError(
            f"no snapshot of the code: {done.stderr.strip() or done.stdout.strip()}",
            where=f"git {' '.join(words)} in {folder}",
            next="submit from inside a git repository with a commit, or use --code installed",
        )
    return done.stdout


def _file_digest(image: str) -> str:
    """Size and time of an image that is a file: reading tens of gigabytes at every submit is too much."""
    path = Path(image)
    if not image.startswith("/") or not path.is_file():
        return ""
    found = path.stat()
    return f" ({found.st_size} bytes, modified {found.st_mtime:.0f})"
