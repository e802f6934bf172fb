"""The benchmarks, environments, agents, models and resources servers that a command line can name.

Found in the folders of a checkout and among the built-ins; the first root that has a name wins. Their entries in JSON
lists have NeMo Gym's keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gymnast.compat.ng_catalog import ConfigReader, benchmark_details, find_workloads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gymnast.compat.ng_catalog import Workload
    from gymnast.config.roots import Roots

KINDS: Final = {
    "benchmarks": "benchmarks",
    "environments": "environments",
    "resources-servers": "resources_servers",
    "agents": "responses_api_agents",
    "models": "responses_api_models",
}
"""The folder of each kind of component."""

RESOURCES: Final = "resources_servers"
AGENTS: Final = "responses_api_agents"
_GROUPS: Final = (RESOURCES, AGENTS, "responses_api_models")
_MANIFEST_LABELS: Final = {"version": "version", "integration_profile": "profile"} | {
    key: key for key in ("modality", "licensing", "lifecycle")
}


@dataclass(frozen=True, slots=True)
class Component:
    """Something that a command line can name."""

    noun: str
    """What it is, in the singular."""
    name: str
    path: Path
    """Its config, or the folder of an agent."""
    domain: str | None = None
    description: str | None = None
    entry: Mapping[str, Any] = field(default_factory=dict)
    """Its entry in JSON lists, besides the name."""
    search_words: tuple[str, ...] = ()
    """What a search looks at besides name, domain and description."""
    details: Mapping[str, str] = field(default_factory=dict)
    """More of it, by label, for a look at this one."""
    usage: str | None = None


def find_components(roots: Roots, kind: str) -> list[Component]:
    """All components of a kind, root by root.

    Environments are all that can be run: benchmarks and configs of resources servers with datasets are among them.
    """
    read = ConfigReader()
    if kind in {"environments", "benchmarks"}:
        found_workloads = find_workloads(roots, read)
        return [_workload(each, roots, read) for each in found_workloads if kind in {"environments", f"{each.kind}s"}]
    components: dict[str, Component] = {}
    for root in roots:
        for component in _FINDERS[kind](root / KINDS[kind], roots, read):
            components.setdefault(component.name, component)
    return list(components.values())


def _agents(folder: Path, _: Roots, read: ConfigReader) -> Iterator[Component]:
    for path in sorted(folder.glob("*/")):
        configs = {file.stem: list(_servers(read(file), AGENTS)) for file in sorted(path.glob("configs/*.yaml"))}
        configs = {name: blocks for name, blocks in configs.items() if blocks}
        if not configs and not (path / "app.py").is_file():
            continue
        blocks = [block for each in configs.values() for _, block in each]
        description = next((text for block in blocks if isinstance(text := block.get("description"), str)), None)
        alone, variants = _runs_alone(blocks), sorted(configs)
        entry = {
            "pattern": "B (self-contained)" if alone else "A (composable)",
            "self_contained": alone,
            "variants": variants,
            "description": description,
        }
        details = {"path": str(path.resolve()), "composition": "self-contained (B)" if alone else "composable (A)"}
        details |= {"variants": ", ".join(variants)} if variants else {}
        yield Component("agent", path.name, path, None, description, entry, tuple(variants), details)


def _runs_alone(blocks: list[dict[str, Any]]) -> bool:
    """Whether an agent's configs give it no resources server, or a loop of its own."""
    keys = {key for block in blocks for key in block}
    return bool(blocks) and ("resources_server" not in keys or bool(keys & {"agent_framework", "anthropic_api_key"}))


def _models(folder: Path, _: Roots, __: ConfigReader) -> Iterator[Component]:
    for path in sorted(folder.glob("*/configs/*.yaml")):
        name, group = _flavor_name(path), path.parent.parent.name
        usage = f"gym env start --resources-server example_single_tool_call --model-type {name}"
        entry = {"model": name, "model_group": group}
        yield Component("model", name, path, None, None, entry, (group,), {"config": str(path.resolve())}, usage)


