"""Trackers for a trainer's loop: the figures of a stream of groups, next to the trainer's own.

with TrainingTracker("wandb:my-project", name="grpo-1", folder="runs/grpo-1") as tracker:
    async for group in groups:
        loss = train(group)
        tracker.log(step, {**groups.figures(), "loss": loss})
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gymnast.tracking.choice import parse_trackers
from gymnast.tracking.messages import Finish
from gymnast.tracking.publisher import DEFAULT_WAIT_S, Publisher, TrackedRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_log = logging.getLogger(__name__)


class TrainingTracker:
    """Reports a training run to trackers. A tracker that fails is reported once and never stops the training."""

    def __init__(
        self,
        trackers: str | Iterable[str],
        *,
        name: str,
        folder: str | Path,
        config: Mapping[str, Any] | None = None,
        say: Callable[[str], None] = _log.warning,
        wait_s: float = DEFAULT_WAIT_S,
    ) -> None:
        """`folder` holds logs, event files and the trackers' ids: with the same name and folder, a restart continues
        the same tracker runs. `say` gets the messages for people.
        """
        root = Path(folder)
        run = TrackedRun(
            name=name,
            run_id=name,
            log_dir=root,
            state=root / "tracking.json",
            event_dir=root / "tensorboard",
            config=dict(config or {}),
        )
        self._publisher = Publisher(parse_trackers(trackers), lambda: run, say, wait_s=wait_s)
        self._last: dict[str, float] = {}
        self._files: list[str] = []

    def __enter__(self) -> Self:
        self._publisher.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        state = "complete" if kind is None else "interrupted"
        self._publisher.finish(Finish(state, {"last": self._last}, self._files))

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Add a point. Never blocks."""
        self._last = self._publisher.log(step, figures)

    def attach(self, paths: Sequence[str | Path]) -> None:
        """Files to send at the end, e.g. the manifest of an evaluation."""
        self._files += [str(Path(path).absolute()) for path in paths if Path(path).is_file()]
