"""Error replies that were collected after the table of endpoint errors was written: five rounds, each before mending.

They come from public issue trackers and repositories, and from the sources of vllm 0.32.0, sglang 0.5.23 and litellm
1.108.4. Where a message fits two causes with the same remedy, both are accepted.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from gymnast.wire.endpoint_errors import Cause


class LaterMessage(msgspec.Struct, frozen=True):
    """One error reply, and the causes that are right for it."""

    round: int
    source: str
    status: int
    body: str
    causes: frozenset[Cause]


def read_later_messages() -> list[LaterMessage]:
    """All of them."""
    path = Path(__file__).with_suffix(".jsonl")
    return [msgspec.json.decode(line, type=LaterMessage) for line in path.read_bytes().splitlines()]