def _resources_servers(folder: Path, roots: Roots, read: ConfigReader) -> Iterator[Component]:
    for path in sorted(folder.glob("*/configs/*.yaml")):
        blocks = [block for _, block in _servers(read(path), RESOURCES)]
        if not blocks:
            continue
        name, (domain, description) = _flavor_name(path), describe(path, roots, read)
        usage = f"gym env start --resources-server {name} --model-type vllm_model"
        entry = {"domain": domain, "description": description}
        details = {"config": str(path.resolve())} | _value(blocks)
        yield Component("resources server", name, path, domain, description, entry, (), details, usage)


_FINDERS: Final = {"agents": _agents, "models": _models, "resources-servers": _resources_servers}


def _workload(workload: Workload, roots: Roots, read: ConfigReader) -> Component:
    """An environment or benchmark; what its manifest says wins over its config."""
    facts, path = workload.details, workload.config
    manifest = workload.manifest or {}
    domain, description = describe(path, roots, read)
    domain, description = manifest.get("domain") or domain, manifest.get("description") or description
    entry = {key: facts[key] for key in ("kind", "status")} | {"domain": domain, "description": description}
    entry |= {key: facts[key] for key in _MANIFEST_LABELS}
    if workload.kind == "benchmark":
        entry |= benchmark_details(path, read)
    selector = workload.name.removeprefix(f"{RESOURCES}/")
    option = "resources-server" if selector != workload.name else workload.kind
    return Component(
        workload.kind,
        workload.name,
        path,
        domain,
        description,
        entry,
        details=_workload_facts(workload, facts, read(path)),
        usage=f"gym env start --{option} {selector} --model-type vllm_model",
    )


def _workload_facts(workload: Workload, facts: Mapping[str, Any], config: Any) -> dict[str, str]:
    servers, agents = list(_servers(config, RESOURCES)), list(_servers(config, AGENTS))
    datasets = [
        str(entry["name"])
        for _, block in agents
        for entry in block.get("datasets") or ()
        if isinstance(entry, dict) and entry.get("name")
    ]
    texts = {"config": str(workload.config.resolve()), "status": str(facts["status"])}
    if workload.manifest is not None:
        texts["manifest"] = str(workload.manifest_path.resolve())
    texts |= {label: str(facts[key]) for key, label in _MANIFEST_LABELS.items() if facts[key]}
    lists = {"resources servers": [name for name, _ in servers], "agent": [name for name, _ in agents][:1]}
    lists["datasets"] = datasets
    texts |= {label: ", ".join(names) for label, names in lists.items() if names}
    return texts | _value([block for _, block in servers])


def _value(blocks: list[dict[str, Any]]) -> dict[str, str]:
    """What a server says it is good for, if it does."""
    text = next((block["value"] for block in blocks if block.get("value")), None)
    return {} if text is None else {"value": str(text)}


def describe(
    path: Path, roots: Roots, read: ConfigReader, seen: frozenset[Path] = frozenset()
) -> tuple[str | None, str | None]:
    """The first domain and the first description of servers in a config, or in the configs that it includes."""
    config = read(path)
    blocks = [block for group in _GROUPS for _, block in _servers(config, group)]
    domain = next((str(block["domain"]) for block in blocks if block.get("domain")), None)
    description = next((str(block["description"]) for block in blocks if block.get("description")), None)
    included = config.get("config_paths") if isinstance(config, dict) else None
    for name in included if isinstance(included, list) else ():
        if domain is not None and description is not None:
            break
        file = roots.find(str(name))
        if file is not None and file not in seen:
            more = describe(file, roots, read, seen | {path})
            domain, description = domain or more[0], description or more[1]
    return domain, description


def _flavor_name(path: Path) -> str:
    """`mcqa`, or `math_with_judge/dapo17k` for a flavor."""
    folder = path.parent.parent.name
    return folder if path.stem == folder else f"{folder}/{path.stem}"


def servers_of(config: Any, group: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The servers of a group in a config: their instances, implementations and settings."""
    for instance, block in config.items() if isinstance(config, dict) else ():
        servers = block.get(group) if isinstance(block, dict) else None
        for name, server in servers.items() if isinstance(servers, dict) else ():
            if isinstance(server, dict):
                yield str(instance), str(name), server


def _servers(config: Any, group: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((name, server) for _, name, server in servers_of(config, group))
