"""Somebody who asks an engine for tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Who:
    session_id: str = "s"
    rollout_id: str | None = "r"
    trail: None = None
