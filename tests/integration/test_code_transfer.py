"""Code that travels to jobs: snapshots of a real git repository, what is installed, what a container has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gymnast.errors import UserError
from gymnast.executors.code_transfer import prepare_code
from gymnast.sidecars.component import Container


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "src" / "mine").mkdir(parents=True)
    (root / "envs").mkdir()
    (root / "src" / "mine" / "__init__.py").write_text("first")
    (root / "envs" / "a.yaml").write_text("a: 1")
    (root / ".gitignore").write_text("*.log\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


def git(root: Path, *words: str) -> str:
    line = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def test_a_clean_snapshot_is_what_is_committed(repository: Path, tmp_path: Path) -> None:
    code = prepare_code("snapshot", into=tmp_path / "code", cwd=repository / "envs")
    assert code.digest == f"git:{git(repository, 'rev-parse', 'HEAD^{tree}').strip()}"
    assert code.folder is not None
    assert code.workdir == f"{code.folder}/envs"
    assert code.environment() == {"PYTHONPATH": f"{code.folder}/src:{code.folder}"}
    assert code.note is None
    assert prepare_code("snapshot+dirty", into=tmp_path / "code", cwd=repository).digest == code.digest


def test_changes_go_along_only_if_asked(repository: Path, tmp_path: Path) -> None:
    (repository / "src" / "mine" / "__init__.py").write_text("second")
    (repository / "new.py").write_text("new")
    (repository / "noise.log").write_text("ignored")
    (repository / "envs" / "a.yaml").unlink()
    before = git(repository, "status", "--porcelain"), git(repository, "count-objects")
    clean = prepare_code("snapshot", into=tmp_path / "code", cwd=repository)
    dirty = prepare_code("snapshot+dirty", into=tmp_path / "code", cwd=repository)
    assert (git(repository, "status", "--porcelain"), git(repository, "count-objects")) == before
    assert clean.note == "3 uncommitted changes were left out (--code snapshot+dirty includes them)"
    assert dirty.note is None
    assert dirty.digest != clean.digest
    assert clean.folder is not None
    assert dirty.folder is not None
    assert Path(clean.folder, "src/mine/__init__.py").read_text() == "first"
    assert Path(dirty.folder, "src/mine/__init__.py").read_text() == "second"
    found = {str(path.relative_to(dirty.folder)) for path in Path(dirty.folder).rglob("*") if path.is_file()}
    assert found == {".gitignore", "src/mine/__init__.py", "new.py"}


def test_the_same_state_is_unpacked_once(repository: Path, tmp_path: Path) -> None:
    first = prepare_code("snapshot", into=tmp_path / "code", cwd=repository)
    assert first.folder is not None
    stamp = Path(first.folder).stat().st_mtime_ns
    assert prepare_code("snapshot", into=tmp_path / "code", cwd=repository) == first
    assert Path(first.folder).stat().st_mtime_ns == stamp
    assert [path.name for path in (tmp_path / "code").iterdir()] == [Path(first.folder).name]


def test_a_snapshot_can_be_looked_at_as_if_it_were_elsewhere(repository: Path, tmp_path: Path) -> None:
    code = prepare_code("snapshot", into=tmp_path / "code", cwd=repository / "envs")
    moved = code.relocate(tmp_path / "code", Path("/shared"))
    assert moved.workdir == f"/shared/{code.digest.removeprefix('git:')}/envs"


def test_without_a_repository_there_is_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot make a snapshot of the code: fatal: not a git repository"):
        prepare_code("snapshot", into=tmp_path / "code", cwd=tmp_path)


def test_what_is_installed_has_a_digest(tmp_path: Path) -> None:
    code = prepare_code("installed", into=tmp_path, cwd=tmp_path)
    assert code.digest.startswith("gymnast ")
    assert code.environment() == {}


def test_a_container_is_named_by_its_image(tmp_path: Path) -> None:
    image = tmp_path / "image.sqsh"
    image.write_bytes(b"12345")
    code = prepare_code("container", into=tmp_path, cwd=tmp_path, container=Container("a", str(image)))
    assert code.digest.startswith(f"image:{image} (5 bytes, modified ")
    remote = prepare_code("container", into=tmp_path, cwd=tmp_path, container=Container("a", "nvcr.example/x:1"))
    assert remote.digest == "image:nvcr.example/x:1"
