"""Which rules score an answer: those of NeMo Gym's environment of the same name, or stricter ones."""

from __future__ import annotations

from typing import Literal

from gymnast.config.server_settings import Settings

Scoring = Literal["nemo_gym", "strict"]


class ScoringSettings(Settings):
    """Settings of an environment that has both kinds of rules."""

    scoring: Scoring = "nemo_gym"
    """`nemo_gym`: the reward that NeMo Gym gives. `strict`: no reward for answers that its rules accept wrongly."""
