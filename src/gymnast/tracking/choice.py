"""Which trackers a run reports to: `--track wandb`, `--track mlflow:EXPERIMENT,tensorboard:FOLDER`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gymnast.errors import UserError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable

TRACKER_NAMES: Final = ("wandb", "mlflow", "tensorboard", "trackio")


class TrackerChoice(NamedTuple):
    """A tracker, and the project, experiment or folder in it; None uses the tracker's own setting."""

    name: str
    place: str | None = None
    run_name: str | None = None
    """How the tracker's run is called; None names it after the output file."""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables of the tracker's process, such as its key. Never shown."""

    def __str__(self) -> str:
        return self.name if self.place is None else f"{self.name}:{self.place}"


def parse_trackers(texts: Iterable[str | TrackerChoice] | str | None) -> tuple[TrackerChoice, ...]:
    """The trackers that options name, each once. Raises UserError for an unknown one."""
    choices: dict[TrackerChoice, None] = {}
    for text in [texts] if isinstance(texts, str) else texts or ():
        if isinstance(text, TrackerChoice):
            choices[text] = None
            continue
        for part in filter(None, map(str.strip, text.split(","))):
            name, _, place = part.partition(":")
            if name not in TRACKER_NAMES:
                listed = ", ".join(TRACKER_NAMES)
                hint = suggest(name, TRACKER_NAMES)
                raise UserError(f"expected a tracker ({listed}), got '{name}'", where="--track", next=hint)
            choices[TrackerChoice(name, place.strip() or None)] = None
    return tuple(choices)
