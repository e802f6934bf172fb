"""A caller of a token backend, as a rollout's session would be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Caller:
    session_id: str = "s"
    rollout_id: str | None = "r"
    progress: None = None
