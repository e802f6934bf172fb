"""Agents by name: recipes (`agents/NAME.yaml`) and how one replaces the agents of a configuration.

A recipe names an implementation and its settings, without an environment or a model. `swap_agents` gives it those of
each configured agent, so that any agent runs with any environment and no file is edited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gymnast.config import tree
from gymnast.config.tree import Node, Origin
from gymnast.config.yaml_source import read_yaml
from gymnast.errors import ConfigError, NotFoundError, Problem, UserError, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gymnast.config.roots import Roots

KIND: Final = "responses_api_agents"
AGENT_SETTINGS: Final = "agent_settings"
"""The top-level key whose values override the settings of a recipe that runs a program."""
PROGRAM_AGENT: Final = "command_agent"
RECIPE_FOLDER: Final = "{recipe_dir}"
"""In a recipe's texts: the folder of its file."""
_FOLDER: Final = "agents"
_SUFFIXES: Final = (".yaml", ".yml")
_KEYS: Final = frozenset({"description", "implementation", "settings"})
_FIXED: Final = frozenset({"resources_server", "model_server", "entrypoint", "datasets"})
_INHERITED: Final = (
    *("resources_server", "model_server", "datasets", "max_rollouts", "skip_verification", "skip_verification_reward"),
    *("seed_timeout_s", "model_timeout_s", "tool_timeout_s", "verify_timeout_s", "tools"),
)
"""Settings that a swap takes over from the agent it replaces."""
_DRIVING: Final = {
    "gymnasium_agent": "it steps its environment turn by turn",
    "tool_simulation_agent": "it simulates the tools itself",
    "simulated_user_agent": "it plays the user",
    "verifiers_agent": "its environment runs the whole rollout",
}
"""Implementations that are a part of their environment: no other agent can replace them."""


@dataclass(frozen=True, slots=True)
class AgentRecipe:
    """An agent without an environment and a model."""

    name: str
    path: Path
    description: str
    implementation: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ListedRecipe:
    """A recipe file; `problem` says why it cannot be used."""

    name: str
    path: Path
    recipe: AgentRecipe | None = None
    problem: str | None = None


def list_recipes(roots: Roots) -> list[ListedRecipe]:
    """All recipes of these folders, by name. The first of a name wins."""
    listed = []
    for name, path in sorted(_files(roots).items()):
        try:
            listed.append(ListedRecipe(name, path, read_recipe(path)))
        except ConfigError as error:
            listed.append(ListedRecipe(name, path, problem=str(error)))
    return listed


def find_recipe(name: str, roots: Roots, configured: list[str]) -> AgentRecipe:
    """A recipe by its name (`claude-code` is `claude_code`) or its file. An unknown name lists what there is."""
    if name.endswith(_SUFFIXES):
        return read_recipe(roots.require(name, "the agent recipe"))
    files = _files(roots)
    path = files.get(name) or files.get(name.replace("-", "_"))
    if path is None:
        known = [*configured, *files]
        hint = suggest(name, known) or f"one of {', '.join(known)}"
        raise NotFoundError(f"no agent '{name}': neither configured nor a recipe", where="--agent", next=hint)
    return read_recipe(path)


def read_recipe(path: Path) -> AgentRecipe:
    """Read a recipe file. Raises ConfigError for one that cannot be used."""
    content = tree.plain(read_yaml(path))
    problem = _find_problem(content)
    if problem is not None:
        raise ConfigError([Problem(problem, where=str(path))], next="docs/how-to/any-agent.md shows a recipe")
    return AgentRecipe(
        path.stem,
        path,
        str(content["description"]),
        content["implementation"],
        _fill_folder(content.get("settings", {}), str(path.parent.absolute())),
    )


