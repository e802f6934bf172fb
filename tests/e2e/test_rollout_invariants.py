"""The eight invariants of NeMo Gym's tracker "Make rollout failures bounded, visible, and recoverable", one test each.

They are stated there for a coming version (github.com/NVIDIA-NeMo/Gym/issues/2750); these runs show that they hold here
today. docs/how-to/migrate-from-nemo-gym.md links them.
"""

from __future__ import annotations

import json
import signal
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import psutil
import pytest
import yaml

from gymnast.train import Estimator, Group, MaskReason, group_advantages, sample_of
from gymnast.types.task import RolloutKey
from tests.crash.audit import Files, assert_true_so_far, complete_lines, read_files
from tests.crash.harness import Collection, Tasks, collecting, policy_running
from tests.helpers.commands import Outcome, Served
from tests.helpers.jsonl import read_jsonl, write_jsonl
from tests.helpers.train_records import good
from tests.helpers.waiting import wait_until

Run = Callable[..., Outcome]
Serve = Callable[..., Served]

ATTEMPTS = 3
"""How often a rollout is attempted unless another number is given."""
MODEL_ATTEMPTS = 3
"""How often a model server sends a request upstream for one of them."""
ONE_TRY = "++policy_model.responses_api_models.vllm_model.max_attempts=1"


def files_of(collection: Collection, tasks: Tasks, max_attempts: int = ATTEMPTS) -> Files:
    files = read_files(collection.output, max_attempts)
    assert_true_so_far(files, tasks)
    return files


def has_lines(path: Path) -> bool:
    return bool(complete_lines(path))


# --- 1: shared transport and provider retry loops terminate by default -----------------------------------------------


def test_retry_loops_end_by_default(tmp_path: Path) -> None:
    tasks = Tasks(3, 1)
    with policy_running("--fault", "500=1") as endpoint, collecting(tmp_path, tasks, endpoint.url) as collection:
        done = collection.finish()
        requests = endpoint.served()["500"]
    assert done.code == 1
    assert requests == 3 * ATTEMPTS * MODEL_ATTEMPTS
    files = files_of(collection, tasks)
    assert len(files.failures) == 3 * ATTEMPTS
    assert files.failed == tasks.keys()


# --- 2: a possibly delivered mutation is not replayed without an explicit safe-replay contract -----------------------


class Bank(ThreadingHTTPServer):
    """An environment at a URL: it spends as it is told, and then drops the connection without a reply at first."""

    daemon_threads = True

    def __init__(self, drops: int) -> None:
        super().__init__(("127.0.0.1", 0), BankHandler)
        self.drops = drops
        self.seeds = 0
        self.spent: Counter[str] = Counter()
        self.lock = Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class BankHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bank

    def do_GET(self) -> None:
        self._reply({} if self.path != "/tools" else [])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path == "/seed_session":
            with self.server.lock:
                self.server.seeds += 1
                name = f"account-{self.server.seeds}"
            self._reply({}, f"account={name}; Path=/")
        elif self.path == "/spend":
            account = (self.headers["Cookie"] or "").partition("account=")[2].partition(";")[0]
            with self.server.lock:
                self.server.spent[account] += 1
                self.server.drops -= 1
                is_dropped = self.server.drops >= 0
            if is_dropped:
                self.close_connection = True
            else:
                self._reply({"spent": 1})
        else:
            self._reply({**body, "reward": 1.0})

    def _reply(self, value: Any, cookie: str | None = None) -> None:
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if cookie:
            self.send_header("Set-Cookie", cookie)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def bank_open(drops: int) -> Iterator[Bank]:
    bank = Bank(drops)
    thread = Thread(target=bank.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield bank
    finally:
        bank.shutdown()
        thread.join()
        bank.server_close()


def write_bank_config(folder: Path, url: str) -> str:
    call = {"tool_calls": [{"name": "spend", "arguments": {}}]}
    agent = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": "bank"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    config = {
        "bank": {"resources_servers": {"bank": {"url": url, "domain": "other"}}},
        "policy_model": {
            "responses_api_models": {"scripted_model": {"entrypoint": "app.py", "replies": [call, "It is spent."]}}
        },
        "bank_agent": {"responses_api_agents": {"simple_agent": agent}},
    }
    (folder / "bank.yaml").write_text(yaml.safe_dump(config))
    tool = {"type": "function", "name": "spend", "parameters": {"type": "object", "properties": {}}, "strict": False}
    params = {"input": [{"role": "user", "content": "Spend one."}], "tools": [tool]}
    write_jsonl(folder / "tasks.jsonl", [{"responses_create_params": params} for _ in range(4)])
    return "bank.yaml"


