"""Where a sidecar runs: its task, its host, its share of the GPUs.

The only file of a sidecar that reads environment variables: `config.environ` is not available in a container.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of the component: ours and what its spec adds."""
    return {**os.environ, **extra}


def task_number(explicit: int | None) -> int:
    """Which task of its component this is: as given explicitly, or by Slurm."""
    return explicit if explicit is not None else int(os.environ.get("SLURM_PROCID", "0"))


def visible_gpus() -> list[str] | None:
    """The GPUs that this process may use; None if the environment does not limit them."""
    text = os.environ.get(VISIBLE_GPUS)
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def is_bound_by_slurm() -> bool:
    """Whether Slurm gave each task its own GPUs."""
    return any(name in os.environ for name in ("SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK"))


def local_rank(task: int, tasks_per_node: int) -> int:
    """The task's number on its node."""
    text = os.environ.get("SLURM_LOCALID")
    return int(text) if text is not None else task % tasks_per_node


def gpu_share(
    visible: Sequence[str] | None, rank: int, per_task: int, tasks_per_node: int, *, bound: bool
) -> list[str]:
    """The GPUs of one task: its slice of those that the node's tasks share, unless each task has its own."""
    if visible is None:
        visible = [str(number) for number in range(per_task * tasks_per_node)]
    if len(visible) == per_task and (bound or tasks_per_node == 1):
        return list(visible)
    share = list(visible[rank * per_task : (rank + 1) * per_task])
    if len(share) < per_task:
        raise ValueError(
            f"task {rank} of this node needs GPUs {rank * per_task} to {(rank + 1) * per_task - 1}, "
            f"but only {len(visible)} are visible ({', '.join(visible) or 'none'})"
        )
    return share


def host_names() -> list[str]:
    """Names by which others may reach this machine, the most likely first. Only those that resolve here."""
    candidates = [os.environ.get("SLURMD_NODENAME", ""), socket.gethostname(), socket.getfqdn()]
    names: list[str] = []
    for name in candidates:
        try:
            address = socket.gethostbyname(name) if name else ""
        except OSError:
            continue
        names += [item for item in (name, address) if item and item not in names and not item.startswith("127.")]
    return [*names, "127.0.0.1"]
