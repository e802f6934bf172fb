"""The record of what was started for a run: `submissions/N.json`, each number taken once, by whoever is first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gymnast.cluster.executor import Submission
from gymnast.errors import DataError
from gymnast.store.replacing import write_replacing

if TYPE_CHECKING:
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


def write_submission(layout: ChunkLayout, submission: Submission) -> None:
    """Record what was started."""
    data = msgspec.json.format(msgspec.json.encode(submission), indent=2)
    write_replacing(layout.submissions / f"{submission.number}.json", data + b"\n")


def read_submissions(layout: ChunkLayout) -> list[Submission]:
    """What was started for the run so far, in the order of the numbers."""
    found = []
    for path in layout.submissions.glob("*.json"):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Submission))
        except FileNotFoundError:
            continue  # removed meanwhile, with the run
        except (OSError, msgspec.MsgspecError) as error:
            raise DataError(f"the record of a submission cannot be read: {error}", where=str(path)) from error
    return sorted(found, key=lambda submission: submission.number)
