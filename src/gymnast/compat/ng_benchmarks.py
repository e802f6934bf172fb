"""`ng_prepare_benchmark`: create the datasets of configured benchmarks with their prepare scripts.

A script defines `prepare(**script_arguments)`, which returns the path it wrote. It runs in a separate process, from the
root of its checkout.
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
from gymnast.errors import DataError, NotFoundError, UserError

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

with contextlib.redirect_stdout(sys.stderr):
    written = load().prepare(**json.loads(arguments))
with open(answer, "w") as out:
    json.dump(str(written), out)
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
    written = _run_script(script, script_arguments, root, dataset.name)
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


def _run_script(script: Path, script_arguments: dict[str, Any], root: Path, name: str) -> str:
    from gymnast.config.environ import child_environ

    with tempfile.TemporaryDirectory(prefix="gymnast-prepare-") as folder:
        answer = Path(folder) / "answer"
        words = [sys.executable, "-P", "-c", _PROGRAM, str(script), orjson.dumps(script_arguments).decode()]
        words += [str(answer), str(root)]
        process = subprocess.run(words, cwd=root, env=child_environ({}), stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603 - from the configuration
        lines = process.stderr.strip().splitlines()
        if lines:
            say(f"{name}: " + f"\n{name}: ".join(lines[-20:]))
        if process.returncode:
            raise UserError(
                f"the script of benchmark '{name}' exited with code {process.returncode}: "
                f"{lines[-1] if lines else 'no output'}",
                where=str(script),
            )
        return str(orjson.loads(answer.read_bytes()))
