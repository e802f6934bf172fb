"""What became of a stream's groups: counts since its start, by environment, and how many in a row went wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gymnast.train.batch import require_something_to_train
from gymnast.train.errors import NoSignalError
from gymnast.train.estimators import are_equal
from gymnast.train.samples import Batch, Group
from gymnast.train.stream_options import StreamCounts

if TYPE_CHECKING:
    from gymnast.train.errors import FewerRolloutsError
    from gymnast.train.stream_options import StreamOptions
    from gymnast.train.stream_state import StreamState


class StreamTally:
    """Counts what happens to groups, and decides when too many in a row went wrong."""

    def __init__(self, options: StreamOptions) -> None:
        self.counts = StreamCounts()
        self.delivered_before = 0
        """Groups that were delivered before this start of the stream."""
        self._options = options
        self._environments: dict[str, Counter[str]] = defaultdict(Counter)
        self._consecutive: Counter[str] = Counter()
        """Groups in a row that were `empty`, `filtered` or `failed`."""
        self._rewards: Counter[str] = Counter()
        """Of the groups that were filtered in a row."""
        self._has_trainable = False
        self._only_empty: Group | None = None
        """The last group, if none of the stream had a trainable token."""

    def restore(self, before: StreamState) -> None:
        """Continue from a state file."""
        counts = dict(before.counts)
        for name, values in counts.pop("environments", {}).items():
            self._environments[name] = Counter(values)
        self.counts = StreamCounts(**{**counts, "failed_kinds": Counter(counts.get("failed_kinds", {}))})
        self._consecutive = Counter(before.consecutive)
        self.delivered_before = before.delivered
        self._has_trainable = before.delivered > self.counts.empty

    def state(self) -> dict[str, Any]:
        """The fields of the state file that `restore` reads."""
        environments = {name: dict(counts) for name, counts in self._environments.items()}
        return {
            "delivered": self.counts.delivered,
            "counts": {**asdict(self.counts), "environments": environments},
            "consecutive": {name: self._consecutive[name] for name in ("empty", "filtered")},
        }

    def figures(self) -> dict[str, float]:
        """Counts since the start, by the names that trackers show."""
        counts = self.counts
        figures: dict[str, float] = {
            "stream/asked": counts.requested,
            "stream/delivered": counts.delivered,
            "stream/stale_dropped": counts.stale_dropped,
            "stream/stale_masked": counts.stale_masked,
            "stream/empty": counts.empty,
            "stream/filtered": counts.filtered,
            "stream/failed_groups": counts.failed,
            "stream/dropped": counts.dropped,
            "stream/surplus": counts.surplus,
            "stream/logprob_retries": counts.logprob_retries,
            **{f"stream/failed/{kind}": number for kind, number in counts.failed_kinds.items()},
        }
        for name, environment in self._environments.items():
            share = environment["delivered"] / counts.delivered if counts.delivered else 0.0
            values: dict[str, float] = {**environment, "share": share}
            figures |= {f"environment/{name}/{key}": value for key, value in values.items()}
        return figures

    # --- what happens to groups --------------------------------------------------------------------------------------

    def add_complete(self) -> None:
        """A group was collected."""
        self._consecutive["failed"] = 0

    def add_kept(self) -> None:
        """A collected group passed the filter."""
        self._consecutive["filtered"] = 0
        self._rewards.clear()

    def add_filtered(self, environment: str) -> None:
        """A group was dropped by the filter."""
        self.counts.filtered += 1
        self._count(environment, "filtered")

    def find_no_signal(self, group: Group) -> NoSignalError | None:
        """The error if this collected group is one too many in a row that the filter dropped."""
        self._consecutive["filtered"] += 1
        self._rewards[_describe_rewards(group)] += 1
        return self._no_signal() if self._consecutive["filtered"] >= self._options.max_filtered_groups else None

    def add_failure(self, environment: str, error: FewerRolloutsError) -> bool:
        """A group failed. Returns whether too many in a row did."""
        self.counts.failed += 1
        self.counts.failed_kinds.update(error.failed)
        self._count(environment, "failed_groups")
        self._consecutive["failed"] += 1
        return self._consecutive["failed"] > self._options.max_failed_groups

    def add_dropped(self, environment: str) -> None:
        """A task was given up because its groups failed."""
        self.counts.dropped += 1
        self._count(environment, "dropped")

    def add_delivered(self, environment: str) -> None:
        """The trainer is done with a group."""
        self.counts.delivered += 1
        self._count(environment, "delivered")

    def check_trainable(self, group: Group) -> None:
        """Raise an error if the trainer gets too many groups in a row that it cannot train on."""
        if any(group.trainable):
            self._consecutive["empty"] = 0
            self._has_trainable, self._only_empty = True, None
            return
        if not self._has_trainable:
            self._only_empty = group
        self.counts.empty += 1
        self._consecutive["empty"] += 1
        if self._consecutive["empty"] >= self._options.max_empty_groups:
            require_something_to_train(Batch((group,)), self._consecutive["empty"])

    def check_end(self) -> None:
        """Raise an error if the stream ends and the trainer got nothing that it can train on."""
        if self._only_empty is not None:
            require_something_to_train(Batch((self._only_empty,)), self.counts.empty)

    def describe_dropped(self) -> str:
        """How many groups were dropped, and why."""
        counts = {"without signal (keep)": self.counts.filtered, "failed": self.counts.dropped}
        return ", ".join(f"{number} {text}" for text, number in counts.items() if number)

    def _count(self, environment: str, what: str) -> None:
        if environment:
            self._environments[environment][what] += 1

    def _no_signal(self) -> NoSignalError:
        rewards = ", ".join(f"{number} × {text}" for text, number in self._rewards.most_common(5))
        return NoSignalError(
            f"the last {self._consecutive['filtered']} groups were dropped by the filter (max_filtered_groups)\n"
            f"  rewards: {rewards}\n"
            "  next: use easier or harder tasks (gymnast curriculum), more generations or a higher temperature, or "
            "raise max_filtered_groups"
        )


def _describe_rewards(group: Group) -> str:
    rewards = [sample.reward for sample in group.samples if sample.is_trainable and sample.reward is not None]
    if not rewards:
        return "no trainable rollout"
    return f"all {rewards[0]:g}" if are_equal(rewards) else "different rewards"
