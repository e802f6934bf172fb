"""Loads config files, env.yaml and overrides into one checked configuration, each value with its origin.

Precedence, low to high: defaults, files in `config_paths` (a file overrides what it includes; later files override
earlier ones), env.yaml, an initial mapping from a program, overrides. Nothing is started here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from gymnast.config import interpolate, overrides, tree
from gymnast.config.agent_recipes import find_recipe, swap_agents
from gymnast.config.directives import apply_directives
from gymnast.config.instances import (
    Instance,
    check_environment_servers,
    check_references,
    find_misspelt_kinds,
    is_instance_block,
    parse_instance,
    task_agents,
)
from gymnast.config.keyring import Keyring
from gymnast.config.known_keys import GLOBAL_KEYS, may_read_any_key, unread_overrides, warn_without_effect
from gymnast.config.roots import Roots
from gymnast.config.secrets import Scrubber, mask_secrets, scrub_tree
from gymnast.config.tree import Node, Origin
from gymnast.config.yaml_source import read_yaml
from gymnast.errors import ConfigError, NotFoundError, Problem, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.config.environ import Environ
    from gymnast.config.known_keys import KnownKeys
    from gymnast.config.overrides import Override


Unread = Literal["refuse", "warn", "ignore"]
"""What becomes of overrides that nothing reads."""
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_HEAD_PORT: Final = 11000
STUB: Final = Origin("stub: no policy is configured")
POLICY_STUB: Final[dict[str, Any]] = {
    "policy_base_url": "",
    "policy_api_key": "",
    "policy_model_name": "",
}
"""The lowest layer for commands that need no model, so that `${policy_…}` resolves."""
POLICY_STUB_INSTANCE: Final[dict[str, Any]] = {
    "policy_model": {"responses_api_models": {"scripted_model": {"entrypoint": "app.py", "replies": ["stub"]}}}
}
"""The policy of commands that need none, if none is configured."""


@dataclass(frozen=True, slots=True)
class Config:
    """A loaded configuration. It can be used if `problems` is empty."""

    root: Node
    roots: Roots
    files: tuple[str, ...]
    values: Mapping[str, Any]
    """Every top-level key, resolved."""
    instances: Mapping[str, Instance]
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...] = ()
    """What has no effect, or may be a mistake."""
    scrubber: Scrubber = field(default_factory=Scrubber)
    notes: tuple[str, ...] = ()
    """How something was read, where nothing is wrong."""
    agent_renames: Mapping[str, str] = field(default_factory=dict)
    """The names of agents that replaced others (`--agent RECIPE`), by the names that rows use."""

    def require_valid(self) -> Config:
        """Itself, or one ConfigError with all problems."""
        if self.problems:
            raise ConfigError(self.problems, next="gymnast config explain KEY shows where a value comes from")
        return self

    def masked_values(self) -> dict[str, Any]:
        """The resolved values with secrets masked: what may be shown."""
        return {key: scrub_tree(mask_secrets(value, key), self.scrubber) for key, value in self.values.items()}

    @property
    def agents(self) -> list[str]:
        return [name for name, instance in self.instances.items() if instance.kind == "responses_api_agents"]

    @property
    def task_agents(self) -> dict[str, tuple[str, ...]]:
        """The agents that can run the tasks of each instance (`task_source` of a row)."""
        return task_agents(self.values, self.instances)

    def agent_of(self, name: str) -> str:
        """The one agent that runs the tasks of an instance."""
        agents = self.task_agents.get(name, ())
        if len(agents) == 1:
            return agents[0]
        problem = f"several agents use '{name}': {', '.join(agents)}" if agents else f"no agent uses '{name}'"
        raise NotFoundError(problem, next="name the `agent` of its dataset")

    @property
    def lacks_policy(self) -> bool:
        """Whether the policy is only a stub: good enough to inspect a configuration, not to run it."""
        policy = self.root.get("policy_model")
        return policy is not None and policy.origin == STUB

    def instance(self, name: str) -> Instance:
        """The instance of that name, or an error with suggestions."""
        instance = self.instances.get(name)
        if instance is None:
            raise NotFoundError(f"no instance '{name}' in the configuration", next=suggest(name, self.instances))
        return instance

    @property
    def strict_settings(self) -> bool:
        """Whether settings that a server does not know are errors (`error_on_unknown_settings`)."""
        return self.values.get("error_on_unknown_settings", True) is not False

    @property
    def head_port(self) -> int:
        return int((self.values.get("head_server") or {}).get("port") or DEFAULT_HEAD_PORT)

    @property
    def default_host(self) -> str:
        return str(self.values.get("default_host") or DEFAULT_HOST)


def load_config(
    override_texts: Sequence[str] = (),
    *,
    environ: Environ,
    config_paths: Sequence[str] = (),
    search_dirs: Sequence[Path] = (),
    initial: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    cwd: Path | None = None,
    stub_policy: bool = False,
    command_keys: KnownKeys | None = None,
    unread: Unread = "ignore",
    model_options: Mapping[str, str] | None = None,
    agent: str | None = None,
) -> Config:
    """Read, merge, expand, resolve and check. Problems are collected in the result, not raised, so that `config show`
    can show the rest; only text that cannot be parsed raises.

    `command_keys` are top-level keys that the command reads besides those that all read. `unread` says what becomes of
    overrides that nothing reads; `model_options` are the options that set the policy's keys, by key. An `agent` that is
    not configured is a recipe, which replaces the configured agents.
    """
    problems: list[Problem] = []
    roots = Roots((*search_dirs, *environ.extra_roots), cwd or Path.cwd())
    parsed = overrides.parse_overrides(override_texts)
    env_node = _read_env_yaml(roots, problems)
    initial_node = tree.node_from(dict(initial or {}), Origin("initial configuration"))
    paths = [*config_paths, *_listed_paths(env_node, initial_node, overrides.additions(parsed), problems)]
    files, warnings = _Files(roots, problems), list[str]()
    root = tree.node_from(dict(defaults or {}), Origin("default"))
    if stub_policy:
        root = tree.merge(root, tree.node_from(POLICY_STUB, STUB))
    root = files.merge_into(root, paths)
    for layer in (env_node, initial_node):
        root = tree.merge(root, layer)
    keys: KnownKeys = command_keys or {}
    root = overrides.apply_sets(root, parsed, problems, () if unread == "ignore" else {**GLOBAL_KEYS, **keys})
    root = tree.merge(
        root, Node({"config_paths": tree.node_from(files.loaded, Origin("loaded files"))}, Origin("default"))
    )
    if stub_policy and "policy_model" not in root.value:
        root = tree.merge(root, tree.node_from(POLICY_STUB_INSTANCE, STUB))
    written = root
    root, directive_problems = apply_directives(root)
    problems += directive_problems
    renames: dict[str, str] = {}
    if agent is not None and agent not in root.value:
        root, renames = swap_agents(root, find_recipe(agent, roots, _agent_names(root)))
    root = overrides.apply_deletes(root, parsed, problems)
    keyring = Keyring(root, environ.keys_file)
    problems += keyring.problems
    config = replace(_build_config(root, roots, files, problems, warnings, keyring), agent_renames=renames)
    if unread == "ignore":
        return config
    return _report_unread(config, parsed, written, keys, unread, {} if stub_policy else model_options or {})


def _agent_names(root: Node) -> list[str]:
    return [name for name, node in root.value.items() if node.get("responses_api_agents") is not None]


def _report_unread(
    config: Config,
    parsed: Sequence[Override],
    written: Node,
    keys: KnownKeys,
    unread: Unread,
    model_options: Mapping[str, str],
) -> Config:
    """The configuration with what nothing reads as problems, or as warnings where a server may read any key."""
    servers = {name for name, node in config.root.value.items() if is_instance_block(node)}
    reported = {problem.where for problem in config.problems}
    ignored = [problem for problem in unread_overrides(parsed, written, servers, keys) if problem.where not in reported]
    warnings = [*config.warnings]
    if not config.lacks_policy:
        warnings += warn_without_effect(parsed, written, model_options)
    if ignored and (unread == "warn" or may_read_any_key(config.instances.values())):
        warnings += [str(problem) for problem in ignored]
        ignored = []
    return replace(config, problems=(*config.problems, *ignored), warnings=tuple(warnings))


def _build_config(
    root: Node, roots: Roots, files: _Files, problems: list[Problem], warnings: list[str], keyring: Keyring
) -> Config:
    problems += interpolate.missing_values(root)
    servers = {name: node for name, node in root.value.items() if is_instance_block(node)}
    values = interpolate.resolve_keys(root, servers, problems, keyring)
    unused: list[Problem] = []  # a broken interpolation in an unused block is only a warning
    values |= interpolate.resolve_keys(root, [key for key in root.value if key not in servers], unused, keyring)
    warnings += [str(problem) for problem in unused]
    is_strict = values.get("error_on_almost_servers", True) is not False
    instance_problems: list[Problem] = [*find_misspelt_kinds(root), *check_environment_servers(values, root)]
    instances: dict[str, Instance] = {}
    for name, node in servers.items():
        instance = parse_instance(name, node, values.get(name) or {}, roots, instance_problems)
        if instance is not None:
            instances[name] = instance
            if (instance.block.get("num_workers") or 1) > 1:
                warnings.append(f"num_workers of '{name}' has no effect: one process serves an instance")
    if is_strict:
        check_references(instances, instance_problems, broken=servers.keys() - instances.keys())
        problems += instance_problems
    else:
        warnings += [f"skipped: {problem}" for problem in instance_problems]
    ordered = {key: values[key] for key in root.value if key in values}
    scrubber = Scrubber(ordered, keyring.secrets)
    return Config(
        root,
        roots,
        tuple(files.loaded),
        ordered,
        instances,
        tuple(problems),
        tuple(warnings),
        scrubber,
        tuple(files.notes),
    )


def _read_env_yaml(roots: Roots, problems: list[Problem]) -> Node:
    for folder in (*roots.extra, roots.cwd):
        path = folder / "env.yaml"
        if path.exists():
            try:
                return read_yaml(path, shown="env.yaml")
            except ConfigError as error:
                problems += error.problems
    return Node({}, Origin("env.yaml"))


def _listed_paths(env_node: Node, initial: Node, cli: Node, problems: list[Problem]) -> list[str]:
    """`config_paths` from the highest of env.yaml, initial mapping and overrides, with interpolations resolved."""
    layers = tree.merge(tree.merge(env_node, initial), cli)
    if layers.get("config_paths") is None:
        return []
    value = interpolate.resolve_keys(layers, ["config_paths"], problems).get("config_paths")
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        origin = layers.value["config_paths"].origin
        problems.append(
            Problem("'config_paths' must be a list of paths", where=str(origin), next="+config_paths=[a.yaml,b.yaml]")
        )
        return []
    return value


class _Files:
    """Loads each config file once, after the files it includes."""

    def __init__(self, roots: Roots, problems: list[Problem]) -> None:
        self._roots = roots
        self._problems = problems
        self._seen: set[Path] = set()
        self.loaded: list[str] = []
        self.notes: list[str] = []

    def merge_into(self, base: Node, paths: Sequence[str], listed_in: str | None = None) -> Node:
        for path in paths:
            base = self._merge_file(base, path, listed_in)
        return base

    def _merge_file(self, base: Node, listed: str, listed_in: str | None) -> Node:
        path = self._roots.find(listed)
        if path is None or path.is_dir():
            where = f"config_paths in {listed_in}" if listed_in else "config_paths"
            what = f"no config file '{listed}'" if path is None else f"'{listed}' is a folder, not a config file"
            hint = self._roots.suggest(listed) or self._roots.describe_search(listed)
            self._problems.append(Problem(what, where=where, next=hint))
            return base
        if path.resolve() in self._seen:
            self.notes.append(f"{listed} is listed twice; loaded once")
            return base
        self._seen.add(path.resolve())
        shown = self._roots.relative(path)
        try:
            node = read_yaml(path, shown=shown)
        except ConfigError as error:
            self._problems += error.problems
            return base
        nested = node.get("config_paths")
        if nested is not None:
            paths = tree.plain(nested)
            if isinstance(paths, list):
                base = self.merge_into(base, [str(item) for item in paths], listed_in=shown)
            else:
                self._problems.append(Problem("'config_paths' must be a list of paths", where=str(nested.origin)))
            node = tree.remove(node, ("config_paths",))
        self.loaded.append(listed)
        return tree.merge(base, node)
