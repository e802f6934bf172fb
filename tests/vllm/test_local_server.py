"""local_vllm_model with the real vLLM: started, killed in the middle of a batch, and nothing is lost or left behind."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from gymnast import Collector
from gymnast.errors import StartError
from gymnast.tokens.backend import Sampling
from gymnast.tokens.export import read_ledger
from gymnast.types.events import RolloutFailed
from gymnast.types.failure import kind_named
from gymnast.wire.http_client import HttpClient
from tests.helpers.caller import Caller
from tests.helpers.jsonl import example_rows
from tests.helpers.waiting import eventually
from tests.vllm.asking import Asking
from tests.vllm.conftest import ENV, SERVE, VENV, VLLM, Model

pytestmark = pytest.mark.timeout(900)
ROLLOUTS = 40


def policy(folder: Path, **options: Any) -> str:
    block = {
        "entrypoint": "app.py",
        "model": str(VENV / "models" / "tiny"),
        "vllm_executable": str(VLLM),
        "vllm_serve_kwargs": {"served_model_name": "tiny", **SERVE, **options},
        "vllm_serve_env_vars": {**ENV, "VLLM_RAY_DP_PACK_STRATEGY": "strict"},
        "return_token_id_information": True,
        "replace_developer_role_with_system": True,
    }
    path = folder / "local.yaml"
    path.write_text(yaml.safe_dump({"policy_model": {"responses_api_models": {"local_vllm_model": block}}}))
    return str(path)


class Family:
    """The processes below this one that were started since: not the servers that all tests share."""

    def __init__(self) -> None:
        self._others = {process.pid for process in psutil.Process().children(recursive=True)}

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes()]

    def engine(self) -> dict[str, psutil.Process]:
        """Those of vLLM: the server that answers, and the one that computes."""
        found: dict[str, psutil.Process] = {}
        for process in self._processes():
            words = " ".join(process.cmdline())
            if "vllm serve" in words:
                found.setdefault("server", process)
            if "EngineCore" in words:
                found["core"] = process
        return found

    def _processes(self) -> list[psutil.Process]:
        return [process for process in psutil.Process().children(recursive=True) if process.pid not in self._others]


@pytest.fixture
def family() -> Family:
    return Family()


async def batch(collector: Collector, tokens: int, victim: psutil.Process | None) -> tuple[int, Counter[str], float]:
    """A batch during which a process of vLLM is killed: how many were scored, what failed, how long it took."""
    failures: Counter[str] = Counter()

    def listen(event: Any) -> None:
        if isinstance(event, RolloutFailed):
            failures[event.kind] += 1

    async def run() -> int:
        scored = 0
        async for _, record in collector.run(rows, concurrency=ROLLOUTS, on_event=listen):
            assert record.is_scored
            assert read_ledger(record.data) is not None
            scored += 1
        return scored

    rows = [
        {**row, "responses_create_params": {**row["responses_create_params"], "max_output_tokens": tokens}}
        for row in example_rows("example_single_tool_call")
    ]
    rows = (rows * ROLLOUTS)[:ROLLOUTS]
    began = time.monotonic()
    running = asyncio.create_task(run())
    if victim is not None:
        await asyncio.sleep(1.5)
        assert not running.done()
        victim.send_signal(signal.SIGKILL)
    return await running, failures, time.monotonic() - began


async def test_a_killed_engine_costs_no_rollout(
    tmp_path: Path, http: HttpClient, family: Family, figures: Callable[..., None]
) -> None:
    began = time.monotonic()
    async with Collector(
        environments=["example_single_tool_call"], config_paths=[policy(tmp_path)], log_dir=tmp_path
    ) as collector:
        figures(seconds_to_start=round(time.monotonic() - began, 1))
        scored, failures, _ = await batch(collector, 16, None)
        assert (scored, failures) == (ROLLOUTS, Counter())
        await _check_that_generate_is_refused(http, family.engine()["server"])
        for victim in ("server", "core"):
            scored, failures, took_s = await batch(collector, 400, family.engine()[victim])
            figures(killed=victim, scored=scored, failures=dict(failures), seconds=round(took_s, 1))
            assert scored == ROLLOUTS
            assert failures.total() > 0
            assert all(kind_named(kind).retryable for kind in failures)
            assert set(failures) <= {"instance_died", "model_unreachable", "model_error", "model_overloaded"}
        pids = family.pids()
    await eventually(lambda: not [pid for pid in pids if psutil.pid_exists(pid)])
    assert "vllm" in (tmp_path / "policy_model.server0.log").read_text().lower()


async def _check_that_generate_is_refused(http: HttpClient, server: psutil.Process) -> None:
    """Without --enable-scale-out: the token backend finds out and asks for completions."""
    port = next(found.laddr.port for found in server.net_connections("tcp") if found.status == psutil.CONN_LISTEN)
    asking = Asking(Model("tiny", f"http://127.0.0.1:{port}"), http)
    backend = asking.backend()
    got = await backend.generate([1, 2, 3], Sampling(max_tokens=5), Caller())
    assert len(got.token_ids) == 5
    assert backend.use_generate is False


async def test_vllm_that_cannot_start_says_why(tmp_path: Path, family: Family) -> None:
    config = policy(tmp_path, no_such_option=1)
    with pytest.raises(StartError, match="server 0 of policy_model ended while starting") as caught:
        async with Collector(environments=["example_single_tool_call"], config_paths=[config], log_dir=tmp_path):
            pass
    assert "--no-such-option" in str(caught.value)
    assert not family.engine()
