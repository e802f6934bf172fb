"""Labels that people gave to rollouts and tasks in the studio, as exports filter by them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gymnast.store.annotations import annotations_path, read_annotations

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class Labels:
    """The label and the note of rollouts and tasks."""

    rollouts: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    tasks: dict[int, tuple[str, str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.rollouts or self.tasks)

    def names(self) -> set[str]:
        """All labels that were given."""
        return {label for label, _ in (*self.rollouts.values(), *self.tasks.values()) if label}

    def of(self, task: int, rollout: int) -> tuple[str | None, str | None]:
        """The label and note of a rollout: its own, else those of its task."""
        label, note = self.rollouts.get((task, rollout)) or self.tasks.get(task) or (None, None)
        return label or None, note or None


def read_labels(output: Path) -> Labels:
    """The labels of the run with this output file; none if there is no file."""
    labels = Labels()
    for (task, rollout), annotation in read_annotations(annotations_path(output)).items():
        value = (annotation.label or "", annotation.note)
        if rollout is None:
            labels.tasks[task] = value
        else:
            labels.rollouts[task, rollout] = value
    return labels
