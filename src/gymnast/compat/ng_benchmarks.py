"""`ng_prepare_benchmark`: create the datasets of configured benchmarks with their prepare scripts.

A script defines `prepare(**script_arguments)`, which returns the path it wrote. It runs in a separate process, from the
root of its checkout; if it misses a package, with those of the servers that the benchmark uses.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.cli.options import print_json, say
from gymnast.compat.ng_arguments import Fields, NgArguments
from gymnast.compat.server_tests import python_for
from gymnast.config.environ import child_environ
from gymnast.errors import DataError, NotFoundError, UserError
from gymnast.rollouts.servers import reachable_instances
from gymnast.runtime.expected_packages import package_of
from gymnast.runtime.venvs import unmet_requirements

if TYPE_CHECKING:
    from gymnast.config import Config
    from gymnast.data.datasets import Dataset

_PROGRAM: Final = """
import contextlib, importlib, importlib.util, json, sys
from pathlib import Path
from gymnast.runtime.surface_import import import_surface

script, arguments, answer, root = sys.argv[1:]
sys.path.insert(0, root)
import_surface()

def load():
    if Path(script).is_relative_to(root):
        parts = Path(script).relative_to(root).with_suffix("").parts
        if not any("." in part for part in parts):
            return importlib.import_module(".".join(parts))
    spec = importlib.util.spec_from_file_location("prepare_benchmark", script)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def reply(**fields):
    with open(answer, "w") as out:
        json.dump(fields, out)

try:
    with contextlib.redirect_stdout(sys.stderr):
        written = load().prepare(**json.loads(arguments))
except ModuleNotFoundError as error:
    reply(missing=error.name)
    raise
reply(written=str(written))
"""
"""A script is imported by its name in the checkout: it may import its neighbours and start processes."""


@dataclass(frozen=True, slots=True)
class BenchmarkFile:
    name: str
    path: Path
    made: bool
    """False if an existing file was used."""


def prepare_benchmark(arguments: NgArguments) -> int:
    """Create the files that are missing; list all failures at the end."""
    from gymnast.data.datasets import BENCHMARK, configured_datasets

    config = arguments.config(stub_policy=True).require_valid()
    fields = Fields(config)
    datasets = list({dataset.jsonl_fpath: dataset for dataset in configured_datasets(config, [BENCHMARK])}.values())
    script_arguments, cached = fields.mapping("prepare_script_args"), fields.flag("use_cached_prepared_benchmarks")
    with ThreadPoolExecutor(fields.positive("num_prepare_benchmark_processes") or 1) as pool:
        futures = [pool.submit(prepare, config, dataset, script_arguments, use_cached=cached) for dataset in datasets]
    problems = [error for future in futures if isinstance(error := future.exception(), UserError)]
    files = [future.result() for future in futures if not isinstance(future.exception(), UserError)]
    if fields.flag("json"):
        print_json([{"name": file.name, "jsonl_fpath": str(file.path), "made": file.made} for file in files])
    else:
        for file in files:
            print(f"{file.name:<30} {file.path}{'' if file.made else '  (already there)'}")
    for problem in problems:
        say(str(problem))
    return 1 if problems else 0


def prepare(config: Config, dataset: Dataset, script_arguments: dict[str, Any], *, use_cached: bool) -> BenchmarkFile:
    """Create the file of one benchmark with its script, or use the existing one if allowed."""
    existing = config.roots.find(dataset.jsonl_fpath)
    if existing is not None and (use_cached or dataset.prepare_script is None):
        return BenchmarkFile(dataset.name, existing, made=False)
    if dataset.prepare_script is None:
        raise NotFoundError(
            f"the file of benchmark '{dataset.name}' does not exist and it has no prepare_script",
            where=config.roots.describe_search(dataset.jsonl_fpath),
            next=f"put it at {dataset.jsonl_fpath}",
        )
    script = _script(config, dataset.prepare_script).resolve()
    root = _script_root(config, script)
    run = _run_script(script, script_arguments, root, config, dataset)
    written = _path_written(run, script, dataset.name)
    expected = (root / dataset.jsonl_fpath).resolve()
    if (root / written).resolve() != expected or not expected.is_file():
        problem = "is not the expected file" if expected != (root / written).resolve() else "does not exist"
        raise DataError(
            f"the path that the script of benchmark '{dataset.name}' returned {problem}: {written}",
            where=str(script),
            next=f"prepare() must write and return {dataset.jsonl_fpath}",
        )
    return BenchmarkFile(dataset.name, expected, made=True)


def _script(config: Config, name: str) -> Path:
    """Find a script by its path or module name."""
    as_path = name if name.endswith(".py") else name.replace(".", "/") + ".py"
    return config.roots.require(as_path, "prepare_script")


def _script_root(config: Config, script: Path) -> Path:
    """The root that the script belongs to; for a built-in one, the current folder."""
    roots = (root.resolve() for root in (*config.roots.extra, config.roots.cwd))
    return next((root for root in roots if script.is_relative_to(root)), config.roots.cwd)


@dataclass(frozen=True, slots=True)
class _ScriptRun:
    exit_code: int
    lines: list[str]
    """What it printed."""
    written: str | None = None
    missing: str | None = None
    """The module that it could not import."""


def _run_script(
    script: Path, script_arguments: dict[str, Any], root: Path, config: Config, dataset: Dataset
) -> _ScriptRun:
    """Run a script here; if it misses a module, with the packages of the benchmark's servers, which may have it."""
    run = _run_once(sys.executable, script, script_arguments, root)
    for folder in _server_folders(config, dataset) if run.missing else ():
        say(f"{dataset.name}: '{run.missing}' is not installed here: the script runs with {folder.name}'s packages")
        run = _run_once(python_for(folder), script, script_arguments, root)
        if not run.missing:
            break
    return run


def _server_folders(config: Config, dataset: Dataset) -> list[Path]:
    """The folders of a benchmark's servers that require packages which are not installed here; environments first."""
    instances = reachable_instances(config, [dataset.agent])
    instances.sort(key=lambda instance: instance.kind != "resources_servers")
    folders = {instance.directory: None for instance in instances if instance.url is None}
    return [folder for folder in folders if folder is not None and unmet_requirements(folder)]


def _path_written(run: _ScriptRun, script: Path, name: str) -> str:
    if run.lines:
        say(f"{name}: " + f"\n{name}: ".join(run.lines[-20:]))
    if run.written is not None and run.exit_code == 0:
        return run.written
    module = (run.missing or "").partition(".")[0]
    raise UserError(
        f"the script of benchmark '{name}' exited with code {run.exit_code}: "
        f"{run.lines[-1] if run.lines else 'no output'}",
        where=str(script),
        next=f"install '{module}': {sys.executable} -m pip install {package_of(module)}" if module else None,
    )


def _run_once(python: str, script: Path, script_arguments: dict[str, Any], root: Path) -> _ScriptRun:
    with tempfile.TemporaryDirectory(prefix="gymnast-prepare-") as folder:
        answer = Path(folder) / "answer"
        words = [python, "-P", "-c", _PROGRAM, str(script), orjson.dumps(script_arguments).decode()]
        words += [str(answer), str(root)]
        process = subprocess.run(words, cwd=root, env=child_environ({}), stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603 - from the configuration
        reply = orjson.loads(answer.read_bytes()) if answer.exists() else {}
        return _ScriptRun(process.returncode, process.stderr.strip().splitlines(), **reply)
