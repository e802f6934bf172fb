"""The disk that forgets: what was synced stays, what was not may be gone, and a kill loses nothing that was written."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gymnast.store.atomic import atomic_write, sync_folder
from tests.crash.fake_disk import Chances, Crash, FakeDisk

ATTEMPTS = 60


@contextmanager
def disk(folder: Path, seed: int, *, ordered: bool = False) -> Iterator[FakeDisk]:
    place = folder / str(seed)
    place.mkdir()
    (place / "old").write_bytes(b"old")
    fake = FakeDisk(place, random.Random(seed), ordered=ordered)
    with fake.open():
        yield fake


def write(path: Path, data: bytes, *, sync: bool) -> None:
    with path.open("ab") as stream:
        stream.write(data)
        stream.flush()
        if sync:
            os.fsync(stream.fileno())


def test_unsynced_bytes_may_be_lost_and_synced_ones_not(tmp_path: Path) -> None:
    seen = set()
    for seed in range(ATTEMPTS):
        with disk(tmp_path, seed) as fake:
            write(fake.folder / "old", b"-synced", sync=True)
            write(fake.folder / "old", b"-more", sync=False)
            fake.fail(power=True)
            seen.add((fake.folder / "old").read_bytes())
    assert all(content.startswith(b"old-synced") for content in seen)
    assert {b"old-synced", b"old-synced-more"} < seen
    assert any(content.endswith(b"\0") for content in seen)


@pytest.mark.parametrize("kind", ["ordered", "posix"])
def test_the_name_of_a_synced_file(kind: str, tmp_path: Path) -> None:
    found = set()
    for seed in range(ATTEMPTS):
        with disk(tmp_path, seed, ordered=kind == "ordered") as fake:
            write(fake.folder / "new", b"x", sync=True)
            fake.fail(power=True)
            found.add((fake.folder / "new").exists())
    assert found == ({True} if kind == "ordered" else {True, False})


def test_a_synced_folder_keeps_its_names(tmp_path: Path) -> None:
    for seed in range(ATTEMPTS):
        with disk(tmp_path, seed) as fake:
            write(fake.folder / "new", b"x", sync=True)
            (fake.folder / "old").unlink()
            sync_folder(fake.folder)
            atomic_write(fake.folder / "whole", b"y" * 100)
            fake.fail(power=True)
            assert sorted(path.name for path in fake.folder.iterdir()) == ["new", "whole"]
            assert (fake.folder / "whole").read_bytes() == b"y" * 100


def test_a_kill_loses_what_was_in_the_process_only(tmp_path: Path) -> None:
    with disk(tmp_path, 0) as fake:
        write(fake.folder / "old", b"-written", sync=False)
        fake.crash_at = 1

        def die() -> None:
            with (fake.folder / "new").open("wb") as stream:
                stream.write(b"buffered")
                os.fsync(stream.fileno())

        with pytest.raises(Crash):
            die()
        fake.fail(power=False)
        assert (fake.folder / "old").read_bytes() == b"old-written"
        assert (fake.folder / "new").read_bytes() == b""


def test_after_a_crash_nothing_has_an_effect(tmp_path: Path) -> None:
    with disk(tmp_path, 0) as fake:
        fake.crash_at = 0
        for _ in range(2):
            with pytest.raises(Crash):
                (fake.folder / "old").unlink()
        assert (fake.folder / "old").exists()


def test_faults(tmp_path: Path) -> None:
    with disk(tmp_path, 0) as fake:
        fake.chance_of = Chances(no_space=1.0)
        with pytest.raises(OSError, match="No space"):
            os.open(fake.folder / "new", os.O_CREAT | os.O_WRONLY)
        fake.chance_of = Chances(short_write=1.0)
        handle = os.open(fake.folder / "old", os.O_WRONLY)
        assert 1 <= os.write(handle, b"0123456789") < 10
        fake.chance_of = Chances(io_error=1.0)
        with pytest.raises(OSError, match="Input/output"):
            os.fsync(handle)
        os.close(handle)
