"""For authors of environments, agents and models: base classes, tools, sessions, verdicts."""

from gymnast.kit.accounting import ModelSettings, Prices
from gymnast.kit.agent import Agent, AgentSettings
from gymnast.kit.attempt import Attempt, Task, ToolCall, Verdict
from gymnast.kit.environment import Environment
from gymnast.kit.model import Model, ModelCall
from gymnast.kit.settings import ModelRef, ResourcesRef, Settings
from gymnast.kit.step_environment import Step, StepEnvironment, ToolOutput
from gymnast.kit.task_server import EnvironmentSettings
from gymnast.kit.tools import ToolError, tool

__all__ = [
    "Agent",
    "AgentSettings",
    "Attempt",
    "Environment",
    "EnvironmentSettings",
    "Model",
    "ModelCall",
    "ModelRef",
    "ModelSettings",
    "Prices",
    "ResourcesRef",
    "Settings",
    "Step",
    "StepEnvironment",
    "Task",
    "ToolCall",
    "ToolError",
    "ToolOutput",
    "Verdict",
    "tool",
]