def test_a_mutation_that_may_have_been_delivered_is_not_sent_again(run: Run, tmp_path: Path) -> None:
    """A tool call whose reply was lost fails the attempt; the next attempt has a new session."""
    with bank_open(drops=3) as bank:
        config = write_bank_config(tmp_path, bank.url)
        done = run("gymnast", "collect", "-c", config, "-i", "tasks.jsonl", "-o", "x.jsonl", "--concurrency", "1")
        assert done.code == 0, done.err
    assert len(read_jsonl(tmp_path / "x.jsonl")) == 4
    assert len(read_jsonl(tmp_path / "x_failures.jsonl")) == 3
    assert set(bank.spent.values()) == {1}
    assert len(bank.spent) == bank.seeds == 4 + 3


# --- 3: a completed result, a no-result failure, and unresolved work remain distinguishable --------------------------


def test_scored_failed_and_owed_are_distinguished(run: Run, tmp_path: Path) -> None:
    tasks = Tasks(40, 4)
    with (
        policy_running("--slow-s", "0.2", "--fault", "500=0.3") as endpoint,
        collecting(tmp_path, tasks, endpoint.url, ONE_TRY, "--max-attempts", "1", "--concurrency", "4") as collection,
    ):
        process = collection.start()
        wait_until(lambda: has_lines(tmp_path / "x_failures.jsonl") and has_lines(collection.output))
        process.send_signal(signal.SIGTERM)
        collection.finish()
    files = files_of(collection, tasks, 1)
    assert files.scored
    assert files.failed
    assert files.owed
    assert not files.scored.keys() & files.failed
    status = run("gymnast", "status", "x.jsonl", "--json").json()
    (counts,) = status["agents"].values()
    assert status["state"] == "interrupted"
    assert (counts["scored"], counts["failed"]) == (len(files.scored), len(files.failed))
    assert status["manifest"]["plan"]["rows"] == len(files.scored) + len(files.failed) + len(files.owed)


# --- 4: infrastructure failure is never fabricated as a successful reward-zero sample --------------------------------


def test_a_failure_of_the_infrastructure_has_no_reward(run: Run, tmp_path: Path) -> None:
    tasks = Tasks(10, 4)
    with (
        policy_running("--fault", "500=0.2", "--fault", "503=0.1") as endpoint,
        collecting(tmp_path, tasks, endpoint.url, ONE_TRY, "--max-attempts", "1") as collection,
    ):
        assert collection.finish().code == 1
    files = files_of(collection, tasks, 1)  # every reward is the one that the answer deserves
    assert files.failed
    assert all("reward" not in row and "response" not in row for row in files.failures)
    rewards = [row["reward"] for row in files.scored.values()]
    profile = run("gymnast", "profile", "x.jsonl", "--allow-partial", "--json")
    assert profile.code == 0, profile.err
    (agent,) = json.loads((tmp_path / "x_agent_metrics.json").read_text())
    assert agent["mean/reward"] == pytest.approx(sum(rewards) / len(rewards))


# --- 5: completed masked rewards cannot influence training statistics as policy evidence -----------------------------


@pytest.mark.parametrize("estimator", list(Estimator))
@pytest.mark.parametrize("reward", [0.0, 1.0, 1e6])
def test_a_masked_reward_moves_no_statistic(estimator: Estimator, reward: float) -> None:
    kept = [sample_of(good(RolloutKey(0, index), reward=value)) for index, value in enumerate((1.0, 0.0, 0.5))]
    record = json.loads(good(RolloutKey(0, 3), reward=reward)) | {"mask_sample": True}
    masked = sample_of(json.dumps(record).encode())
    assert masked.mask_reason is MaskReason.ENVIRONMENT
    alone = group_advantages(Group(0, tuple(kept)), estimator)
    assert group_advantages(Group(0, (*kept, masked)), estimator) == [*alone, None]


# --- 6: resume validates run identity and preserves attempt history --------------------------------------------------


def test_a_resume_checks_the_run_and_keeps_the_history(tmp_path: Path) -> None:
    tasks = Tasks(4, 1)
    with (
        policy_running("--fault", "500=1") as endpoint,
        collecting(tmp_path, tasks, endpoint.url, ONE_TRY, "--give-up-after", "1") as collection,
    ):
        collection.finish("--max-attempts", "1")
        failures = tmp_path / "x_failures.jsonl"
        before = failures.read_bytes()
        assert before
        refused = collection.finish("--max-attempts", "3", "--temperature", "0.3")
        assert refused.code == 2
        assert "temperature" in refused.err
        assert failures.read_bytes() == before
        collection.finish("--max-attempts", "3", "--retry-failed")
    after = failures.read_bytes()
    assert after.startswith(before)
    attempts: dict[tuple[int, int], list[int]] = {}
    for row in read_jsonl(failures):
        attempts.setdefault((row["_ng_task_index"], row["_ng_rollout_index"]), []).append(row["_ng_attempt_index"])
    assert attempts.keys() == tasks.keys()
    assert all(numbers == list(range(len(numbers))) for numbers in attempts.values())
    assert {len(numbers) for numbers in attempts.values()} == {1 + ATTEMPTS}


