"""The names that servers and trainers import from `nemo_gym`, with their fields, parameters and values."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SURFACE: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "nemo_gym_surface.json").read_text())
NAMES = [(module, name) for module, names in SURFACE.items() for name in names]


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda value: value)
def test_the_name_is_there_as_it_is_used(module: str, name: str) -> None:
    told = SURFACE[module][name]
    found = getattr(importlib.import_module(module), name)
    if told["is"] == "function":
        assert parameters(found) == told["parameters"]
    if told["is"] == "class":
        missing = told["fields"].keys() - members(found)
        assert not missing
        for method, wanted in told["methods"].items():
            kind = inspect.getattr_static(found, method)
            if not isinstance(kind, property):
                assert parameters(getattr(found, method)) == [word for word in wanted if word != "cls"], method


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module, name in NAMES if SURFACE[module][name].get("value", "").startswith(("'", "["))],
)
def test_values_are_the_documented_ones(module: str, name: str) -> None:
    assert getattr(importlib.import_module(module), name) == eval(SURFACE[module][name]["value"])


PUBLIC = [
    "AggregateMetrics", "AggregateMetricsRequest", "BaseMultiRewardVerifyResponse", "BaseResourcesServerConfig",
    "BaseResponsesAPIAgentConfig", "BaseResponsesAPIModelConfig", "BaseRunRequest", "BaseRunServerInstanceConfig",
    "BaseSeedSessionRequest", "BaseSeedSessionResponse", "BaseServerConfig", "BaseVerifyRequest",
    "BaseVerifyResponse", "Domain", "ModelServerRef", "NeMoGymAsyncOpenAI", "NeMoGymChatCompletion",
    "NeMoGymChatCompletionCreateParamsNonStreaming", "NeMoGymResponse", "NeMoGymResponseCreateParamsNonStreaming",
    "ReverifyMode", "SESSION_ID_KEY", "ServerClient", "SimpleResourcesServer", "SimpleResponsesAPIAgent",
    "SimpleResponsesAPIModel", "get_response_json", "raise_for_status",
]  # fmt: skip


def test_the_package_itself_has_the_names_that_its_authors_guide_imports() -> None:
    import nemo_gym

    for name in PUBLIC:
        value = getattr(nemo_gym, name)
        if not isinstance(value, str):
            assert value.__module__.startswith("gymnast.")
            assert getattr(sys.modules[value.__module__], value.__name__) is value
    assert set(PUBLIC) <= set(nemo_gym.__all__)
    scope: dict[str, Any] = {}
    exec("from nemo_gym import *", scope)
    assert set(PUBLIC) <= set(scope)
    assert nemo_gym.__package_name__ == "nemo_gym"
    assert nemo_gym.component_search_roots()[-2] == Path.cwd()


def test_importing_the_package_imports_none_of_its_servers() -> None:
    code = "import sys, nemo_gym; print([name for name in ('fastapi', 'openai', 'aiohttp') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_sandbox_provider_is_registered_where_the_guide_says() -> None:
    from nemo_gym.sandbox.providers import get_provider_class
    from nemo_gym.sandbox.providers.registry import list_providers, register_provider

    class Mine:
        pass

    register_provider("mine_for_a_test", Mine, override=True)
    assert get_provider_class("mine_for_a_test") is Mine
    assert "mine_for_a_test" in list_providers()


def parameters(function: Any) -> list[str]:
    marks = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
    return [marks.get(one.kind.name, "") + name for name, one in inspect.signature(function).parameters.items()]


def members(found: Any) -> set[str]:
    named = ("model_fields", "__dataclass_fields__", "__annotations__", "__private_attributes__")
    return set(dir(found)).union(*(getattr(found, name, ()) for name in named))


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "from nemo_gym.server_utils import initialize_ray",
            "nemo_gym.server_utils has no 'initialize_ray': Gymnast provides",
        ),
        ("from nemo_gym import ray_utils", "nemo_gym has no 'ray_utils': Gymnast provides"),
        (
            "from nemo_gym.sandbox.providers import daytona",
            "nemo_gym.sandbox.providers has no 'daytona': Gymnast provides",
        ),
        ("import nemo_gym.ray_utils", "nemo_gym has no 'ray_utils': Gymnast provides"),
        (
            "from nemo_gym.token_id_capture.sink import Sink",
            "nemo_gym has no 'token_id_capture': Gymnast provides",
        ),
        (
            "import nemo_gym.sandbox.providers.enroot",
            "nemo_gym.sandbox.providers has no 'enroot': Gymnast provides",
        ),
    ],
)
def test_what_is_outside_is_reported(statement: str, said: str) -> None:
    importlib.invalidate_caches()
    with pytest.raises(ImportError, match=said):
        exec(statement)


def test_other_packages_are_missing_in_pythons_own_words() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'nemo_gymnastics'"):
        importlib.import_module("nemo_gymnastics")


def test_the_other_package_of_this_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nemo_gym-0.5.1.dist-info").mkdir()
    (tmp_path / "nemo_gym-0.5.1.dist-info" / "METADATA").write_text("Name: nemo-gym\nVersion: 0.5.1\n")
    words = [sys.executable, "-c", "import nemo_gym.server_utils"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert "nemo-gym 0.5.1 and gymnast-nemo-gym are both installed" in done.stderr


def test_both_names_of_a_module_are_one_module() -> None:
    import nemo_gym.server_utils as theirs

    import gymnast.compat.nemo_gym.server_utils as ours

    assert ours is theirs


def test_importing_it_starts_nothing_and_patches_nothing() -> None:
    code = """
import builtins, os, sys, threading
before, said = dict(os.environ), builtins.print
import nemo_gym.base_resources_server, nemo_gym.base_responses_api_agent, nemo_gym.rollout_collection
assert threading.active_count() == 1
assert before == dict(os.environ)
assert builtins.print is said
assert "ray" not in sys.modules and "torch" not in sys.modules and "openai" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_folders_are_those_of_whoever_asks(tmp_path: Path) -> None:
    server = tmp_path / "resources_servers" / "one"
    server.mkdir(parents=True)
    (server / "shared.py").write_text("WORD = 'found'\n")
    (server / "app.py").write_text(
        "from nemo_gym import CACHE_DIR, PARENT_DIR, RESULTS_DIR\n"
        "from resources_servers.one.shared import WORD\n"
        "print(PARENT_DIR, CACHE_DIR.name, RESULTS_DIR.name, WORD, sep='\\n')\n"
    )
    words = [sys.executable, str(server / "app.py")]
    done = subprocess.run(words, cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(tmp_path), "cache", "results", "found"]
