"""What a run sends to the process of a tracker, one JSON line each, and what the process answers."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gymnast.types.encoding import make_encodable


class Start(msgspec.Struct, frozen=True, tag="start", kw_only=True):
    """Start the tracker's run, or continue one."""

    tracker: str
    place: str | None = None
    """The project, experiment or folder; None uses the tracker's own setting."""
    name: str
    group: str | None = None
    """What several tracker runs belong to, e.g. those of the workers of one run."""
    resume_id: str | None = None
    """The tracker's id of the run to continue."""
    config: dict[str, Any] = {}
    folder: str = "."
    """Where trackers that write files put them, unless `place` says otherwise."""


class Point(msgspec.Struct, frozen=True, tag="point"):
    """The figures of one moment."""

    step: int
    at: float
    figures: dict[str, float]


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """The run ended."""

    state: str
    summary: dict[str, Any] = {}
    files: list[str] = []


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The tracker's run exists."""

    id: str
    url: str | None = None
    """Where people see it: a page, or a folder."""


class Problem(msgspec.Struct, frozen=True, tag="problem"):
    """Something failed; the first one is shown."""

    what: str
    next: str | None = None


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """All is delivered."""


ToTracker = Start | Point | Finish
FromTracker = Started | Problem | Finished

_encoder: Final = msgspec.json.Encoder(enc_hook=str)
tracker_decoder: Final = msgspec.json.Decoder(ToTracker)
run_decoder: Final = msgspec.json.Decoder(FromTracker)


def encode_line(message: ToTracker | FromTracker) -> bytes:
    try:
        return _encoder.encode(message) + b"\n"
    except (UnicodeEncodeError, TypeError, RecursionError):  # what JSON cannot hold becomes text
        plain = make_encodable(msgspec.to_builtins(message, enc_hook=str, str_keys=True), show_objects=True)[0]
        return _encoder.encode(plain) + b"\n"
