"""Labels and notes on rollouts and tasks: `x_annotations.jsonl`, next to the run.

One JSON object per line: `task`, `rollout` (null for the task itself), `label`, `note`, `by`, `at`. The last line about
a rollout or task counts; one with neither label nor note removes it. Each line is appended with a single write, so that
several people can annotate a run at the same time. Other programs may read and append to the file.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import time
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import msgspec
import orjson

from gymnast.errors import UserError
from gymnast.types.encoding import printable

if TYPE_CHECKING:
    from pathlib import Path

LABELS: Final = ("good", "bad", "reward hack", "bad task")
"""Those that are offered. Any other short text is a label, too."""
MAX_LABEL: Final = 60
MAX_NOTE: Final = 10_000
_MAX_INDEX: Final = 2**31
_MAX_FILE: Final = 64 << 20


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """A label and a note on a rollout, or on a task."""

    task: int
    rollout: int | None = None
    """None for the task itself."""
    label: str | None = None
    note: str = ""
    by: str = ""
    at: float = 0.0

    @property
    def is_empty(self) -> bool:
        return not self.label and not self.note


_LINE: Final = msgspec.json.Decoder(Annotation)


def annotations_path(output: Path) -> Path:
    """The annotations of the run with this output file."""
    return output.with_name(f"{output.stem}_annotations.jsonl")


def read_annotations(path: Path) -> dict[tuple[int, int | None], Annotation]:
    """The current annotations by task and rollout. Lines that cannot be read are skipped: others may write the file."""
    current: dict[tuple[int, int | None], Annotation] = {}
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_FILE)
    except OSError:
        return current
    for line in data.split(b"\n"):
        try:
            annotation = _LINE.decode(line)
        except (ValueError, RecursionError):
            continue
        key = (annotation.task, annotation.rollout)
        current.pop(key, None)
        if not annotation.is_empty:
            current[key] = annotation
    return current


def make_annotation(body: Any) -> Annotation:
    """The annotation in a request. Raises UserError if it is not one."""
    fields = body if isinstance(body, dict) else {}
    task, rollout, label, note = (fields.get(name) for name in ("task", "rollout", "label", "note"))
    if not _is_index(task) or (rollout is not None and not _is_index(rollout)):
        raise UserError("expected a task and a rollout (null for the whole task)")
    if label is not None and (not isinstance(label, str) or len(label) > MAX_LABEL):
        raise UserError(f"expected a label of at most {MAX_LABEL} characters")
    if note is not None and (not isinstance(note, str) or len(note) > MAX_NOTE):
        raise UserError(f"expected a note of at most {MAX_NOTE:,} characters")
    return Annotation(
        task=task,
        rollout=rollout,
        label=printable(label).strip() or None if label else None,
        note=printable(note or ""),
        by=_user(),
        at=time.time(),
    )


def append_annotation(path: Path, annotation: Annotation) -> None:
    """Append an annotation. A torn last line, which a crash of another program left, is ended first."""
    line = orjson.dumps(msgspec.to_builtins(annotation)) + b"\n"
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":
                line = b"\n" + line
            if os.write(file, line) != len(line):
                raise OSError("the disk is full")
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise UserError(f"cannot write the annotation: {error.strerror or error}", where=str(path)) from error


def _is_index(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _MAX_INDEX


def _user() -> str:
    try:
        return printable(getpass.getuser())
    except (OSError, KeyError, ImportError):
        return ""
