"""Instances: the top-level blocks of a configuration that describe servers, and the references between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from gymnast.config import tree
from gymnast.config.datasets import check_datasets
from gymnast.config.interpolate import MISSING
from gymnast.config.urls import BadUrl, parse_base_url, parse_url
from gymnast.errors import Problem, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from gymnast.config.roots import Roots
    from gymnast.config.tree import Node

ServerKind = Literal["responses_api_models", "resources_servers", "responses_api_agents"]
SERVER_KINDS: Final[tuple[ServerKind, ...]] = get_args(ServerKind)

ENVIRONMENT_SERVERS: Final = "environment_servers"
"""The kind of server that NeMo Gym 0.7 puts before an agent."""
RELAY: Final = "legacy_agent"
"""The environment server that only passes requests on to its agent: rows go to the agent without it."""

DOMAINS: Final = (
    "math", "coding", "agent", "knowledge", "instruction_following", "long_context", "safety", "games", "translation",
    "e2e", "rlhf", "other",
)  # fmt: skip

POLICY: Final = "policy_model"
"""The name that the policy has by convention."""
RunsIn = Literal["auto", "process", "child", "venv"]
"""Where an instance runs: in this process, a child process, a child process with its own venv, or `auto`: in this
process unless its folder lists requirements that are not met here."""

COMMON_KEYS: Final = frozenset(
    {"entrypoint", "host", "port", "num_workers", "domain", "datasets", "url", "runs_in"}
    | {"verified", "verified_url", "description", "value", "name", "needs"}
)
"""Keys that every server block may have; the others are the server's own settings."""


@dataclass(frozen=True, slots=True)
class ServerRef:
    """A reference from one instance to another: `{type: <kind>, name: <instance>}`."""

    kind: ServerKind
    name: str


