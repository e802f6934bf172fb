"""A disk that forgets: real code works on a real folder, and a power failure leaves only what was synced, and luck.

While a `FakeDisk` is open, the system calls of this process that change files below its folder go through it. It knows
which content and which names were synced. `fail(power=True)` then rewrites the folder as a disk might look afterwards:
unsynced bytes are missing, cut or zeros; unsynced names are missing, still there or not yet replaced. With
`ordered=False` every unsynced name decides for itself, as POSIX allows; otherwise they are lost from the end, and
syncing a file syncs all names before it, as journaling file systems do. `fail(power=False)` is a kill: what was written
is there, what was only in the process is not, and nothing of it is any safer than before.

Each call may also end the process (`Crash`), fail (no space, an I/O error, a short write), or let another actor run
first (`preempt`): `chance_of` says how often.
"""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from unittest import mock

_MAX_ZEROS: Final = 600


class Crash(BaseException):
    """The simulated process is over: nothing that it does any more has an effect."""


@dataclass(frozen=True)
class _NameChange:
    """A change of names that is not synced: `added` now is a file or folder, `removed` is no longer."""

    added: str | None
    inode: int | None
    removed: str | None = None

    @property
    def folders(self) -> set[str]:
        return {os.path.dirname(name) for name in (self.added, self.removed) if name is not None}  # noqa: PTH120


@dataclass(frozen=True)
class _Entry:
    name: str


