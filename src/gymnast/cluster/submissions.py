"""The record of what was started for a run: `submissions/N.json`, each number taken once, by whoever is first.

What is intended is written before anything is started, into `N/intent.json`, so that jobs of a submit that was killed
before it could record them are found again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gymnast.cluster.executor import Submission
from gymnast.errors import DataError
from gymnast.store.replacing import read_fresh, write_replacing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.store.chunk_layout import ChunkLayout


def next_number(layout: ChunkLayout) -> int:
    """The number that a submission would have now."""
    try:
        names = [path.stem for path in layout.submissions.iterdir()]
    except FileNotFoundError:
        return 1
    return 1 + max((int(name) for name in names if name.isdecimal()), default=0)


def take_number(layout: ChunkLayout) -> int:
    """A number for a new submission; its folder is made, which only one can do."""
    layout.submissions.mkdir(parents=True, exist_ok=True)
    number = next_number(layout)
    while True:
        try:
            (layout.submissions / str(number)).mkdir()
        except FileExistsError:
            number += 1
        else:
            return number


def write_intent(layout: ChunkLayout, intent: Submission) -> None:
    """Write down what is about to be started."""
    _write(_intent(layout, intent.number), intent)


def forget_intent(layout: ChunkLayout, number: int) -> None:
    """It was recorded, or came to nothing."""
    _intent(layout, number).unlink(missing_ok=True)


def write_submission(layout: ChunkLayout, submission: Submission) -> None:
    """Record what was started."""
    _write(layout.submissions / f"{submission.number}.json", submission)
    forget_intent(layout, submission.number)


def read_submissions(layout: ChunkLayout) -> list[Submission]:
    """What was started for the run so far, in the order of the numbers; what was only intended has no jobs."""
    # Intents first: one that is recorded between the two looks is then seen twice, and not missed.
    found = {one.number: one for pattern in ("*/intent.json", "*.json") for one in _read(layout, pattern)}
    return [found[number] for number in sorted(found)]


def _read(layout: ChunkLayout, pattern: str) -> Iterator[Submission]:
    for path in layout.submissions.glob(pattern):
        try:
            yield msgspec.json.decode(read_fresh(path), type=Submission)
        except FileNotFoundError:
            continue  # removed meanwhile, with the run
        except (OSError, msgspec.MsgspecError) as error:
            raise DataError(f"the record of a submission cannot be read: {error}", where=str(path)) from error


def _write(path: Path, submission: Submission) -> None:
    write_replacing(path, msgspec.json.format(msgspec.json.encode(submission), indent=2) + b"\n")


def _intent(layout: ChunkLayout, number: int) -> Path:
    return layout.submissions / str(number) / "intent.json"
