"""Lists of benchmarks, environments and servers, by their folders in a checkout and among the built-ins."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gymnast.cli.options import print_json, say
from gymnast.compat.ng_arguments import Fields, NgArguments
from gymnast.compat.ng_catalog import benchmark_details, find_benchmarks, find_workloads, read_config
from gymnast.errors import NotFoundError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gymnast.compat.ng_catalog import Workload
    from gymnast.config import Config
    from gymnast.config.roots import Roots

KINDS: Final = {
    "benchmarks": ("benchmarks", "*/config.yaml"),
    "environments": ("environments", "*/config.yaml"),
    "resources-servers": ("resources_servers", "*/configs/*.yaml"),
    "agents": ("responses_api_agents", "*/app.py"),
    "models": ("responses_api_models", "*/configs/*.yaml"),
}
"""The folder of each kind of component, and the files that make up one."""


@dataclass(frozen=True, slots=True)
class Component:
    """A benchmark, environment or server that a command line can name."""

    kind: str
    name: str
    path: str
    domain: str | None = None
    description: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    """More of it, for `--json`."""

    def as_json(self) -> dict[str, Any]:
        """Its entry in a JSON list."""
        values = asdict(self)
        details = values.pop("details")
        return {**values, **details}


def find_components(roots: Roots, kind: str) -> list[Component]:
    """All components of a kind, by name; the first root that has one wins.

    Environments are all that can be run: benchmarks and configs of resources servers with datasets are among them.
    """
    if kind == "environments":
        return [_as_component(kind, roots, workload, workload.details) for workload in find_workloads(roots)]
    by_name: dict[str, Component] = {}
    if kind == "benchmarks":
        for benchmark in (benchmark for root in roots for benchmark in find_benchmarks(root)):
            if benchmark.name not in by_name:
                details = benchmark_details(benchmark.config)
                by_name[benchmark.name] = _as_component(kind, roots, benchmark, details)
        return [by_name[name] for name in sorted(by_name)]
    for root in roots:
        for path in sorted((root / KINDS[kind][0]).glob(KINDS[kind][1])):
            name = _name(path)
            if name not in by_name:
                details = {"model": name, "model_group": name.partition("/")[0]} if kind == "models" else {}
                by_name[name] = Component(kind, name, roots.relative(path), *_describe(path, roots), details)
    return [by_name[name] for name in sorted(by_name)]


def _as_component(kind: str, roots: Roots, workload: Workload, details: Mapping[str, Any]) -> Component:
    path = workload.config
    return Component(kind, workload.name, roots.relative(path), *_describe(path, roots), details)


def find_config(roots: Roots, kind: str, name: str) -> str:
    """Find the config file of NAME or NAME/FLAVOR; a resources server also counts as an environment."""
    stem, _, flavor = name.removeprefix("resources_servers/").partition("/")
    folder = KINDS[kind][0]
    nested = f"configs/{flavor or stem}.yaml"
    paths = [f"{folder}/{stem}/{flavor or 'config'}.yaml" if folder == kind else f"{folder}/{stem}/{nested}"]
    if kind == "environments":
        paths.append(f"resources_servers/{stem}/{nested}")
    for path in paths:
        if roots.find(path) is not None:
            return path
    known = [component.name for component in find_components(roots, kind)]
    raise NotFoundError(
        f"unknown {kind.removesuffix('s').replace('-', ' ')} '{name}'",
        where=roots.describe_search(paths[0]),
        next=suggest(name, known),
    )


def show(arguments: NgArguments) -> int:
    """`gym list KIND [NAME]` and `gym search [KIND] QUERY`."""
    config = arguments.config(stub_policy=True)
    kind, name, query = (arguments.values.get(key) for key in ("kind", "component_name", "query"))
    kinds = [str(kind)] if kind else list(KINDS)
    every = [component for kind in kinds for component in find_components(config.roots, kind)]
    selected = every
    if name is not None:
        selected = [component for component in every if f"{component.name}/".startswith(f"{name}/")]
        if not selected:
            known = [component.name for component in every]
            raise NotFoundError(f"no '{name}' among the {kinds[0]}", next=suggest(str(name), known))
    if query is not None:
        selected = [component for component in selected if _mentions(component, str(query).lower())]
    selected = [component for component in selected if _matches(component, arguments.values)]
    return _print(config, selected, with_kind=len(kinds) > 1)


def list_benchmarks(arguments: NgArguments) -> int:
    """`ng_list_benchmarks`."""
    config = arguments.config(stub_policy=True)
    return _print(config, find_components(config.roots, "benchmarks"), with_kind=False)


def _print(config: Config, matches: list[Component], *, with_kind: bool) -> int:
    if Fields(config).flag("json"):
        print_json([component.as_json() for component in matches])
        return 0
    if not matches:
        say(f"none found; {config.roots.describe_search('benchmarks')} (NEMO_GYM_EXTRA_ROOTS adds folders)")
    width = max((len(component.name) for component in matches), default=0)
    for component in matches:
        kind = f"{component.kind:<18} " if with_kind else ""
        text = component.description or component.path
        print(f"{kind}{component.name:<{width}}  {component.domain or '':<21}  {text}".rstrip())
    return 0


def _matches(component: Component, filters: Mapping[str, Any]) -> bool:
    """Whether a component passes the filters on its domain and its manifest."""
    if filters.get("domain") not in {None, component.domain}:
        return False
    if filters.get("status") not in {None, component.details.get("status")}:
        return False
    return all(component.details.get(key) == value for key, value in filters.get("manifest", {}).items())


def _mentions(component: Component, text: str) -> bool:
    return any(text in (value or "").lower() for value in (component.name, component.domain, component.description))


def _name(path: Path) -> str:
    """`mcqa`, or `math_with_judge/dapo17k` for a flavor."""
    if path.parent.name != "configs":
        return path.parent.name
    folder = path.parent.parent.name
    return folder if path.stem == folder else f"{folder}/{path.stem}"


def _describe(path: Path, roots: Roots) -> tuple[str | None, str | None]:
    """Domain and description of the first resources server in a config, or in one that it includes."""
    if path.suffix != ".yaml":
        return None, None
    values = read_config(path)
    blocks = list(_resources_servers(values))
    included = values.get("config_paths") if isinstance(values, dict) else None
    for name in included if not blocks and isinstance(included, list) else ():
        file = roots.find(str(name))
        if file is not None and file != path:
            return _describe(file, roots)
    block = next((block for block in blocks if block.get("domain")), {})
    description = block.get("description")
    return block.get("domain"), description if isinstance(description, str) else None


def _resources_servers(config: Any) -> Iterator[dict[str, Any]]:
    for block in config.values() if isinstance(config, dict) else ():
        servers = block.get("resources_servers") if isinstance(block, dict) else None
        for server in servers.values() if isinstance(servers, dict) else ():
            if isinstance(server, dict):
                yield server
