"""The table of kind rules. It covers every failure kind."""

from __future__ import annotations

from typing import Final

from gymnast.doctor.rules.agent_kinds import AGENT
from gymnast.doctor.rules.environment_kinds import ENVIRONMENT
from gymnast.doctor.rules.job_kinds import JOBS
from gymnast.doctor.rules.serving_kinds import SERVING

TABLE: Final = (*SERVING, *ENVIRONMENT, *AGENT, *JOBS)
