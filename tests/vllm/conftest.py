"""Real vLLM on CPU, one server for each model and session. `make test-vllm` installs what this needs.

To try things repeatedly, start a server yourself (see SERVE) and name it: GYMNAST_VLLM_TINY=http://127.0.0.1:18101.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gymnast.runtime.listening_ports import reserve_port
from tests.helpers.parts import PARTS

ROOT = Path(__file__).parents[2]
VENV = Path(os.environ.get("GYMNAST_VLLM_VENV", ROOT / ".venv-vllm")).resolve()
VLLM = VENV / "bin" / "vllm"
CONTEXT = 2048
SERVE = {
    "dtype": "float32",
    "max_model_len": CONTEXT,
    "max_num_seqs": 64,
    "enforce_eager": True,
    "enable_prompt_tokens_details": True,
}
"""Options of `vllm serve`; most servers here also get `--enable-scale-out`."""
ENV = {
    "VLLM_SERVER_DEV_MODE": "1",  # offers /pause, /resume and /update_weight_version
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": str(os.cpu_count() or 1),
}
_READY_S = 400.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not (VENV / ".ready").exists():
        mark = pytest.mark.skip(reason=PARTS["vLLM"].reason)
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(mark)


_FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Keeps measured figures for the end of the run: figures(histories=240, drift=0)."""

    def keep(**found: object) -> None:
        said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in found.items())
        request.config.stash.setdefault(_FIGURES, []).append(f"{request.node.name}: {said}")

    return keep


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_FIGURES, []):
        terminalreporter.write_line(line)


@dataclass(frozen=True)
class Model:
    """A model folder and, while it is served, where."""

    name: str
    root: str

    @property
    def folder(self) -> Path:
        return VENV / "models" / self.name

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """A random Qwen3 of half a million parameters."""
    with _served("tiny", tmp_path_factory.mktemp("tiny")) as model:
        yield model


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """SmolLM2-135M-Instruct."""
    with _served("smollm2", tmp_path_factory.mktemp("smollm2")) as model:
        yield model


@contextmanager
def _served(name: str, folder: Path) -> Iterator[Model]:
    running = os.environ.get(f"GYMNAST_VLLM_{name.upper()}")
    if running:
        yield Model(name, running)
        return
    with reserve_port("127.0.0.1") as held, (folder / "vllm.log").open("w") as log:
        port = held.getsockname()[1]
        options = [word for key, value in SERVE.items() for word in _option(key, value)]
        command = [VLLM, "serve", VENV / "models" / name, "--served-model-name", name, "--host", "127.0.0.1"]
        process = subprocess.Popen(
            [*map(str, command), "--port", str(port), "--enable-scale-out", *options],
            env={**os.environ, **ENV},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _wait(f"http://127.0.0.1:{port}/health", process, folder / "vllm.log")
            yield Model(name, f"http://127.0.0.1:{port}")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _option(name: str, value: object) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    return [flag] if value is True else [flag, str(value)]


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:
                if reply.status == 200:
                    return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"vLLM did not become ready:\n{log.read_text()[-4000:]}")
