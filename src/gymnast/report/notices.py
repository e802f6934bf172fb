"""Caveats of a run's numbers: what is missing or unknown, and how much it could change them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gymnast.report.scales import format_count
from gymnast.store.manifest import RunState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.report.run_view import RunView


def notices(run: RunView) -> Iterator[str]:
    """Warnings about one run."""
    head = run.headline
    if run.label_note is not None:
        yield run.label_note
    if not len(run.rewards):
        yield "Nothing was scored, so there is no reward to show."
    if run.manifest is not None and run.manifest.state is not RunState.COMPLETE:
        yield f"This run is {run.manifest.state.value}: its numbers may still change."
    unscored = run.failed + head.missing
    if unscored and len(run.rewards):
        effect = head.failure_effect
        yield (
            f"{format_count(unscored)} of {format_count(head.requested)} rollouts have no score and are left out of "
            f"every number. With a reward of 0 for each, the mean would be {effect.zero.value:.4f}; whatever their "
            f"rewards, it would lie between {effect.lowest:.4f} and {effect.highest:.4f}."
        )
    if run.excluded:
        yield f"{format_count(run.excluded)} records have no reward or were masked by their agent, and are left out."
    if not run.has_inputs:
        yield "This run has no materialized inputs, so it is unknown whether rollouts are missing."
    if len(run.rewards) and not math.isfinite(run.mean_reward.low):
        yield "There is only one task: the mean has no interval."
