"""The versions of a policy's weights in order, and the age of what they sampled. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.train.samples import Group, Sample


class PolicyVersions:
    """Labels of weights, oldest first. A trainer calls `advance` after every weight update."""

    def __init__(self, labels: Sequence[str] = ()) -> None:
        self._positions: dict[str, int] = {}
        self.updates = 0
        """The number of weight updates."""
        for label in labels:
            self.advance(label)

    @property
    def labels(self) -> list[str]:
        return list(self._positions)

    @property
    def current(self) -> str | None:
        return next(reversed(self._positions), None)

    def advance(self, label: str) -> None:
        """Record new weights under this label. A reused label becomes the newest."""
        self._positions.pop(label, None)
        self.updates += 1
        self._positions[label] = self.updates

    def age_of(self, sample: Sample, requested_at: int) -> int:
        """How many updates ago its oldest token was sampled.

        Tokens with missing or unknown labels count as sampled by the weights at the time of the request.
        """
        known = [self._positions.get(version, requested_at) for version in sample.versions]
        has_unknown = any(segment.trained and not segment.versions for segment in sample.segments)
        oldest = min([*known, requested_at] if has_unknown or not known else known)
        return max(self.updates - oldest, 0)

    def age_of_group(self, group: Group) -> int:
        """The age of the oldest trainable token; 0 if there is none."""
        return max(
            (self.age_of(sample, group.requested_at) for sample in group.samples if sample.is_trainable), default=0
        )
