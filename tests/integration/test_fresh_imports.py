"""Imports in a fresh interpreter: cheap, without side effects, and task generators with the standard library only."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

ENVIRONMENTS = ("arithmetic", "word_tasks", "shop_lookup", "number_hunt")
GENERATORS = [f"gymnast.builtin.resources_servers.{name}.tasks" for name in ENVIRONMENTS]


def test_importing_gymnast_loads_nothing_heavy_and_starts_nothing() -> None:
    code = """
import os, sys, threading
before, path = dict(os.environ), list(sys.path)
import gymnast
heavy = {"pydantic", "uvicorn", "omegaconf", "hydra", "asyncio", "typer", "rich"} & set(sys.modules)
assert not heavy, heavy
assert threading.active_count() == 1
assert before == dict(os.environ)
assert path == sys.path
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_generators_need_the_standard_library_only() -> None:
    code = f"import sys, {', '.join(GENERATORS)}\nassert not {{'pydantic', 'orjson', 'numpy'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", GENERATORS)
def test_generators_are_programs(module: str) -> None:
    command = [sys.executable, "-m", module, "--count", "2", "--seed", "1", "--level", "2-3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [json.loads(line)["level"] for line in done.stdout.splitlines()] == [2, 3]


def test_modules_under_their_old_name_are_the_same_modules_with_a_warning() -> None:
    code = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import gymnast.hub.resources_servers.arithmetic.tasks as old
    from gymnast.hub.resources_servers import mcqa
import gymnast.builtin.resources_servers.arithmetic.tasks as new
import gymnast.builtin.resources_servers.mcqa
assert old is new
assert mcqa is gymnast.builtin.resources_servers.mcqa
assert [str(warning.message) for warning in caught] == ["gymnast.hub is now gymnast.builtin"], caught
try:
    import gymnast.hub.no_such_module
except ModuleNotFoundError:
    pass
else:
    raise AssertionError("a module that is not there was imported")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
