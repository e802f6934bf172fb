"""One model call, then verify: the tools of a row are offered and never run."""

from __future__ import annotations

from typing import Literal

from gymnast.builtin.responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentSettings


class ToolSimulationAgentSettings(SimpleAgentSettings):
    max_steps: Literal[1] = 1
    """What the model would call is the answer."""


class ToolSimulationAgent(SimpleAgent):
    """Scores the model's next action."""

    settings: ToolSimulationAgentSettings
