"""What a checkout offers to run: environments, benchmarks, and configs of resources servers with datasets of their own.

Found by the content of files, without importing or resolving anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from gymnast.config.tree import plain
from gymnast.config.yaml_source import read_yaml
from gymnast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gymnast.config.roots import Roots

WorkloadKind = Literal["environment", "benchmark"]
MANIFEST: Final = "manifest.yaml"
_FROM_MANIFEST: Final = ("version", "integration_profile", "modality", "licensing", "lifecycle")


@dataclass(frozen=True, slots=True)
class Workload:
    """Something that can be run by name."""

    kind: WorkloadKind
    name: str
    config: Path
    manifest: Mapping[str, Any] | None = None

    @property
    def manifest_path(self) -> Path:
        """Where its manifest is, or would be."""
        return self.config.with_name(MANIFEST)

    @property
    def details(self) -> dict[str, Any]:
        """Its entry in JSON lists, besides name, domain and description."""
        known = self.manifest or {}
        status = "no-manifest" if self.manifest is None else "experimental"
        return {"kind": self.kind, "status": status, **{key: known.get(key) for key in _FROM_MANIFEST}}


def find_workloads(roots: Roots) -> list[Workload]:
    """All workloads by name; the first root that has one wins, and a named folder wins over a server's config."""
    found: dict[tuple[WorkloadKind, str], Workload] = {}
    for root in roots:
        for workload in (*_environments(root), *find_benchmarks(root)):
            found.setdefault((workload.kind, workload.name), workload)
        for workload in _server_workloads(root):
            if (workload.kind, workload.name.rpartition("/")[2]) not in found:
                found.setdefault((workload.kind, workload.name), workload)
    return sorted(found.values(), key=lambda workload: (workload.name.casefold(), workload.name, workload.kind))


def find_benchmarks(root: Path) -> Iterator[Workload]:
    """The configs below `benchmarks/` that declare a benchmark dataset, whatever their file names."""
    folder = root / "benchmarks"
    for path in sorted(folder.rglob("*.yaml")):
        if path.name != MANIFEST and any(_datasets(read_config(path), "benchmark")):
            relative = path.relative_to(folder).with_suffix("")
            name = relative.parts[0] if relative.parts[1:] == ("config",) else relative.as_posix()
            yield Workload("benchmark", name, path, read_manifest(path.parent))


def read_config(path: Path) -> Any:
    """A config as it is written; None if it is not YAML, which is reported when it is used."""
    try:
        return plain(read_yaml(path, shown=str(path)))
    except ConfigError:
        return None


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest in a folder, if there is one."""
    path = folder / MANIFEST
    values = read_config(path) if path.is_file() else None
    return values if isinstance(values, dict) else None


def benchmark_details(path: Path) -> dict[str, Any]:
    """The agent of a benchmark's config and how often each task is run."""
    config = read_config(path)
    for name, block in config.items() if isinstance(config, dict) else ():
        for dataset in _datasets(block, "benchmark"):
            return {"agent_name": name, "num_repeats": dataset.get("num_repeats", 1)}
    return {"agent_name": None, "num_repeats": 1}


def _environments(root: Path) -> Iterator[Workload]:
    for path in sorted((root / "environments").glob("*/config.yaml")):
        yield Workload("environment", path.parent.name, path, read_manifest(path.parent))


def _server_workloads(root: Path) -> Iterator[Workload]:
    """Configs of resources servers that also have an agent with datasets."""
    folder = root / "resources_servers"
    for path in sorted(folder.glob("*/configs/*.yaml")):
        blocks = read_config(path)
        servers = [block for block in blocks.values() if isinstance(block, dict)] if isinstance(blocks, dict) else []
        datasets = [dataset for block in servers for dataset in _agent_datasets(block)]
        if not datasets or not any(isinstance(block.get("resources_servers"), dict) for block in servers):
            continue
        kind: WorkloadKind = (
            "benchmark" if any(entry.get("type") == "benchmark" for entry in datasets) else "environment"
        )
        server = path.parent.parent.name
        yield Workload(kind, f"resources_servers/{server}" + (f"/{path.stem}" if path.stem != server else ""), path)


def _agent_datasets(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    agents = block.get("responses_api_agents")
    for agent in agents.values() if isinstance(agents, dict) else ():
        datasets = agent.get("datasets") if isinstance(agent, dict) else None
        yield from (entry for entry in datasets or () if isinstance(entry, dict))


def _datasets(node: Any, kind: str) -> Iterator[dict[str, Any]]:
    """The mappings of this type anywhere below a node."""
    if isinstance(node, dict):
        if node.get("type") == kind:
            yield node
        for child in node.values():
            yield from _datasets(child, kind)
    elif isinstance(node, list):
        for child in node:
            yield from _datasets(child, kind)