# --- 7: acquired remote sessions have explicit bounded release and an expiry backstop --------------------------------

LEDGER = """
from pathlib import Path

from gymnast.kit import Attempt, Environment, Task

LOG = Path(__file__).with_name("sessions.txt")


class Ledger(Environment[Task, str]):
    async def open(self, task: Task) -> str:
        self.note("open")
        return "account"

    async def close(self, session: str) -> None:
        self.note("close")

    async def verify(self, attempt: Attempt[Task, str]) -> float:
        return 1.0

    def note(self, word: str) -> None:
        with LOG.open("a") as log:
            log.write(word + "\\n")
"""


def write_ledger(folder: Path, **settings: Any) -> Path:
    home = folder / "resources_servers" / "ledger"
    home.mkdir(parents=True)
    (home / "app.py").write_text(LEDGER)
    agent = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": "ledger"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    model = {"entrypoint": "app.py", "replies": ["Done."], "faults": [{"rate": 0.5, "reply": {"status": 500}}]}
    config = {
        "ledger": {"resources_servers": {"ledger": {"entrypoint": "app.py", "domain": "other", **settings}}},
        "policy_model": {"responses_api_models": {"scripted_model": model}},
        "ledger_agent": {"responses_api_agents": {"simple_agent": agent}},
    }
    (folder / "ledger.yaml").write_text(yaml.safe_dump(config))
    params = {"input": [{"role": "user", "content": "Account."}]}
    write_jsonl(folder / "tasks.jsonl", [{"responses_create_params": params} for _ in range(8)])
    return home / "sessions.txt"


def test_sessions_are_released_and_forgotten_ones_expire(run: Run, serve: Serve, tmp_path: Path) -> None:
    log = write_ledger(tmp_path, session_ttl_s=0.3)
    done = run("gymnast", "collect", "-c", "ledger.yaml", "-i", "tasks.jsonl", "-o", "x.jsonl", "--max-attempts", "1")
    scored, failed = len(read_jsonl(tmp_path / "x.jsonl")), len(read_jsonl(tmp_path / "x_failures.jsonl"))
    assert (done.code, scored > 0, failed > 0, scored + failed) == (1, True, True, 8)
    assert Counter(log.read_text().split()) == {"open": 8, "close": 8}  # those of failed rollouts, too
    log.unlink()
    url = serve("-c", "ledger.yaml").url("ledger")
    row = read_jsonl(tmp_path / "tasks.jsonl")[0]
    seed(url, row)  # and then its user is gone
    wait_until(lambda: log.read_text().split() == ["open", "close"])


def seed(url: str, row: dict[str, Any]) -> None:
    request = urllib.request.Request(
        f"{url}/seed_session", json.dumps(row).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        assert reply.status == 200


# --- 8: partial startup, cancellation, and shutdown release locally owned resources within configured bounds ---------


def test_what_was_started_ends_with_a_failed_start_a_cancellation_and_a_shutdown(run: Run, tmp_path: Path) -> None:
    log = write_ledger(tmp_path, runs_in="child")
    broken = tmp_path / "resources_servers" / "broken"
    broken.mkdir()
    (broken / "app.py").write_text("raise SystemExit(7)\n")
    block = {"entrypoint": "app.py", "domain": "other", "runs_in": "child"}
    (tmp_path / "broken.yaml").write_text(yaml.safe_dump({"broken": {"resources_servers": {"broken": block}}}))
    failed = run("gymnast", "serve", "--head-port", "auto", "-c", "ledger.yaml", "-c", "broken.yaml")
    assert failed.code == 2
    assert not psutil.Process().children(recursive=True)  # the child that did start is gone as well

    tasks = Tasks(12, 4)
    with (
        policy_running("--slow-s", "0.2") as endpoint,
        collecting(tmp_path, tasks, endpoint.url, "++mcqa.resources_servers.mcqa.runs_in=child") as collection,
    ):
        process = collection.start()
        wait_until(lambda: has_lines(collection.output))
        assert collection.processes("child")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)  # at once: what is in flight is given up
        collection.finish()
        collection.assert_nothing_left()
    assert not (tmp_path / "x.jsonl.lock").exists()
    assert not log.exists()
