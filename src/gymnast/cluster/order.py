"""The work order of a run, `order.json`: what every worker needs to run its chunks, whoever starts it.

No secrets stand in it: keys come from the worker's own environment and `env.yaml`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.cluster.lease import DEFAULT_HEARTBEAT_S, DEFAULT_LEASE_S
from gymnast.errors import DataError
from gymnast.rollouts.retry import DEFAULT_ATTEMPTS, DEFAULT_ROLLOUT_TIMEOUT_S
from gymnast.store.replacing import read_fresh, write_replacing
from gymnast.types.tokens import TokenForm

if TYPE_CHECKING:
    from gymnast.store.chunk_layout import ChunkLayout

SCHEMA_VERSION: Final = 1


class ConfigNames(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration, as `gymnast.config.compose` is given it."""

    environments: tuple[str, ...] = ()
    config_paths: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    model_type: str | None = None
    model: str | None = None
    model_url: str | None = None
    search_dirs: tuple[str, ...] = ()
    folder: str = ""
    """Where the run was planned: names that are found nowhere else are looked up there."""
    unsafe_no_sandbox: bool = False


class WorkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How workers work. None of it changes what is right, so a worker may be told otherwise."""

    concurrency: int | None = None
    """Rollouts in flight in one worker; None lets each find its level."""
    processes: int = 0
    """Processes of one worker; 0 runs everything in its own."""
    rollout_timeout_s: float = DEFAULT_ROLLOUT_TIMEOUT_S
    max_attempts: int = DEFAULT_ATTEMPTS
    give_up_after_s: float = 600.0
    lease_s: float = DEFAULT_LEASE_S
    heartbeat_s: float = DEFAULT_HEARTBEAT_S
    linger_s: float = 2 * DEFAULT_LEASE_S
    """How long a worker without work waits for rows of others before it ends."""
    grace_s: float = 60.0
    """How long rollouts in flight may go on when a worker is told to end."""
    speculates: bool = False
    """Workers that stand by at the end copy what others have in flight, in case those are lost."""


class WorkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """`order.json`."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    config: ConfigNames
    work: WorkOptions = WorkOptions()
    token_form: TokenForm | None = None
    details: dict[str, Any] = {}
    """What those who submit want workers to know: components of the job, how code travels, …"""


def write_order(layout: ChunkLayout, order: WorkOrder) -> None:
    """Replace the order in one step."""
    write_replacing(layout.order, msgspec.json.format(msgspec.json.encode(order), indent=2) + b"\n")


def read_order(layout: ChunkLayout) -> WorkOrder:
    """What workers are told."""
    try:
        return msgspec.json.decode(read_fresh(layout.order), type=WorkOrder)
    except (OSError, msgspec.MsgspecError) as error:
        raise DataError(
            f"the run's work order cannot be read: {error}",
            where=str(layout.order),
            next="plan the run with gymnast submit",
        ) from error
