"""Labels that people gave to rollouts and tasks: `x_annotations.jsonl` (or `annotations.jsonl`) in the run's folder.

A line is `{"kind": "rollout" | "task", "task_index": 3, "rollout_index": 0, "label": "good", "note": "", "at": time}`.
The last line about a rollout or a task is valid; an empty label removes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from gymnast.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


class _Line(msgspec.Struct):
    task_index: int
    kind: str = "rollout"
    rollout_index: int | None = None
    label: str | None = None
    note: str | None = None


_LINE = msgspec.json.Decoder(_Line)


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
    """The labels of the run with this output file; none if there is no file. An unfinished last line is ignored."""
    labels = Labels()
    own = output.with_name(f"{output.stem}_annotations.jsonl")
    path = own if own.exists() else output.with_name("annotations.jsonl")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return labels
    except OSError as error:
        raise DataError(f"cannot read the labels: {error.strerror or error}", where=str(path)) from error
    lines = data.split(b"\n")
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = _LINE.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            if number == len(lines):
                break
            raise DataError(f"not a label: {error}", where=f"{path} line {number}") from error
        value = (line.label or "", line.note or "")
        if line.kind == "task" or line.rollout_index is None:
            labels.tasks[line.task_index] = value
        else:
            labels.rollouts[line.task_index, line.rollout_index] = value
    return labels
