"""Where a stream of tasks stands: what was taken from it, and what of it is not delivered. A restart goes on there."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from gymnast.errors import UserError
from gymnast.store.replacing import replaced
from gymnast.train.errors import NothingLeftError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SCHEMA_VERSION: Final = 1


class StreamState(msgspec.Struct, frozen=True):
    """What is kept."""

    taken: int = 0
    """Tasks taken from the source, from its beginning."""
    owed: list[int] = []
    """Their places, of those whose groups were not delivered."""
    digest: str = ""
    """Of all tasks that were taken: a restart with other tasks is refused."""
    labels: list[str] = []
    """Of the policy's weights, oldest first."""
    delivered: int = 0
    schema_version: int = SCHEMA_VERSION


def read_state(path: Path) -> StreamState | None:
    """The state that an earlier stream left, or None."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"cannot read the stream's state: {error.strerror or error}", where=str(path)) from error
    try:
        found = msgspec.json.decode(data, type=StreamState)
    except msgspec.MsgspecError as error:
        raise UserError(f"the stream's state cannot be read: {error}", where=str(path)) from error
    if found.schema_version > SCHEMA_VERSION:
        raise UserError(f"the stream's state has schema version {found.schema_version}", where=str(path))
    return found


def write_state(path: Path, state: StreamState) -> None:
    """Replace the state in one step."""
    with replaced(path) as out:
        out.write(msgspec.json.encode(state) + b"\n")


def empty_stream(path: Path | None, delivered: int) -> UserError:
    """The error of a stream that delivered nothing: an epoch in which nothing is trained must not pass for one."""
    if not delivered:
        return UserError("the stream had no tasks", next="check the dataset: an empty epoch trains nothing")
    return NothingLeftError(
        f"all {delivered} groups of this stream were delivered before: this epoch is empty",
        where=str(path),
        next="name another state file for another epoch; a restart that may come this late catches NothingLeftError",
    )


class TaskSource:
    """Tasks one by one, each with its place; remembers a digest of what was taken."""

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

    def go_on(self, state: StreamState) -> list[tuple[int, Mapping[str, Any]]]:
        """Skip what an earlier stream took; what it still owed. Raises UserError if these are other tasks."""
        owed = set(state.owed)
        found: list[tuple[int, Mapping[str, Any]]] = []
        while self.taken < state.taken:
            item = self.next()
            if item is None:
                break
            if item[0] in owed:
                found.append(item)
        if self.taken < state.taken or self.digest != state.digest:
            raise UserError(
                f"the first {state.taken} tasks are not those that the earlier stream was given",
                next="use the same tasks in the same order, or another state file to begin anew",
            )
        return found
