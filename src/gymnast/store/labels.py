"""Labels that people gave to rollouts and tasks in the studio, and the filter by them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gymnast.errors import UserError, suggest
from gymnast.store.annotations import annotations_path, read_annotations

if TYPE_CHECKING:
    from collections.abc import Iterable
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


@dataclass(frozen=True, slots=True)
class LabelFilter:
    """Which rollouts are wanted, by their labels. Empty, it accepts all."""

    wanted: tuple[str, ...] = ()
    """Only rollouts with one of these."""
    excluded: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.wanted or self.excluded)

    def accepts(self, labels: Labels, task: int, rollout: int) -> bool:
        label = labels.of(task, rollout)[0]
        return (not self.wanted or label in self.wanted) and label not in self.excluded

    def check(self, runs: Iterable[Labels]) -> None:
        """Raise UserError if a label was given to nothing in these runs: it is misspelt."""
        if not self:
            return
        known = {name for labels in runs for name in labels.names()}
        for name in (*self.wanted, *self.excluded):
            if name not in known:
                hint = suggest(name, known) or "label rollouts in the studio first"
                raise UserError(f"no rollout or task has the label '{name}'", next=hint)

    def describe(self) -> str:
        """What is left, in a sentence."""
        parts = [f"with the label {_any_of(self.wanted)}"] if self.wanted else []
        parts += [f"without the label {_any_of(self.excluded)}"] if self.excluded else []
        return f"only rollouts {' and '.join(parts)}"


def _any_of(names: Iterable[str]) -> str:
    return " or ".join(f"'{name}'" for name in names)


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
