"""A caller of a token engine, as a rollout's session would be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Caller:
    session_id: str = "s"
    rollout_id: str | None = "r"
    trail: None = None
