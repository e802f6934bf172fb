"""The manifest of a run, `x_run.json`: what was requested, with which settings and code, and how far it got.

It tells an unfinished run from a finished one, and a resume uses it to detect changed inputs or settings.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.errors import DataError
from gymnast.store.atomic import atomic_write, read_fresh
from gymnast.types.totals import AgentTotals
from gymnast.types.usage import ModelUsage

if TYPE_CHECKING:
    from pathlib import Path


SCHEMA_VERSION: Final = 1


class RunState(StrEnum):
    RUNNING = "running"
    COMPLETE = "complete"
    """Nothing is owed: every rollout is scored or has permanently failed."""
    INCOMPLETE = "incomplete"
    """It ended normally with rollouts owed."""
    INTERRUPTED = "interrupted"
    """It was stopped with rollouts owed."""


class Counts(msgspec.Struct, frozen=True):
    """The counts of a run. Invariant: requested = scored + failed (permanently) + owed."""

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
    """What determines the results: plan options and the instances' settings."""
    code: dict[str, str]
    """A digest of each instance's code."""
    counts: Counts
    agents: dict[str, AgentTotals] = {}
    """The totals of each agent's rollouts."""
    spent: ModelUsage = ModelUsage()
    """What the model calls of all attempts used, including failed ones."""
    invocations: list[Invocation] = []
    note: str | None = None
    """Why the run is in this state, for people."""


def read_manifest(path: Path) -> Manifest | None:
    """The manifest, or None if there is none. An unreadable one is an error, because it protects the run."""
    try:
        manifest = msgspec.json.decode(read_fresh(path), type=Manifest)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # msgspec's errors are ValueErrors, and so is text that is not UTF-8
        raise DataError(
            f"cannot read the run's manifest: {error}",
            where=str(path),
            next="restore it, or delete it to start over",
        ) from error
    if manifest.schema_version > SCHEMA_VERSION:
        raise DataError(
            f"the run's manifest has version {manifest.schema_version}; this Gymnast supports {SCHEMA_VERSION}",
            where=str(path),
            next="use the newer Gymnast that wrote it",
        )
    return manifest


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Replace the manifest atomically."""
    atomic_write(path, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
