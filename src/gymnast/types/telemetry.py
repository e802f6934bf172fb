"""Where a run is reported to, as options name it."""

from __future__ import annotations

from typing import Final

import msgspec

DEFAULT_TRACE_SAMPLE: Final = 0.01


class TelemetryOptions(msgspec.Struct, frozen=True):
    """Trackers and a collector of traces; none by default."""

    track: tuple[str, ...] = ()
    """`TRACKER[:PLACE]`, as `--track` has it."""
    trace: str | None = None
    """The URL of an OTLP/HTTP collector."""
    trace_sample: float = DEFAULT_TRACE_SAMPLE
    """The share of rollouts that are traced."""
