"""Which tools the agents of a run offer, as part of what a run is: a resumed run offers what it offered before.

Agents of the kit have a setting `tools`. Runs that started before it existed, and runs of NeMo Gym, offered only what
rows declare.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import UserError
from gymnast.kit.environment import Environment
from gymnast.kit.tools import tool_names
from gymnast.runtime.loader import is_server_class, load_entry, unset_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gymnast.config import Config, Instance
    from gymnast.rollouts.plan import PlanSummary

SETTING: Final = "tools"
MODES: Final = ("auto", "row")
_MAX_NAMED: Final = 5


def tool_modes(instances: Iterable[Instance]) -> dict[str, str]:
    """`auto` or `row` for each agent that has the setting."""
    return {instance.name: mode for instance in instances if (mode := _mode(instance)) is not None}


def with_row_tools(instances: Iterable[Instance]) -> list[Instance]:
    """The instances, with agents that offer only what rows declare unless they are configured otherwise."""
    return [
        replace(instance, settings={**instance.settings, SETTING: "row"})
        if SETTING not in instance.settings and _mode(instance) is not None
        else instance
        for instance in instances
    ]


def restore_tool_modes(instances: list[Instance], settings: Mapping[str, Any]) -> list[Instance]:
    """The instances of a run that started with these settings, of which older ones name no modes."""
    return instances if SETTING in settings.get("plan", {}) else with_row_tools(instances)


def offer_row_tools(config: Config) -> Config:
    """The configuration as the `ng_` commands mean it: agents offer only what rows declare."""
    return replace(
        config, instances={instance.name: instance for instance in with_row_tools(config.instances.values())}
    )


def warn_about_tools(instances: list[Instance], summary: PlanSummary) -> list[str]:
    """A warning for each environment whose tools no row of an agent offers."""
    by_name = {instance.name: instance for instance in instances}
    warnings = []
    for agent, mode in tool_modes(instances).items():
        with_tools, silent = summary.rows_with_tools[agent], summary.rows_without_tools_key[agent]
        if not summary.tasks_by_agent[agent] or with_tools or (silent and mode == "auto"):
            continue
        for environment in by_name[agent].environments:
            names = environment_tools(by_name[environment]) if environment in by_name else []
            if names:
                warnings.append(_warning(environment, names, agent, all_refuse=not silent))
    return warnings


def environment_tools(instance: Instance) -> list[str]:
    """The names of an environment's tools, as far as its class can be inspected here."""
    if instance.url is not None or instance.directory is None:
        return []
    try:
        entry = load_entry(instance)
    except UserError:
        return []
    return tool_names(entry) if is_server_class(entry) and issubclass(entry, Environment) else []


def _warning(environment: str, names: list[str], agent: str, *, all_refuse: bool) -> str:
    shown = ", ".join(names[:_MAX_NAMED]) + (", …" if len(names) > _MAX_NAMED else "")
    why = "every row has `tools: []`" if all_refuse else "the rows declare none"
    fix = (
        "leave `tools` out of the rows" if all_refuse else f"set `tools: auto` on '{agent}', as `gymnast collect` does"
    )
    return f"'{environment}' has tools ({shown}), but none is offered to the model: {why}; to offer them, {fix}"


def _mode(instance: Instance) -> str | None:
    if instance.kind != "responses_api_agents":
        return None
    value = instance.settings.get(SETTING, unset_settings(instance).get(SETTING))
    return value if value in MODES else None
