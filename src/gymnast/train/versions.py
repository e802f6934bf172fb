"""The weights of a policy in the order in which they came, and how old what they sampled is. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.train.samples import Group, Sample


class PolicyVersions:
    """Labels of weights, oldest first. A trainer calls `advance` whenever the engine has new weights."""

    def __init__(self, labels: Sequence[str] = ()) -> None:
        self._places: dict[str, int] = {}
        self.updates = 0
        """How many weight updates there have been."""
        for label in labels:
            self.advance(label)

    @property
    def labels(self) -> list[str]:
        return list(self._places)

    @property
    def current(self) -> str | None:
        return next(reversed(self._places), None)

    def advance(self, label: str) -> None:
        """There are new weights under this label. A label that comes back is the newest again."""
        self._places.pop(label, None)
        self.updates += 1
        self._places[label] = self.updates

    def age_of(self, sample: Sample, asked_at: int) -> int:
        """How many updates ago the oldest of its tokens was sampled.

        Where the engine tells no weights, or unknown ones, they are those of the time at which it was asked for.
        """
        known = [self._places.get(version, asked_at) for version in sample.versions]
        untold = any(segment.trained and not segment.versions for segment in sample.segments)
        oldest = min([*known, asked_at] if untold or not known else known)
        return max(self.updates - oldest, 0)

    def age_of_group(self, group: Group) -> int:
        """The age of the oldest token that would be trained on; 0 if there is none."""
        return max((self.age_of(sample, group.asked_at) for sample in group.samples if sample.is_trainable), default=0)
