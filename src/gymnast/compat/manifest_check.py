"""Checks a manifest against the config next to it: the mirror of its servers and datasets, its rows, its profile.

Starts nothing and imports nothing of the environment: entry files are parsed.
"""

from __future__ import annotations

import ast
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from pydantic import ValidationError

from gymnast.compat.manifest import DatasetKind, Kind, Manifest, ManifestDataset, make_manifest, write_manifest
from gymnast.compat.manifest_profile import infer_profile, parse_file
from gymnast.compat.nemo_gym.base_resources_server import BaseRunRequest
from gymnast.compat.ng_components import AGENTS
from gymnast.config.load import STUB
from gymnast.errors import DataError, UserError
from gymnast.rollouts.prompt import read_template
from gymnast.store.lines import numbered_lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.config import Config, Instance
    from gymnast.rollouts.prompt import PromptTemplate

CATALOGS: Final = {"environments": Kind.ENVIRONMENT, "benchmarks": Kind.BENCHMARK}
_DATASET_KEYS: Final = tuple(ManifestDataset.model_fields)


@dataclass(frozen=True, slots=True)
class Component:
    """A server that the config composes."""

    role: str
    name: str
    implementation: str
    boundary: str
    """The folder that its implementation is in."""
    entrypoint: str | None = None


@dataclass(frozen=True, slots=True)
class DatasetReport:
    """A dataset whose rows can all be run."""

    name: str
    type: str
    path: str
    rows: int
    prompt_config: str | None = None


@dataclass(frozen=True, slots=True)
class ManifestReport:
    """A manifest that fits its config."""

    name: str
    version: str
    kind: str
    declared_profile: str
    inferred_profile: str
    profile_evidence: str
    manifest_path: str
    config_path: str
    components: tuple[Component, ...]
    datasets: tuple[DatasetReport, ...]
    rollout_driver: str | None = None
    grading_mode: str | None = None
    synchronized_fields: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Composition:
    """What a config composes, as a manifest mirrors it."""

    agent: Instance
    resources: Instance | None
    mirror: dict[str, Any]
    components: tuple[Component, ...]


def check_manifest(manifest: Manifest, path: Path, config: Config, config_path: Path, *, sync: bool) -> ManifestReport:
    """Compare a manifest with its config and read its datasets.

    With `sync`, the fields that mirror the config are rewritten if they differ; without, that is an error.
    """
    _check_location(manifest, path)
    composition = read_composition(config)
    differences = {key: value for key, value in composition.mirror.items() if getattr(manifest, key) != value}
    if differences and not sync:
        raise _stale(manifest, differences, path)
    if differences:
        values = manifest.model_dump(mode="json") | {key: _plain(value) for key, value in differences.items()}
        manifest = make_manifest(values, path)
    profile, evidence = infer_profile(composition.agent, composition.mirror["rollout_driver"], config)
    _check_prompts(manifest, path)
    if manifest.rollout_driver:
        _check_driver(manifest.rollout_driver, config)
    datasets = tuple(_read_dataset(dataset, manifest, config) for dataset in manifest.datasets)
    if differences:
        write_manifest(manifest, path)
    declared = manifest.integration_profile.value
    return ManifestReport(
        name=manifest.name,
        version=manifest.version,
        kind=manifest.kind.value,
        declared_profile=declared,
        inferred_profile=profile,
        profile_evidence=evidence,
        manifest_path=str(path),
        config_path=str(config_path),
        components=composition.components,
        datasets=datasets,
        rollout_driver=composition.mirror["rollout_driver"],
        grading_mode=composition.mirror["grading_mode"],
        synchronized_fields=tuple(differences),
        warnings=tuple(_warnings(declared, profile, evidence)),
    )


def catalog_of(path: Path) -> Path | None:
    """The folder `environments` or `benchmarks` that a file is in."""
    return next((parent for parent in path.resolve().parents if parent.name in CATALOGS), None)


def _check_location(manifest: Manifest, path: Path) -> None:
    catalog = catalog_of(path)
    name = path.parent.relative_to(catalog).as_posix() if catalog else path.parent.name
    if manifest.name != name:
        raise DataError(f"the manifest's name is '{manifest.name}', its folder's '{name}'", where=str(path))
    if catalog is not None and manifest.kind is not CATALOGS[catalog.name]:
        raise DataError(
            f"the manifest's kind is '{manifest.kind.value}', but it is in {catalog.name}/", where=str(path)
        )


# --- what the config composes ----------------------------------------------------------------------------------------


def read_composition(config: Config) -> Composition:
    """The servers and datasets around the one agent that has datasets."""
    agents = [each for each in config.instances.values() if each.kind == AGENTS and each.datasets]
    if len(agents) != 1:
        names = ", ".join(f"{agent.name} ({agent.implementation})" for agent in agents) or "none"
        raise DataError(f"expected one agent with datasets in the manifest's config, got {names}")
    agent = agents[0]
    resources = _find_reference(config, agent, "resources_server")
    model_ref = agent.refs.get("model_server")
    components = [_component("resources_server", resources)] if resources is not None else []
    components.append(_component("agent_server", agent))
    if model_ref is not None:
        components.append(_model_component(config, model_ref.name))
    mode = resources.settings.get("grading_mode") if resources is not None else None
    mirror = {
        "resources_server": resources.implementation if resources is not None else None,
        "agent_server": agent.implementation,
        "model_server": model_ref.name if model_ref is not None else None,
        "datasets": [_mirror_dataset(entry) for entry in agent.datasets],
        "rollout_driver": config.values.get("rollout_collection_driver"),
        "grading_mode": str(mode) if mode is not None else None,
    }
    return Composition(agent, resources, mirror, tuple(components))