@dataclass(frozen=True, slots=True)
class Instance:
    """A configured server."""

    name: str
    kind: ServerKind
    implementation: str
    entrypoint: str | None
    directory: Path | None
    url: str | None
    host: str | None
    port: int | None
    runs_in: RunsIn
    settings: Mapping[str, Any]
    """The block without the common keys: the server's own settings."""
    refs: Mapping[str, ServerRef]
    block: Mapping[str, Any]
    """The whole resolved block, as the head server shows it."""
    datasets: tuple[Mapping[str, Any], ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each direct key was written."""

    @property
    def config_path(self) -> str:
        return f"{self.name}.{self.kind}.{self.implementation}"

    @property
    def environments(self) -> list[str]:
        """The resources servers it refers to."""
        return [ref.name for ref in self.refs.values() if ref.kind == "resources_servers"]


def is_instance_block(node: Node) -> bool:
    """Whether a block has a server kind and, below it, something that can be started or reached."""
    return any(_is_startable(node.get(kind)) for kind in SERVER_KINDS)


def parse_instance(name: str, node: Node, block: Any, roots: Roots, problems: list[Problem]) -> Instance | None:
    """The instance described by a top-level block. `block` holds the same data with interpolations resolved."""
    before = len(problems)
    where = f"{name} ({node.origin})"
    kinds = [kind for kind in SERVER_KINDS if kind in node.value]
    if len(kinds) > 1 or len(node.value) > 1:
        extra = sorted(set(node.value) - {kinds[0]})
        problems.append(Problem(f"an instance has one kind, but this one also has: {', '.join(extra)}", where=where))
        return None
    kind = kinds[0]
    implementations = node.value[kind].value
    if len(implementations) != 1:
        text = f"'{kind}' must name one implementation, not {len(implementations)}: {', '.join(implementations)}"
        problems.append(Problem(text, where=where))
        return None
    implementation = next(iter(implementations))
    inner = implementations[implementation]
    values = block.get(kind, {}).get(implementation) or {}
    instance = _build(name, kind, implementation, inner, values, roots, problems)
    return instance if len(problems) == before else None


def find_misspelt_kinds(root: Node) -> list[Problem]:
    """Problems of blocks that would be instances if their kind were spelled right."""
    return [
        Problem(f"unknown kind of server '{key}'", where=f"{name} ({child.origin})", next=suggest(key, SERVER_KINDS))
        for name, node in tree.known_keys(root).items()
        for key, child in tree.known_keys(node).items()
        if key not in {*SERVER_KINDS, ENVIRONMENT_SERVERS} and _is_startable(child) and not is_instance_block(node)
    ]


def check_environment_servers(values: Mapping[str, Any], root: Node) -> list[Problem]:
    """Problems of environment servers that do more than pass requests on."""
    return [
        Problem(
            f"Gymnast does not run the environment server '{implementation}'",
            where=f"{name} ({root.value[name].origin})",
            next=f"use agents with /run, with or without '{RELAY}' before them",
        )
        for name, block in values.items()
        if isinstance(block, dict) and isinstance(block.get(ENVIRONMENT_SERVERS), dict)
        for implementation in block[ENVIRONMENT_SERVERS]
        if implementation != RELAY
    ]


def task_agents(values: Mapping[str, Any], instances: Mapping[str, Instance]) -> dict[str, tuple[str, ...]]:
    """The agents that can run the tasks of an instance (`task_source`): an agent itself, those of an environment or
    the one that its datasets name, and the agent behind a relay."""
    agents = {name: instance for name, instance in instances.items() if instance.kind == "responses_api_agents"}
    sources: dict[str, tuple[str, ...]] = {name: (name,) for name in agents}
    for name, instance in instances.items():
        if instance.kind == "resources_servers":
            chosen = {str(dataset["agent"]) for dataset in instance.datasets if dataset.get("agent")}
            users = (agent for agent, other in agents.items() if name in other.environments)
            sources[name] = tuple(sorted(chosen or users))
    for name, block in values.items():
        relays = block.get(ENVIRONMENT_SERVERS) if isinstance(block, dict) else None
        relay = relays.get(RELAY) if isinstance(relays, dict) else None
        agent = relay.get("agent_server") if isinstance(relay, dict) else None
        if isinstance(agent, dict) and agent.get("name") in agents:
            sources[name] = (str(agent["name"]),)
    return sources


def check_references(instances: Mapping[str, Instance], problems: list[Problem], broken: Collection[str] = ()) -> None:
    """Check that every reference names an existing instance of its kind. Problems of `broken` ones are known."""
    for instance in instances.values():
        for key, ref in instance.refs.items():
            target = instances.get(ref.name)
            if ref.name in broken or (target is not None and target.kind == ref.kind):
                continue
            if ref.name == POLICY and target is None:
                problems.append(_no_policy(instance))
                continue
            known = [other.name for other in instances.values() if other.kind == ref.kind]
            what = f"'{key}' of '{instance.name}' refers to the {_noun(ref.kind)} '{ref.name}', which "
            what += f"is a {_noun(target.kind)}" if target is not None else "is not configured"
            problems.append(
                Problem(what, where=instance.origins.get(key), next=suggest(ref.name, known) or _add_hint(ref.kind))
            )


def _build(
    name: str,
    kind: ServerKind,
    implementation: str,
    inner: Node,
    values: dict[str, Any],
    roots: Roots,
    problems: list[Problem],
) -> Instance:
    where = f"{name} ({inner.origin})"
    url, entrypoint = values.get("url"), values.get("entrypoint")
    url = _parse("url", url, parse_url, where, problems) if url is not None else None
    if kind == "responses_api_models":
        values = {**values, **_base_urls(values, inner, where, problems)}
    directory = None if url else _directory(kind, implementation, str(entrypoint), roots, where, problems)
    _check_domain(kind, values, where, problems)
    _check_scalars(values, where, problems)
    datasets = values.get("datasets")
    datasets = [] if datasets is None else datasets
    problems.extend(check_datasets(datasets, where))
    return Instance(
        name=name,
        kind=kind,
        implementation=implementation,
        entrypoint=str(entrypoint) if entrypoint else None,
        directory=directory,
        url=url,
        host=values.get("host"),
        port=values.get("port"),
        runs_in=values.get("runs_in") or "auto",
        settings={key: value for key, value in values.items() if key not in COMMON_KEYS},
        refs=_references(values, where, problems),
        block=values,
        datasets=tuple(datasets) if isinstance(datasets, list) else (),
        origins={key: str(child.origin) for key, child in inner.value.items()},
    )


def _base_urls(values: dict[str, Any], inner: Node, where: str, problems: list[Problem]) -> dict[str, Any]:
    """The base URLs of a model, completed."""
    completed: dict[str, Any] = {}
    for key, value in values.items():
        if not key.endswith("base_url") or not value or value == MISSING:
            continue
        origin = f"{where.partition(' ')[0]} ({inner.value[key].origin})" if key in inner.value else where
        if isinstance(value, list):
            completed[key] = [_parse(key, item, parse_base_url, origin, problems) for item in value]
        else:
            completed[key] = _parse(key, value, parse_base_url, origin, problems)
    return completed


def _parse(key: str, value: Any, parse: Callable[[str], str], where: str, problems: list[Problem]) -> Any:
    if not isinstance(value, str):
        return value  # a wrong type is the business of the server's settings
    try:
        return parse(value)
    except BadUrl as error:
        problems.append(Problem(f"'{key}': {error}", where=where))
        return value


def _directory(
    kind: str, implementation: str, entrypoint: str, roots: Roots, where: str, problems: list[Problem]
) -> Path | None:
    folder = Path(kind) / implementation
    path = roots.find(folder / entrypoint)
    if path is not None:
        return path.parent
    if roots.find(folder) is not None:
        problems.append(Problem(f"'{folder}' has no '{entrypoint}'", where=where, next="fix `entrypoint`"))
        return None
    known = {path.name for root in roots for path in (root / kind).glob("*") if (path / "app.py").exists()}
    hint = suggest(implementation, known)
    problems.append(Problem(f"no implementation '{folder}'", where=where, next=hint or roots.describe_search(folder)))
    return None


def _references(values: dict[str, Any], where: str, problems: list[Problem]) -> dict[str, ServerRef]:
    refs: dict[str, ServerRef] = {}
    for key, value in values.items():
        if not isinstance(value, dict) or set(value) != {"type", "name"}:
            continue
        if value["type"] not in SERVER_KINDS:
            hint = suggest(str(value["type"]), SERVER_KINDS)
            problems.append(Problem(f"'{key}' has the unknown type '{value['type']}'", where=where, next=hint))
            continue
        refs[key] = ServerRef(value["type"], str(value["name"]))
    return refs


def _check_domain(kind: str, values: dict[str, Any], where: str, problems: list[Problem]) -> None:
    domain = values.get("domain")
    if kind != "resources_servers":
        return
    if domain is None:
        problems.append(
            Problem("a resources server needs a 'domain'", where=where, next=f"one of {', '.join(DOMAINS)}")
        )
    elif domain not in DOMAINS:
        problems.append(Problem(f"unknown domain '{domain}'", where=where, next=suggest(str(domain), DOMAINS)))


def _check_scalars(values: dict[str, Any], where: str, problems: list[Problem]) -> None:
    port, host, runs_in = values.get("port"), values.get("host"), values.get("runs_in")
    if port is not None and (not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65535):
        problems.append(Problem(f"'port' must be a number from 0 to 65535, got {port!r}", where=where))
    if host is not None and not isinstance(host, str):
        problems.append(Problem(f"'host' must be a string, got {host!r}", where=where))
    if runs_in is not None and runs_in not in get_args(RunsIn):
        problems.append(
            Problem(f"'runs_in' cannot be '{runs_in}'", where=where, next=suggest(str(runs_in), get_args(RunsIn)))
        )
    workers = values.get("num_workers")
    if workers is not None and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
        problems.append(Problem(f"'num_workers' must be a positive number, got {workers!r}", where=where))


def _is_startable(node: Node | None) -> bool:
    return any(
        "entrypoint" in tree.known_keys(implementation) or "url" in tree.known_keys(implementation)
        for implementation in tree.known_keys(node).values()
    )


def _no_policy(instance: Instance) -> Problem:
    return Problem(
        f"no model is configured as the policy: '{instance.name}' needs a '{POLICY}'",
        next="pass the endpoint: --model-url URL -m NAME; or use the small policy that ships: --model-type "
        "embedded_model; or add a model's config file, e.g. responses_api_models/vllm_model/configs/vllm_model.yaml",
    )


def _noun(kind: str) -> str:
    return {"responses_api_models": "model", "resources_servers": "resources server"}.get(kind, "agent")


def _add_hint(kind: str) -> str | None:
    if kind == "responses_api_models":
        return "add a model config, e.g. responses_api_models/vllm_model/configs/vllm_model.yaml, to config_paths"
    return None
