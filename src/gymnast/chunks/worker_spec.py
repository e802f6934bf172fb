"""The worker spec of a run, `order.json`: what every worker needs to run its chunks, whichever executor starts it.

It contains no secrets: keys come from the worker's own environment and `env.yaml`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.chunks.lease import DEFAULT_HEARTBEAT_S, DEFAULT_LEASE_S
from gymnast.errors import DataError
from gymnast.rollouts.retry import DEFAULT_ATTEMPTS, DEFAULT_ROLLOUT_TIMEOUT_S
from gymnast.store.atomic import atomic_write, read_fresh
from gymnast.types.telemetry import TelemetryOptions
from gymnast.types.tokens import TokenForm

if TYPE_CHECKING:
    from gymnast.store.chunk_layout import ChunkLayout

SCHEMA_VERSION: Final = 1


class ConfigArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration, as arguments of `gymnast.config.compose`."""

    environments: tuple[str, ...] = ()
    config_paths: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    model_type: str | None = None
    model: str | None = None
    model_url: str | None = None
    model_key_name: str | None = None
    """A name in the keys file of the user who runs the worker; the key itself is never written."""
    search_dirs: tuple[str, ...] = ()
    folder: str = ""
    """Where the run was planned. Names are looked up there last."""
    agent: str | None = None
    """An agent of the configuration, or a recipe that replaces all agents."""
    unsafe_no_sandbox: bool = False


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How workers run. None of it affects correctness, so each worker may be given other values."""

    concurrency: int | None = None
    """Rollouts in flight in one worker; None tunes it automatically."""
    processes: int = 0
    """Processes of one worker; 0 runs everything in its main process."""
    rollout_timeout_s: float = DEFAULT_ROLLOUT_TIMEOUT_S
    max_attempts: int = DEFAULT_ATTEMPTS
    give_up_after_s: float = 600.0
    lease_s: float = DEFAULT_LEASE_S
    heartbeat_s: float = DEFAULT_HEARTBEAT_S
    linger_s: float = 2 * DEFAULT_LEASE_S
    """How long an idle worker waits for rows of others before it ends."""
    grace_s: float = 60.0
    """How long rollouts in flight may run when a worker is asked to stop."""
    speculates: bool = False
    """Whether standby workers repeat what others have in flight, in case those are lost."""
    telemetry: TelemetryOptions = TelemetryOptions()
    """Where each worker reports to."""


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`order.json`."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    config: ConfigArguments
    options: WorkerOptions = msgspec.field(default=WorkerOptions(), name="work")
    token_form: TokenForm | None = None
    details: dict[str, Any] = {}
    """Further information from the submitter: components of the job, how code is transferred, …"""


def write_worker_spec(layout: ChunkLayout, spec: WorkerSpec) -> None:
    """Replace the spec atomically."""
    atomic_write(layout.worker_spec, msgspec.json.format(msgspec.json.encode(spec), indent=2) + b"\n")


def read_worker_spec(layout: ChunkLayout) -> WorkerSpec:
    """Read the spec of a planned run."""
    try:
        return msgspec.json.decode(read_fresh(layout.worker_spec), type=WorkerSpec)
    except (OSError, msgspec.MsgspecError) as error:
        raise DataError(
            f"cannot read the run's worker spec: {error}",
            where=str(layout.worker_spec),
            next="plan the run with gymnast submit",
        ) from error
