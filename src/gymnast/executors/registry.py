"""Executors by name. Each is imported on demand: Ray and Slurm cost nothing where they are not used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from gymnast.errors import NotFoundError, suggest

if TYPE_CHECKING:
    from gymnast.executors.executor import Executor, Submission

_CLASSES: Final = {
    "local": ("gymnast.executors.local", "LocalExecutor"),
    "slurm": ("gymnast.executors.slurm.executor", "SlurmExecutor"),
    "ray": ("gymnast.executors.ray", "RayExecutor"),
}
EXECUTOR_NAMES: Final = tuple(_CLASSES)


def executor_for(submission: Submission) -> Executor:
    """The executor that can inspect a submission and cancel it."""
    return make_executor(submission.executor)


def locate_submission(submission: Submission) -> Submission | None:
    """A recorded submission as it is; for an intent, what its scheduler knows of it."""
    return submission if submission.jobs else executor_for(submission).find(submission)


def make_executor(name: str) -> Executor:
    """The executor of that name, without options."""
    if name not in _CLASSES:
        raise NotFoundError(f"there is no executor '{name}'", next=suggest(name, EXECUTOR_NAMES))
    module, class_name = _CLASSES[name]
    executor: Executor = getattr(import_module(module), class_name)()
    return executor
