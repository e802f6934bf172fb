"""What a reader must know before quoting a run's numbers: what is missing, what is not known, what it would change."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gymnast.report.scales import count
from gymnast.store.manifest import RunState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.report.run_view import RunView


def notices(run: RunView) -> Iterator[str]:
    """Warnings about one run, in sentences."""
    head = run.headline
    if not len(run.rewards):
        yield "Nothing is scored: there is no reward to show."
    if run.manifest is not None and run.manifest.state is not RunState.COMPLETE:
        yield f"This run is {run.manifest.state.value}: numbers will change when it is finished."
    without = run.failed + head.missing
    if without and len(run.rewards):
        effect = head.failure_effect
        yield (
            f"{count(without)} of {count(head.requested)} rollouts have no score and are left out of every number. "
            f"With a reward of 0 for each the mean would be {effect.zero.value:.4f}; whatever they had got, it would "
            f"lie between {effect.lowest:.4f} and {effect.highest:.4f}."
        )
    if run.excluded:
        yield f"{count(run.excluded)} records have no reward or were masked by their agent, and are left out."
    if not run.has_inputs:
        yield "There are no materialized inputs beside this run, so nobody knows whether rollouts are missing."
    if len(run.rewards) and not math.isfinite(run.mean_reward.low):
        yield "There is only one task: the mean has no interval."