def swap_agents(root: Node, recipe: AgentRecipe) -> tuple[Node, dict[str, str]]:
    """The tree with every agent replaced by the recipe, and the new names of the agents by their old ones."""
    agents = {name: block for name, block in root.value.items() if _implementation(block) is not None}
    if not agents:
        raise UserError(
            f"--agent {recipe.name} has no environment: no agent is configured to take it from",
            next="name an environment: -e NAME (gymnast env list)",
        )
    values, renames = dict(root.value), dict[str, str]()
    for name, block in agents.items():
        implementation, settings = _implementation(block) or ("", block)
        _check_replaceable(name, implementation, settings, recipe)
        renames[name] = new_name = _new_name(name, implementation, recipe.name, values)
        values.pop(name)
        values[new_name] = _swapped_block(root, new_name, settings, recipe)
    return Node(values, root.origin, root.replaced), renames


def _swapped_block(root: Node, new_name: str, settings: Node, recipe: AgentRecipe) -> Node:
    origin = Origin(f"--agent {recipe.name} ({recipe.path})")
    block = tree.node_from({"entrypoint": "app.py", **recipe.settings}, origin)
    block = tree.merge(Node({key: settings.value[key] for key in _INHERITED if key in settings.value}, origin), block)
    extra = root.get(AGENT_SETTINGS)
    if extra is not None and recipe.implementation == PROGRAM_AGENT:
        block = tree.merge(block, extra)
    whole = Node({KIND: Node({recipe.implementation: block}, origin)}, origin)
    written = root.get(new_name)  # overrides of the new agent's settings
    return tree.merge(whole, written) if written is not None else whole


def _implementation(block: Node) -> tuple[str, Node] | None:
    """The implementation and the settings of an agent's block; None for another block."""
    kind = block.get(KIND)
    if kind is None or not kind.is_dict or len(kind.value) != 1:
        return None
    name, settings = next(iter(kind.value.items()))
    return (name, settings) if settings.is_dict and {"entrypoint", "url"} & settings.value.keys() else None


def _check_replaceable(name: str, implementation: str, settings: Node, recipe: AgentRecipe) -> None:
    reason = _DRIVING.get(implementation)
    if reason is None and not {"resources_server", "model_server"} <= settings.value.keys():
        reason = "it has no `resources_server` and `model_server`"
    if reason is not None:
        raise UserError(
            f"--agent {recipe.name} cannot replace '{name}' ({implementation}): {reason}",
            where=str(settings.origin),
            next="leave out --agent, or name another environment",
        )


def _new_name(name: str, implementation: str, recipe: str, instances: Mapping[str, Node]) -> str:
    """`mcqa_simple_agent` with the recipe `codex` is `mcqa_codex`."""
    new = name.removesuffix(implementation).rstrip("_") + f"_{recipe}" if name.endswith(implementation) else None
    if new is None or new == f"_{recipe}" or (new in instances and new != name and _implementation(instances[new])):
        return f"{name}_{recipe}"
    return new


def _find_problem(content: Any) -> str | None:
    if not isinstance(content, dict):
        return "a recipe is a mapping with description, implementation and settings"
    unknown = sorted(set(content) - _KEYS)
    if unknown:
        return f"unknown key '{unknown[0]}' in a recipe: {suggest(unknown[0], _KEYS)}"
    missing = [key for key in ("description", "implementation") if not isinstance(content.get(key), str)]
    if missing:
        return f"a recipe needs '{missing[0]}'"
    settings = content.get("settings", {})
    if not isinstance(settings, dict):
        return "'settings' of a recipe must be a mapping"
    fixed = sorted(_FIXED & set(settings))
    return f"'{fixed[0]}' comes from the agent that is replaced: leave it out" if fixed else None


def _fill_folder(value: Any, folder: str) -> Any:
    if isinstance(value, dict):
        return {key: _fill_folder(child, folder) for key, child in value.items()}
    if isinstance(value, list):
        return [_fill_folder(child, folder) for child in value]
    return value.replace(RECIPE_FOLDER, folder) if isinstance(value, str) else value


def _files(roots: Roots) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for root in roots:
        for path in sorted((root / _FOLDER).glob("*")):
            if path.suffix in _SUFFIXES and path.is_file():
                files.setdefault(path.stem, path)
    return files
