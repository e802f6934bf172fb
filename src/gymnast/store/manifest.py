"""The manifest of a run, `x_run.json`: what was asked, with which settings and code, how far it got.

An unfinished run cannot be mistaken for a finished one, and a resume with other inputs or settings is noticed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.errors import DataError
from gymnast.store.replacing import read_fresh, write_replacing
from gymnast.types.usage import ModelUsage

if TYPE_CHECKING:
    from pathlib import Path


SCHEMA_VERSION: Final = 1


class RunState(StrEnum):
    """How a run stands."""

    RUNNING = "running"
    COMPLETE = "complete"
    """Nothing is owed: every rollout is scored or has failed for good."""
    INCOMPLETE = "incomplete"
    """It ended by itself with rollouts owed."""
    INTERRUPTED = "interrupted"
    """It was stopped with rollouts owed."""


class Counts(msgspec.Struct, frozen=True):
    """How far a run is. requested = scored + failed (for good) + owed, always."""

    requested: int = 0
    scored: int = 0
    failed: dict[str, int] = {}
    owed: int = 0
    attempts: int = 0
    retries: int = 0


class Invocation(msgspec.Struct, frozen=True):
    """One process that worked on the run."""

    started_at: float
    host: str
    pid: int
    ended_at: float | None = None
    ended_as: RunState | None = None
    forced: bool = False


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`x_run.json`."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    state: RunState
    output: str
    created_at: float
    updated_at: float
    versions: dict[str, str]
    source: dict[str, Any]
    """The input file: path, bytes, digest."""
    plan: dict[str, Any]
    """The materialized inputs: rows, tasks, bytes, crc32."""
    settings: dict[str, Any]
    """What determines the result: plan options, and each instance's own settings."""
    code: dict[str, str]
    """A digest of each instance's code."""
    counts: Counts
    spent: ModelUsage = ModelUsage()
    """What the model calls of all attempts used, failed ones included."""
    invocations: list[Invocation] = []
    note: str | None = None
    """Why the run stands where it stands, in words."""


def read_manifest(path: Path) -> Manifest | None:
    """The manifest, or None where there is none. One that cannot be read is an error: it guards the run."""
    try:
        found = msgspec.json.decode(read_fresh(path), type=Manifest)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise DataError(
            f"the run's manifest cannot be read: {error}",
            where=str(path),
            next="restore it, or delete it to start over",
        ) from error
    if found.schema_version > SCHEMA_VERSION:
        raise DataError(
            f"the run's manifest has version {found.schema_version}; this Gymnast knows {SCHEMA_VERSION}",
            where=str(path),
            next="go on with the newer Gymnast that wrote it",
        )
    return found


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Replace the manifest in one step."""
    write_replacing(path, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
