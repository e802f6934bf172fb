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
