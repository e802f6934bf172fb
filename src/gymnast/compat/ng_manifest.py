"""Commands on a manifest: `gym env validate NAME|--manifest`, and its verifier's cases for `env test` and `publish`."""

from __future__ import annotations

import ast
import subprocess
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.cli.options import print_json, say
from gymnast.compat.manifest import Manifest, read_manifest
from gymnast.compat.manifest_check import catalog_of, check_manifest, read_composition
from gymnast.compat.manifest_profile import parse_file
from gymnast.compat.ng_catalog import MANIFEST
from gymnast.config.environ import child_environ
from gymnast.config.roots import BUILTIN
from gymnast.errors import DataError, UserError

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.compat.manifest_check import ManifestReport
    from gymnast.compat.ng_arguments import NgArguments
    from gymnast.config import Config, Instance

FIXTURE: Final = "VERIFIER_FIXTURE"
"""What a server calls its cases."""


@dataclass(frozen=True, slots=True)
class ManifestTarget:
    """A manifest and the arguments that load the config next to it."""

    path: Path
    config_path: Path
    arguments: NgArguments

    @classmethod
    def of(cls, path: Path, arguments: NgArguments) -> ManifestTarget:
        """The target for a manifest; the checkout that it is in is searched first."""
        path = path.expanduser().resolve()
        config_path, catalog = path.with_name("config.yaml"), catalog_of(path)
        roots = (catalog.parent,) if catalog is not None else ()
        arguments = replace(arguments, config_paths=(str(config_path),), search_dirs=(*roots, *arguments.search_dirs))
        return cls(path, config_path, arguments)

    def check(self, *, sync: bool = False) -> tuple[Manifest, ManifestReport, Config]:
        """Validate the manifest against its config."""
        manifest = read_manifest(self.path)
        if not self.config_path.is_file():
            raise DataError("there is no config next to the manifest", where=str(self.config_path))
        config = self.arguments.config(stub_policy=True).require_valid()
        report = check_manifest(manifest, self.path, config, self.config_path, sync=sync)
        return (read_manifest(self.path) if report.synchronized_fields else manifest), report, config


def manifest_next_to(config: Config, config_path: str) -> Path | None:
    """The manifest of the workload whose config this is."""
    path = config.roots.require(config_path, "the config").with_name(MANIFEST)
    return path if path.is_file() else None


def validate_manifest(target: ManifestTarget, *, sync: bool, as_json: bool) -> int:
    """`gym env validate --manifest PATH`: print what the manifest describes."""
    _, report, _ = target.check(sync=sync)
    for warning in report.warnings:
        say(f"warning: {warning}")
    if as_json:
        print_json(report.as_json())
        return 0
    print(f"valid: {report.kind} {report.name} {report.version}, profile {report.declared_profile}")
    for component in report.components:
        print(f"  {component.role}  {component.name}: {component.boundary}/{component.implementation}")
    for dataset in report.datasets:
        print(f"  dataset  {dataset.name}: {dataset.rows} rows ({dataset.type})")
    if report.synchronized_fields:
        print(f"updated in {target.path.name}: {', '.join(report.synchronized_fields)}")
    return 0


# --- the cases of its verifier ---------------------------------------------------------------------------------------


def find_fixture(config: Config) -> Instance | None:
    """The resources server of a config whose entry file declares cases of its verifier."""
    with suppress(UserError):
        server = read_composition(config).resources
        if server is not None and server.directory is not None and server.entrypoint is not None:
            tree = parse_file(server.directory / server.entrypoint, "the entry file")
            return server if FIXTURE in _find_assignments(tree) else None
    return None


def _find_assignments(tree: ast.Module) -> set[str]:
    """The names that a module's own statements set."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def run_fixture(target: ManifestTarget, server: Instance, *, update_expected: bool) -> dict[str, Any]:
    """Score the cases in a process with the server's packages; returns NeMo Gym's report."""
    from gymnast.compat.server_tests import python_for

    manifest, _, _ = target.check()
    assert server.directory is not None
    if update_expected and server.directory.is_relative_to(BUILTIN):
        raise UserError("the cases of a shipped environment cannot be updated", next="copy it into your checkout")
    request = {
        "config": str(target.config_path),
        "search_dirs": [str(path.resolve()) for path in target.arguments.search_dirs],
        "instance": server.name,
        "reward_range": manifest.reward.range,
        "higher_is_better": manifest.reward.higher_is_better,
        "determinism": manifest.determinism.value,
        "update_expected": update_expected,
    }
    process = subprocess.run(  # noqa: S603 - our own module
        [python_for(server.directory), "-P", "-m", "gymnast.compat.fixture_run"],
        input=orjson.dumps(request), stdout=subprocess.PIPE, env=child_environ({}), check=False,
    )  # fmt: skip
    try:
        result = orjson.loads(process.stdout.splitlines()[-1])
    except (IndexError, orjson.JSONDecodeError):
        result = {"error": f"the process that ran them ended with exit code {process.returncode}"}
    if "error" in result:
        what = f"the verifier cases of '{manifest.name}' do not pass: {result['error']}"
        raise UserError(what, where=str(server.directory))
    return {
        "name": manifest.name,
        "kind": manifest.kind.value,
        "resources_server": manifest.resources_server,
        "manifest_path": str(target.path),
        **result,
    }