class _Listing:
    """What `os.scandir` returns."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def close(self) -> None:
        pass


@dataclass
class Chances:
    """How likely each call goes wrong."""

    no_space: float = 0.0
    io_error: float = 0.0
    short_write: float = 0.0
    preempt: float = 0.0
    stale_listing: float = 0.0
    """An actor sees a folder as it was when the same actor last listed it, as on a network file system."""


@dataclass
class FakeDisk:
    """The disk below a folder."""

    folder: Path
    chance: random.Random
    ordered: bool = True
    chance_of: Chances = field(default_factory=Chances)
    crash_at: int | None = None
    """Calls until a crash."""
    crash_on: str = ""
    """Count only calls that begin so, as the log shows them: `fsync x.jsonl`."""
    preempt: Callable[[], None] | None = None
    actor: str = ""
    """Whose call it is."""
    log: list[str] = field(default_factory=list)
    calls: int = 0
    _is_dead: bool = False
    _synced: dict[int, bytes] = field(default_factory=dict)
    """The content of each file at its last sync, by inode."""
    _names: dict[str, int | None] = field(default_factory=dict)
    """Synced names: the inode, or None for a folder."""
    _changes: list[_NameChange] = field(default_factory=list)
    _handles: dict[int, int] = field(default_factory=dict)
    """An open descriptor of each file, so that it stays readable and its inode is not used again."""
    _at_death: dict[int, bytes] = field(default_factory=dict)
    _listings: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _open_files: set[int] = field(default_factory=set)
    """Descriptors of the process, which its end closes, and with them their locks."""

    # --- the state of the disk ---------------------------------------------------------------------------------------

    def sync_all(self) -> None:
        """What is there now is safe."""
        self._changes.clear()
        self._names.clear()
        for handle in self._handles.values():
            self._real_close(handle)
        self._handles.clear()
        self._synced.clear()
        for root, folders, files in os.walk(self.folder):
            for name in folders:
                self._names[os.path.join(root, name)] = None  # noqa: PTH118
            for name in files:
                path = os.path.join(root, name)  # noqa: PTH118
                inode = self._track(path)
                self._names[path] = inode
                self._synced[inode] = self._content(inode)

    def fail(self, *, power: bool) -> None:
        """The process was killed, or all machines lost power. Whatever is left can be worked on again."""
        for fd in self._open_files:
            self._real_close(fd)
        self._open_files.clear()
        contents = self._at_death or {inode: self._content(inode) for inode in self._handles}
        if power:
            self._rebuild(contents)
            self.sync_all()
        else:
            for inode, content in contents.items():
                if self._content(inode) != content:  # a buffer that was flushed after the process was over
                    self._real_ftruncate(self._handles[inode], 0)
                    self._real_pwrite(self._handles[inode], content, 0)
        self.revive()

    def _rebuild(self, contents: dict[int, bytes]) -> None:
        names = dict(self._names)
        kept = self._changes
        if self.ordered:
            kept = kept[: self.chance.randint(0, len(kept))]
        else:
            kept = [change for change in kept if self.chance.random() < 0.5]
        for change in kept:
            _apply(change, names)
        after = {inode: self._after_failure(inode, content) for inode, content in contents.items()}
        for entry in list(self._real_scandir(self.folder)):
            shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else self._real_unlink(entry.path)
        for path in sorted(names):
            parent = os.path.dirname(path)  # noqa: PTH120
            if parent != str(self.folder) and names.get(parent, -1) is not None:
                continue  # its folder did not survive
            if (inode := names[path]) is None:
                self._real_mkdir(path)
            else:
                with self._real_io_open(path, "wb") as stream:
                    stream.write(after.get(inode, b""))

    def _after_failure(self, inode: int, content: bytes) -> bytes:
        synced = self._synced.get(inode, b"")
        luck = self.chance.random()
        if luck < 0.35 or content == synced:
            return synced
        if luck < 0.55:
            return content
        if content.startswith(synced):
            kept = self.chance.randint(len(synced), len(content))
            lost = len(content) - kept
            zeros = self.chance.randint(0, min(lost, _MAX_ZEROS)) if self.chance.random() < 0.3 else 0
            return content[:kept] + b"\0" * zeros
        if synced.startswith(content):  # it was cut off
            return self.chance.choice([synced, content])
        return self.chance.choice([synced, content, content[: self.chance.randint(0, len(content))]])

    # --- the calls ---------------------------------------------------------------------------------------------------

    @contextmanager
    def open(self) -> Iterator[None]:
        """While this is open, calls go through the disk."""
        self._real_open, self._real_close, self._real_write = os.open, os.close, os.write
        self._real_pwrite, self._real_writev, self._real_ftruncate = os.pwrite, os.writev, os.ftruncate
        self._real_fsync, self._real_link, self._real_unlink = os.fsync, os.link, os.unlink
        self._real_replace, self._real_mkdir, self._real_io_open = os.replace, os.mkdir, io.open
        self._real_scandir = os.scandir
        replaced: dict[str, Any] = {
            "open": self._open,
            "close": self._close,
            "write": self._write,
            "pwrite": self._pwrite,
            "writev": self._writev,
            "ftruncate": self._ftruncate,
            "fsync": self._fsync,
            "link": self._link,
            "unlink": self._unlink,
            "replace": self._replace,
            "rename": self._replace,
            "mkdir": self._mkdir,
            "scandir": self._scandir,
        }
        with mock.patch.multiple(os, **replaced), mock.patch.object(io, "open", self._io_open):
            try:
                self.sync_all()
                yield
            finally:
                for handle in self._handles.values():
                    self._real_close(handle)
                self._handles.clear()

    def _is_ours(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(f"{self.folder}{os.sep}")

    def _is_our_file(self, fd: int) -> bool:
        return self._inode_of(fd) in self._handles

    def _inode_of(self, fd: int) -> int:
        return os.fstat(fd).st_ino

    def revive(self) -> None:
        """Another process goes on after the death of one."""
        self._is_dead, self._at_death, self.crash_at = False, {}, None

    def _before(self, what: str, path: Any = None) -> None:
        """What may happen before a call that changes something."""
        if self._is_dead:
            raise Crash
        self.calls += 1
        call = f"{what} {os.path.basename(path) if path is not None else ''}".rstrip()  # noqa: PTH119
        if self.crash_at is not None and call.startswith(self.crash_on):
            self.crash_at -= 1
            if self.crash_at < 0:
                self._die(call)
        if self.preempt is not None and self.chance.random() < self.chance_of.preempt:
            self.preempt()

    def _die(self, call: str) -> None:
        self.log.append(f"crash before {call}")
        self._is_dead = True
        self._at_death = {inode: self._content(inode) for inode in self._handles}
        raise Crash

    def _fail_maybe(self, likely: float, number: int, what: str) -> None:
        if likely and self.chance.random() < likely:
            self.log.append(f"{errno.errorcode[number]} in {what}")
            raise OSError(number, os.strerror(number))

    def _open(self, path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if not self._is_ours(path) or not flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            return self._real_open(path, flags, mode, **more)
        self._before("open", path)
        exists = os.path.lexists(path)
        if not exists:
            self._fail_maybe(self.chance_of.no_space, errno.ENOSPC, "open")
        fd = self._real_open(path, flags, mode, **more)
        self._note_opened(path, is_new=not exists)
        self._open_files.add(fd)
        return fd

    def _close(self, fd: int) -> None:
        self._open_files.discard(fd)
        self._real_close(fd)

    def _io_open(self, file: Any, mode: str = "r", *arguments: Any, **more: Any) -> Any:
        if not self._is_ours(file) or not set(mode) & set("wax+"):
            return self._real_io_open(file, mode, *arguments, **more)
        self._before("open", file)
        exists = os.path.lexists(file)
        stream = self._real_io_open(file, mode, *arguments, **more)
        self._note_opened(file, is_new=not exists)
        return stream

    def _note_opened(self, path: Any, *, is_new: bool) -> None:
        real = os.path.realpath(path)
        inode = self._track(real)
        if is_new:
            self._changes.append(_NameChange(real, inode))

    def _track(self, path: str) -> int:
        inode = os.stat(path).st_ino  # noqa: PTH116
        if inode not in self._handles:
            self._handles[inode] = self._real_open(path, os.O_RDWR | os.O_CLOEXEC)
        return inode

    def _content(self, inode: int) -> bytes:
        handle = self._handles[inode]
        return os.pread(handle, os.fstat(handle).st_size, 0)

    def _write(self, fd: int, data: Any) -> int:
        return self._real_write(fd, self._limit(fd, data, "write"))

    def _pwrite(self, fd: int, data: Any, offset: int) -> int:
        return self._real_pwrite(fd, self._limit(fd, data, "pwrite"), offset)

    def _writev(self, fd: int, buffers: Any) -> int:
        return self._real_write(fd, self._limit(fd, b"".join(buffers), "writev"))

    def _limit(self, fd: int, data: Any, what: str) -> Any:
        """The part of the data that the call writes."""
        if not self._is_our_file(fd):
            return data
        self._before(what)
        view = memoryview(data)
        self._fail_maybe(self.chance_of.no_space, errno.ENOSPC, what)
        if len(view) > 1 and self.chance.random() < self.chance_of.short_write:
            return view[: self.chance.randint(1, len(view) - 1)]
        return view

    def _ftruncate(self, fd: int, size: int) -> None:
        if self._is_our_file(fd):
            self._before("ftruncate")
        self._real_ftruncate(fd, size)

    def _fsync(self, fd: int) -> None:
        found = os.fstat(fd)
        path = str(Path(f"/proc/self/fd/{fd}").readlink())
        if stat.S_ISDIR(found.st_mode):
            self._sync_folder(path)
        elif found.st_ino in self._handles:
            self._before("fsync", path)
            self._fail_maybe(self.chance_of.io_error, errno.EIO, "fsync")
            self._synced[found.st_ino] = self._content(found.st_ino)
            if self.ordered:
                self._sync_names(self._changes)

    def _sync_folder(self, folder: str) -> None:
        self._before("fsync", folder)
        self._sync_names([change for change in self._changes if folder in change.folders])

    def _sync_names(self, changes: list[_NameChange]) -> None:
        for change in list(changes):
            _apply(change, self._names)
            self._changes.remove(change)

    def _link(self, source: Any, target: Any, **more: Any) -> None:
        if self._is_ours(target):
            self._before("link", target)
        self._real_link(source, target, **more)
        if self._is_ours(target):
            self._changes.append(_NameChange(str(target), self._track(str(target))))

    def _unlink(self, path: Any, **more: Any) -> None:
        if not self._is_ours(path):
            self._real_unlink(path, **more)
            return
        self._before("unlink", path)
        self._real_unlink(path, **more)
        self._changes.append(_NameChange(None, None, str(path)))

    def _replace(self, source: Any, target: Any, **more: Any) -> None:
        if not self._is_ours(target):
            self._real_replace(source, target, **more)
            return
        self._before("replace", target)
        inode = None if os.path.isdir(source) else self._track(str(source))  # noqa: PTH112
        self._real_replace(source, target, **more)
        self._changes.append(_NameChange(str(target), inode, str(source)))

    def _scandir(self, folder: Any) -> _Listing:
        with self._real_scandir(folder) as entries:
            found: list[Any] = list(entries)
        if self.actor and self._is_ours(folder):
            key = (self.actor, str(folder))
            if key in self._listings and self.chance.random() < self.chance_of.stale_listing:
                found = [_Entry(name) for name in self._listings[key]]
            else:
                self._listings[key] = [entry.name for entry in found]
        return _Listing(found)

    def _mkdir(self, path: Any, mode: int = 0o777, **more: Any) -> None:
        if self._is_ours(path):
            self._before("mkdir", path)
        self._real_mkdir(path, mode, **more)
        if self._is_ours(path):
            self._changes.append(_NameChange(str(path), None))


def _apply(change: _NameChange, names: dict[str, int | None]) -> None:
    if change.removed is not None:
        names.pop(change.removed, None)
    if change.added is not None:
        names[change.added] = change.inode


@contextmanager
def shifted_clock(shift_s: float) -> Iterator[None]:
    """The wall clock of this process is wrong by so much."""
    real = time.time

    def shifted() -> float:
        return real() + shift_s

    with mock.patch.object(time, "time", shifted):
        yield
