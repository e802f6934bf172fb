"""The record of what was started for a run: `submissions/N.json`, with each number used once.

Before anything is started, the intent is written to `N/intent.json`, so that jobs of a submit that was killed before it
could record them are found again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gymnast.errors import DataError
from gymnast.executors.executor import Submission
from gymnast.store.atomic import atomic_write, read_fresh

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.store.chunk_layout import ChunkLayout


def next_number(layout: ChunkLayout) -> int:
    """The number that the next submission would get."""
    try:
        names = [path.stem for path in layout.submissions.iterdir()]
    except FileNotFoundError:
        return 1
    return 1 + max((int(name) for name in names if name.isdecimal()), default=0)


def reserve_number(layout: ChunkLayout) -> int:
    """Reserve a number for a new submission by creating its folder."""
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
    """Record what is about to be started."""
    _write(_intent_path(layout, intent.number), intent)


def remove_intent(layout: ChunkLayout, number: int) -> None:
    """Remove an intent that was recorded as a submission, or of which nothing was started."""
    _intent_path(layout, number).unlink(missing_ok=True)


def write_submission(layout: ChunkLayout, submission: Submission) -> None:
    """Record what was started."""
    _write(layout.submissions / f"{submission.number}.json", submission)
    remove_intent(layout, submission.number)


def read_submissions(layout: ChunkLayout) -> list[Submission]:
    """What was started for the run so far, by number. An intent has no jobs."""
    # Intents first: one that is recorded between the two reads is then seen twice instead of missed.
    patterns = ("*/intent.json", "*.json")
    submissions = {item.number: item for pattern in patterns for item in _read(layout, pattern)}
    return [submissions[number] for number in sorted(submissions)]


def _read(layout: ChunkLayout, pattern: str) -> Iterator[Submission]:
    for path in layout.submissions.glob(pattern):
        try:
            yield msgspec.json.decode(read_fresh(path), type=Submission)
        except FileNotFoundError:
            continue  # the run was deleted meanwhile
        except (OSError, msgspec.MsgspecError) as error:
            raise DataError(f"cannot read the record of a submission: {error}", where=str(path)) from error


def _write(path: Path, submission: Submission) -> None:
    atomic_write(path, msgspec.json.format(msgspec.json.encode(submission), indent=2) + b"\n")


def _intent_path(layout: ChunkLayout, number: int) -> Path:
    return layout.submissions / str(number) / "intent.json"
