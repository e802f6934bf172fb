"""The table of the kind rules. Every kind of failure is in it."""

from __future__ import annotations

from typing import Final

from gymnast.doctor.rules.kinds_of_agents import AGENT
from gymnast.doctor.rules.kinds_of_environments import ENVIRONMENT
from gymnast.doctor.rules.kinds_of_jobs import JOBS
from gymnast.doctor.rules.kinds_of_serving import SERVING

TABLE: Final = (*SERVING, *ENVIRONMENT, *AGENT, *JOBS)
