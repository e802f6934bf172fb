"""The state of a task stream, to resume from: tasks taken from the source, and those not yet delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.errors import GymnastError, UserError
from gymnast.store.atomic import atomic_output
from gymnast.train.errors import NoSignalError, NothingLeftError

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION: Final = 2


class OwedTask(msgspec.Struct, frozen=True, array_like=True):
    """A task whose group was neither delivered nor dropped."""

    index: int
    """Its number among the tasks taken."""
    environment: str
    row: int
    resamples: int = 0
    failures: int = 0


class StreamState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the state file."""

    taken: int = 0
    """Number of tasks taken from the source."""
    owed: list[OwedTask | int] = []
    """The taken tasks whose groups were not delivered. In version 1: their indexes."""
    source: dict[str, Any] = {}
    """The state of the source of tasks: resuming with other tasks is an error."""
    labels: list[str] = []
    """Labels of the policy's weights, oldest first."""
    policy_labels: dict[str, list[str]] = {}
    """The same for each of several policies, by model server."""
    delivered: int = 0
    counts: dict[str, Any] = {}
    consecutive: dict[str, int] = {}
    """Groups in a row that were empty or filtered; failures are counted from 0 after a restart."""
    digest: str = ""
    """In version 1: the digest of all tasks taken."""
    schema_version: int = 1


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
        hint = "restore a copy of it, or delete it to start over"
        raise UserError(f"cannot parse the stream's state: {error}", where=str(path), next=hint) from error
    if state.schema_version > SCHEMA_VERSION:
        raise UserError(
            f"the stream's state has schema version {state.schema_version}; supported: {SCHEMA_VERSION}",
            where=str(path),
        )
    return _from_version_1(state) if state.schema_version == 1 else state


def _from_version_1(state: StreamState) -> StreamState:
    owed: list[OwedTask | int] = [OwedTask(item, "", item) for item in state.owed if isinstance(item, int)]
    source = {"taken": state.taken, "digest": state.digest}
    return msgspec.structs.replace(state, owed=owed, source=source, counts={"delivered": state.delivered})


def write_state(path: Path, state: StreamState) -> None:
    """Replace the state file atomically."""
    with atomic_output(path) as out:
        out.write(msgspec.json.encode(state) + b"\n")


def empty_stream(path: Path | None, delivered: int, dropped: str = "") -> GymnastError:
    """The error of a stream that delivered nothing: an empty epoch must not pass silently."""
    if dropped and not delivered:
        return NoSignalError(f"no group of this stream was delivered: {dropped}")
    if not delivered:
        return UserError("the stream had no tasks", next="check the dataset: an empty epoch trains nothing")
    return NothingLeftError(
        f"all {delivered} groups of this stream have already been delivered: this epoch is empty",
        where=str(path),
        next="use a new state file for each epoch; if a restart may come this late, catch NothingLeftError",
    )
