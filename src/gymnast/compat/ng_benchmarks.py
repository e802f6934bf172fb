"""`ng_prepare_benchmark`: the datasets of configured benchmarks, made by the scripts that their entries name.

A script is `prepare(**arguments)` and says where it wrote. It runs in a process of its own, from the root of the
checkout it belongs to.
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
from gymnast.compat.ng_asked import Asked, Fields
from gymnast.errors import DataError, NotFoundError, UserError

if TYPE_CHECKING:
    from gymnast.config import Config
    from gymnast.data.configured import Dataset

_PROGRAM: Final = """
import contextlib, importlib.util, json, sys

script, arguments, answer = sys.argv[1:]
spec = importlib.util.spec_from_file_location("prepare_benchmark", script)
module = importlib.util.module_from_spec(spec)
with contextlib.redirect_stdout(sys.stderr):
    spec.loader.exec_module(module)
    written = module.prepare(**json.loads(arguments))
with open(answer, "w") as out:
    json.dump(str(written), out)
"""


@dataclass(frozen=True, slots=True)
class Ready:
    """The file of a benchmark."""

    name: str
    path: Path
    made: bool
    """False where it was there already and may be used as it is."""


def prepare_benchmark(asked: Asked) -> int:
    """Make what is missing; all that fails is named at the end."""
    from gymnast.data.configured import BENCHMARK, configured_datasets

    config = asked.config(stub_policy=True).checked()
    fields = Fields(config)
    datasets = list({one.jsonl_fpath: one for one in configured_datasets(config, [BENCHMARK])}.values())
    arguments, cached = fields.mapping("prepare_script_args"), fields.flag("use_cached_prepared_benchmarks")
    with ThreadPoolExecutor(fields.positive("num_prepare_benchmark_processes") or 1) as pool:
        running = [pool.submit(prepared, config, one, arguments, use_cached=cached) for one in datasets]
    problems = [error for one in running if isinstance(error := one.exception(), UserError)]
    found = [one.result() for one in running if not isinstance(one.exception(), UserError)]
    if fields.flag("json"):
        print_json([{"name": one.name, "jsonl_fpath": str(one.path), "made": one.made} for one in found])
    else:
        for one in found:
            print(f"{one.name:<30} {one.path}{'' if one.made else '  (was there)'}")
    for problem in problems:
        say(str(problem))
    return 1 if problems else 0


def prepared(config: Config, dataset: Dataset, arguments: dict[str, Any], *, use_cached: bool) -> Ready:
    """The file of one benchmark, made by its script unless it is there and may be used."""
    there = config.roots.find(dataset.jsonl_fpath)
    if there is not None and (use_cached or dataset.prepare_script is None):
        return Ready(dataset.name, there, made=False)
    if dataset.prepare_script is None:
        raise NotFoundError(
            f"benchmark '{dataset.name}' has no prepare_script and its file is not there",
            where=config.roots.searched(dataset.jsonl_fpath),
            next=f"put it at {dataset.jsonl_fpath}",
        )
    script = _script(config, dataset.prepare_script).resolve()
    home = _home(config, script)
    written = _run(script, arguments, home, dataset.name)
    wanted = (home / dataset.jsonl_fpath).resolve()
    if (home / written).resolve() != wanted or not wanted.is_file():
        what = "is not where its dataset is expected" if wanted != (home / written).resolve() else "is not there"
        raise DataError(
            f"what the script of benchmark '{dataset.name}' wrote {what}: {written}",
            where=str(script),
            next=f"prepare() has to write and return {dataset.jsonl_fpath}",
        )
    return Ready(dataset.name, wanted, made=True)


def _script(config: Config, name: str) -> Path:
    """A file, or a module's name."""
    as_path = name if name.endswith(".py") else name.replace(".", "/") + ".py"
    return config.roots.require(as_path, "prepare_script")


def _home(config: Config, script: Path) -> Path:
    """The root that the script belongs to; for a shipped one, the current folder."""
    own = (root.resolve() for root in (*config.roots.extra, config.roots.cwd))
    return next((root for root in own if script.is_relative_to(root)), config.roots.cwd)


def _run(script: Path, arguments: dict[str, Any], home: Path, name: str) -> str:
    from gymnast.config.environ import child_environ

    with tempfile.TemporaryDirectory(prefix="gymnast-prepare-") as folder:
        answer = Path(folder) / "answer"
        words = [sys.executable, "-c", _PROGRAM, str(script), orjson.dumps(arguments).decode(), str(answer)]
        environ = child_environ({"PYTHONPATH": str(home)})
        done = subprocess.run(words, cwd=home, env=environ, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603 - what the configuration names
        if done.stderr.strip():
            say(f"{name}: " + f"\n{name}: ".join(done.stderr.strip().splitlines()[-20:]))
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise UserError(
                f"the script of benchmark '{name}' ended with code {done.returncode}: {last}", where=str(script)
            )
        return str(orjson.loads(answer.read_bytes()))
