"""The state of a task stream, to resume from: tasks taken from the source, and those not yet delivered."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from gymnast.errors import UserError
from gymnast.store.atomic import atomic_output
from gymnast.train.errors import NothingLeftError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SCHEMA_VERSION: Final = 1


class StreamState(msgspec.Struct, frozen=True):
    """The content of the state file."""

    taken: int = 0
    """Number of tasks taken from the source."""
    owed: list[int] = []
    """Indexes of the taken tasks whose groups were not delivered."""
    digest: str = ""
    """Digest of all tasks taken: resuming with other tasks is an error."""
    labels: list[str] = []
    """Labels of the policy's weights, oldest first."""
    delivered: int = 0
    schema_version: int = SCHEMA_VERSION


def read_state(path: Path) -> StreamState | None:
    """The state of an earlier stream, or None."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"cannot read the stream's state: {error.strerror or error}", where=str(path)) from error
    try:
        state = msgspec.json.decode(data, type=StreamState)
    except msgspec.MsgspecError as error:
        raise UserError(f"cannot parse the stream's state: {error}", where=str(path)) from error
    if state.schema_version > SCHEMA_VERSION:
        raise UserError(
            f"the stream's state has schema version {state.schema_version}; supported: {SCHEMA_VERSION}",
            where=str(path),
        )
    return state


def write_state(path: Path, state: StreamState) -> None:
    """Replace the state file atomically."""
    with atomic_output(path) as out:
        out.write(msgspec.json.encode(state) + b"\n")


def empty_stream(path: Path | None, delivered: int) -> UserError:
    """The error of a stream that delivered nothing: an empty epoch must not pass silently."""
    if not delivered:
        return UserError("the stream had no tasks", next="check the dataset: an empty epoch trains nothing")
    return NothingLeftError(
        f"all {delivered} groups of this stream have already been delivered: this epoch is empty",
        where=str(path),
        next="use a new state file for each epoch; if a restart may come this late, catch NothingLeftError",
    )


class TaskSource:
    """Tasks one by one with their indexes; keeps a digest of those taken."""

    def __init__(self, tasks: Iterator[Mapping[str, Any]]) -> None:
        self._tasks = tasks
        self._digest = hashlib.blake2b(digest_size=16)
        self.taken = 0

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def next(self) -> tuple[int, Mapping[str, Any]] | None:
        """The next task, or None after the last."""
        task = next(self._tasks, None)
        if task is None:
            return None
        self._digest.update(orjson.dumps(task))
        self.taken += 1
        return self.taken - 1, task

    def resume(self, state: StreamState) -> list[tuple[int, Mapping[str, Any]]]:
        """Skip the tasks of an earlier stream and return those it owed. Raises UserError if the tasks differ."""
        owed = set(state.owed)
        tasks: list[tuple[int, Mapping[str, Any]]] = []
        while self.taken < state.taken:
            item = self.next()
            if item is None:
                break
            if item[0] in owed:
                tasks.append(item)
        if self.taken < state.taken or self.digest != state.digest:
            raise UserError(
                f"the first {state.taken} tasks differ from those of the earlier stream",
                next="use the same tasks in the same order, or a new state file to start over",
            )
        return tasks
