"""The versions of a policy's weights in order, and the age of what they sampled; also of several policies. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.train.samples import Group, Sample


class PolicyVersions:
    """Labels of weights, oldest first. A trainer calls `advance` after every weight update."""

    def __init__(self, labels: Sequence[str] = ()) -> None:
        self._positions: dict[str, int] = {}
        self.updates = 0
        """The number of weight updates."""
        if isinstance(labels, str):
            raise UserError(f"labels must be a list of strings, got {labels!r}", next=f"pass [{labels!r}]")
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
        given: object = label
        if not isinstance(given, str) or not given:
            raise UserError(f"the label of weights must be a string, as servers report it, got {given!r}")
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


class PolicySet:
    """The versions of one policy, or of several by the name of their model server."""

    def __init__(self, versions: PolicyVersions | Mapping[str, PolicyVersions]) -> None:
        given = versions.values() if isinstance(versions, Mapping) else [versions]
        if not all(isinstance(item, PolicyVersions) for item in given):
            raise UserError(
                f"versions must be PolicyVersions, or a mapping from model servers to those of each, got {versions!r}"
            )
        self._by_policy = dict(versions) if isinstance(versions, Mapping) else None
        self._single = versions if isinstance(versions, PolicyVersions) else PolicyVersions()

    def of(self, policy: str) -> PolicyVersions:
        """The versions of a policy. Raises UserError if it is not one of several that are known."""
        if self._by_policy is None:
            return self._single
        if policy not in self._by_policy:
            raise UserError(
                f"a group was sampled by the model server '{policy}', which is not in versions",
                next=f"known: {', '.join(self._by_policy)}; name every trained model server",
            )
        return self._by_policy[policy]

    @property
    def updates(self) -> dict[str, int]:
        """The number of weight updates by policy; the name of a single one is empty."""
        return {name: versions.updates for name, versions in self._all().items()}

    @property
    def labels(self) -> dict[str, list[str]]:
        return {name: versions.labels for name, versions in self._all().items()}

    def restore(self, labels: Mapping[str, Sequence[str]]) -> None:
        """Advance policies that have no labels yet, as they were when a state was saved."""
        for name, versions in self._all().items():
            if not versions.labels:
                for label in labels.get(name, ()):
                    versions.advance(label)

    def with_request(self, group: Group, updates: Mapping[str, int]) -> Group:
        """The group with the number of its policy's updates when it was requested."""
        return replace(group, requested_at=updates.get("" if self._by_policy is None else group.policy, 0))

    def age_of_group(self, group: Group) -> int:
        """The age of the group's oldest trainable token; 0 if there is none."""
        return self.of(group.policy).age_of_group(group) if any(group.trainable) else 0

    def _all(self) -> dict[str, PolicyVersions]:
        return {"": self._single} if self._by_policy is None else self._by_policy
