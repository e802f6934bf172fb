"""What a checkout offers to run: environments, benchmarks, and configs of resources servers with datasets of their own.

Found by the content of files, without importing or resolving anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gymnast.config.roots import Roots

WorkloadKind = Literal["environment", "benchmark"]
MANIFEST: Final = "manifest.yaml"
_SafeLoader: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
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


class _StrictLoader(_SafeLoader):  # type: ignore[misc]
    """A safe loader that refuses a key twice in a mapping, as configs do."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - as yaml has it
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        if len(keys) != len(set(keys)):
            raise yaml.constructor.ConstructorError(None, None, "duplicate key", node.start_mark)
        return super().construct_mapping(node, deep)


class ConfigReader:
    """Reads configs as they are written, each file once."""

    def __init__(self) -> None:
        self._configs: dict[Path, Any] = {}

    def __call__(self, path: Path) -> Any:
        """The content of a config; None if it is not YAML, which is reported when it is used."""
        if path not in self._configs:
            self._configs[path] = self._read(path)
        return self._configs[path]

    def manifest(self, folder: Path) -> dict[str, Any] | None:
        """The manifest in a folder, if there is one."""
        path = folder / MANIFEST
        values = self(path) if path.is_file() else None
        return values if isinstance(values, dict) else None

    @staticmethod
    def _read(path: Path) -> Any:
        try:
            return yaml.load(path.read_bytes(), Loader=_StrictLoader)  # noqa: S506 - a safe loader
        except (OSError, ValueError, yaml.YAMLError):
            return None


def find_workloads(roots: Roots, read: ConfigReader) -> list[Workload]:
    """All workloads by name; the first root that has one wins, and a named folder wins over a server's config."""
    workloads: dict[tuple[WorkloadKind, str], Workload] = {}
    for root in roots:
        for workload in (*_environments(root, read), *_benchmarks(root, read)):
            workloads.setdefault((workload.kind, workload.name), workload)
        for workload in _server_workloads(root, read):
            if (workload.kind, workload.name.rpartition("/")[2]) not in workloads:
                workloads.setdefault((workload.kind, workload.name), workload)
    return sorted(workloads.values(), key=lambda workload: (workload.name.casefold(), workload.name, workload.kind))


def _benchmarks(root: Path, read: ConfigReader) -> Iterator[Workload]:
    """The configs below `benchmarks/` that declare a benchmark dataset, whatever their file names."""
    folder = root / "benchmarks"
    for path in sorted(folder.rglob("*.yaml")):
        if path.name != MANIFEST and any(_datasets(read(path), "benchmark")):
            relative = path.relative_to(folder).with_suffix("")
            name = relative.parts[0] if relative.parts[1:] == ("config",) else relative.as_posix()
            yield Workload("benchmark", name, path, read.manifest(path.parent))


def benchmark_details(path: Path, read: ConfigReader) -> dict[str, Any]:
    """The agent of a benchmark's config and how often each task is run."""
    config = read(path)
    for name, block in config.items() if isinstance(config, dict) else ():
        for dataset in _datasets(block, "benchmark"):
            return {"agent_name": name, "num_repeats": dataset.get("num_repeats", 1)}
    return {"agent_name": None, "num_repeats": 1}


def _environments(root: Path, read: ConfigReader) -> Iterator[Workload]:
    for path in sorted((root / "environments").glob("*/config.yaml")):
        yield Workload("environment", path.parent.name, path, read.manifest(path.parent))


def _server_workloads(root: Path, read: ConfigReader) -> Iterator[Workload]:
    """Configs of resources servers that also have an agent with datasets."""
    folder = root / "resources_servers"
    for path in sorted(folder.glob("*/configs/*.yaml")):
        blocks = read(path)
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