def _find_reference(config: Config, agent: Instance, key: str) -> Instance | None:
    ref = agent.refs.get(key)
    return config.instances.get(ref.name) if ref is not None else None


def _component(role: str, instance: Instance) -> Component:
    return Component(role, instance.name, instance.implementation, instance.kind, instance.entrypoint)


def _model_component(config: Config, name: str) -> Component:
    instance, node = config.instances.get(name), config.root.get(name)
    if instance is None or (node is not None and node.origin == STUB):  # chosen when it runs
        return Component("model_server", name, "runtime-selected", "responses_api_models", "app.py")
    return _component("model_server", instance)


def _mirror_dataset(entry: Any) -> ManifestDataset:
    return ManifestDataset.model_validate({key: entry[key] for key in _DATASET_KEYS if entry.get(key) is not None})


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.model_dump(mode="json", exclude_none=True) if isinstance(value, ManifestDataset) else value


def _stale(manifest: Manifest, differences: dict[str, Any], path: Path) -> DataError:
    lines = "".join(
        f"\n  {key}: manifest {_show(getattr(manifest, key))}, config {_show(value)}"
        for key, value in differences.items()
    )
    return DataError(
        f"the manifest does not match the config, which takes precedence{lines}",
        where=str(path),
        next="--sync updates these fields",
    )


def _show(value: Any) -> str:
    return orjson.dumps(_plain(value), option=orjson.OPT_SORT_KEYS).decode()


def _warnings(declared: str, profile: str, evidence: str) -> Iterator[str]:
    if profile == "unknown":
        yield f"cannot determine the integration_profile ({evidence}); the manifest says '{declared}'"
    elif profile != declared:
        yield f"the manifest's integration_profile is '{declared}', but it looks like '{profile}' ({evidence})"


# --- datasets and scripts --------------------------------------------------------------------------------------------


def _check_prompts(manifest: Manifest, path: Path) -> None:
    standard = manifest.standard_prompt_config
    for dataset in manifest.datasets if manifest.kind is Kind.BENCHMARK else ():
        if dataset.type is DatasetKind.BENCHMARK and dataset.prompt_config not in {None, standard}:
            raise DataError(
                f"the prompt_config of dataset '{dataset.name}' is not standard_prompt_config", where=str(path)
            )


def _check_driver(reference: str, config: Config) -> None:
    module, function = reference.split(":", 1)
    relative = module.replace(".", "/")
    path = config.roots.find(f"{relative}.py") or config.roots.require(f"{relative}/__init__.py", "rollout_driver")
    if function not in _functions(parse_file(path, "the rollout driver"), ast.FunctionDef, ast.AsyncFunctionDef):
        raise DataError(f"the rollout driver '{reference}' does not exist", where=str(path))


def _functions(tree: ast.Module, *kinds: type[ast.stmt]) -> set[str]:
    return {getattr(node, "name", "") for node in tree.body if isinstance(node, kinds)}


def _read_dataset(dataset: ManifestDataset, manifest: Manifest, config: Config) -> DatasetReport:
    """Read every row as a rollout would."""
    path = config.roots.require(dataset.jsonl_fpath, f"dataset '{dataset.name}'")
    prompt_path, template = None, None
    if dataset.type is DatasetKind.BENCHMARK:
        prompt = dataset.prompt_config or manifest.standard_prompt_config
        if prompt is None:
            raise DataError(f"dataset '{dataset.name}' has no prompt_config", next="set standard_prompt_config")
        script = config.roots.require(str(dataset.prepare_script), "prepare_script")
        if "prepare" not in _functions(parse_file(script, "the prepare script"), ast.FunctionDef):
            raise DataError("the prepare script has no function prepare()", where=str(script))
        prompt_path = config.roots.require(prompt, "prompt_config")
        template = read_template(prompt_path)
    rows = 0
    for number, line in numbered_lines(path):
        _check_row(line, template, f"{path} line {number}")
        rows += 1
    if not rows:
        raise DataError(f"dataset '{dataset.name}' is empty", where=str(path))
    return DatasetReport(
        dataset.name, dataset.type.value, str(path), rows, str(prompt_path) if prompt_path is not None else None
    )


def _check_row(line: bytes, template: PromptTemplate | None, where: str) -> None:
    try:
        row = orjson.loads(line)
        if not isinstance(row, dict):
            raise DataError("expected a JSON object", where=where)
        BaseRunRequest.model_validate(template.apply(row) if template is not None else row)
    except orjson.JSONDecodeError as error:
        raise DataError(f"a row is not JSON: {error.msg}", where=where) from error
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        path = ".".join(str(step) for step in detail["loc"])
        raise DataError(f"a row cannot be run: {path}: {detail['msg']}", where=where) from error
    except UserError:
        raise
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"the prompt does not fit a row: {error}", where=where) from error
