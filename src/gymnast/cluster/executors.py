"""Executors by name. Each is imported when it is asked for: Ray and Slurm cost nothing where they are not used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.errors import NotFoundError, suggest

if TYPE_CHECKING:
    from gymnast.cluster.executor import ClusterExecutor, Submission

NAMES: Final = ("local", "slurm", "ray")


def executor_for(submission: Submission) -> ClusterExecutor:
    """The executor that can look at a submission and end it."""
    return executor_named(submission.executor)


def located(submission: Submission) -> Submission | None:
    """A submission as it was recorded; of one that was only intended, what its scheduler has of it."""
    return submission if submission.jobs else executor_for(submission).find(submission)


def executor_named(name: str) -> ClusterExecutor:
    """An executor as it is without options, by its name."""
    if name == "local":
        from gymnast.cluster.local import LocalExecutor  # noqa: PLC0415 - only the one that is asked for

        return LocalExecutor()
    if name == "ray":
        from gymnast.cluster.ray import RayExecutor  # noqa: PLC0415 - as above

        return RayExecutor()
    if name == "slurm":
        from gymnast.cluster.slurm.executor import SlurmExecutor  # noqa: PLC0415 - as above

        return SlurmExecutor()
    raise NotFoundError(f"there is no executor '{name}'", next=suggest(name, NAMES))
