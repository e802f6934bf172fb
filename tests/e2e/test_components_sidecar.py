"""Jobs of real processes on this machine: servers that die, never come, or are deaf, and what becomes of their job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from gymnast.sidecars.component import Component, ReadyCheck
from gymnast.sidecars.local_job import run_local_job
from gymnast.sidecars.packing import write_job_files
from gymnast.sidecars.sidecar.job_registry import read_addresses, read_death_notes
from tests.helpers.small_disk import small_disk

ENGINE = (sys.executable, str(Path(__file__).parents[1] / "helpers" / "openai_server.py"), "--port", "{port}")
QUICK = ReadyCheck("/health", deadline_s=30.0, first_interval_s=0.05, longest_interval_s=0.2)


def policy(*words: str, **given: Any) -> Component:
    return Component("policy", (*ENGINE, *words), **{"ready": QUICK, "stop_s": 1.0, **given})


def main(code: str, *words: str, needs: tuple[str, ...] = ("policy",)) -> Component:
    return Component("collect", (sys.executable, "-c", code, *words), needs=needs, is_main=True, stop_s=5.0)


class Running:
    """A job that runs in a process of its own."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.job = folder / "jobs" / "1"
        self.process = process

    def addresses(self) -> list[dict[str, Any]]:
        return read_addresses(self.job, "policy")

    def await_(self, check: Callable[[], Any], within_s: float = 20.0) -> Any:
        deadline = time.monotonic() + within_s
        while not (found := check()):
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return found

    def engines(self) -> list[psutil.Process]:
        below = psutil.Process(self.process.pid).children(recursive=True)
        return [one for one in below if "openai_server" in " ".join(_words(one))]


def _words(process: psutil.Process) -> list[str]:
    """The first words of a command line; a guard's command is not among them."""
    try:
        return process.cmdline()[:2]
    except psutil.Error:
        return []


def living(pids: list[int]) -> list[int]:
    return [one.pid for one in psutil.process_iter(["status"]) if one.pid in pids and one.info["status"] != "zombie"]


@contextmanager
def running(folder: Path, *components: Component) -> Iterator[Running]:
    write_job_files(folder / "orders", components)
    process = subprocess.Popen(
        [sys.executable, "-m", "gymnast.sidecars.local_job", str(folder / "orders"), str(folder / "jobs")],
        env={**os.environ, "GYMNAST_JOB_ID": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Running(folder, process)
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=300)


def answer(url: str) -> str:
    body = json.dumps({"messages": []}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"content-length": str(len(body))})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return str(json.loads(reply.read())["choices"][0]["message"]["content"])


def test_the_main_program_gets_addresses_that_answer_and_its_end_is_the_jobs(tmp_path: Path) -> None:
    code = "import sys, urllib.request as r; sys.exit(7 if r.urlopen(sys.argv[1] + '/health').status == 200 else 1)"
    write_job_files(tmp_path, [main(code, "{url:policy}"), policy()])
    end = run_local_job(tmp_path, tmp_path / "job")
    assert (end.exit_code, end.component) == (7, "collect")
    assert end.message is not None
    assert "exited with code 7" in end.message
    assert not read_addresses(tmp_path / "job", "policy")


def test_a_job_that_goes_well_says_nothing(tmp_path: Path) -> None:
    write_job_files(tmp_path, [main("print('done')", needs=())])
    end = run_local_job(tmp_path, tmp_path / "job")
    assert (end.exit_code, end.component, end.message) == (0, "collect", None)


def test_gpus_are_split_among_replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6,7")
    code = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['OWN'])"
    one = Component(
        "work",
        (sys.executable, "-c", code),
        tasks_per_node=2,
        gpus_per_task=2,
        is_main=True,
        environment={"OWN": "{task}:{gpus}"},
    )
    write_job_files(tmp_path, [one])
    run_local_job(tmp_path, tmp_path / "job")
    logs = sorted(path.read_text() for path in (tmp_path / "job" / "logs").iterdir() if path.stat().st_size)
    assert "3,5 0:3,5\n" in logs or "6,7 1:6,7\n" in logs


def test_a_killed_replica_leaves_rotation_and_comes_back_at_its_address(tmp_path: Path) -> None:
    waits = main("import time; time.sleep(3600)")
    with running(tmp_path, policy("--slow-start-s", "0.3", tasks_per_node=2, restarts=2), waits) as job:
        job.await_(lambda: len(job.addresses()) == 2)
        before = {address["task"]: address for address in job.addresses()}
        victim = next(one for one in job.engines() if f"{before[0]['port']}" in one.cmdline())
        first = answer(before[0]["url"])
        victim.send_signal(signal.SIGKILL)
        job.await_(lambda: [address["task"] for address in job.addresses()] == [1])
        job.await_(lambda: len(job.addresses()) == 2)
        after = {address["task"]: address for address in job.addresses()}
        assert after[0]["url"] == before[0]["url"]
        assert answer(after[0]["url"]) != first  # another process
        assert after[1] == before[1]
        assert not read_death_notes(job.job)


def test_a_server_that_keeps_dying_ends_the_job_by_name(tmp_path: Path) -> None:
    waits = main("import time; time.sleep(3600)")
    with running(tmp_path, policy("--say", "tired", restarts=1), waits) as job:
        for _ in range(2):
            job.await_(job.addresses)
            pid = job.engines()[0].pid
            os.kill(pid, signal.SIGKILL)
            job.process.poll()
            deadline = time.monotonic() + 300
            while psutil.pid_exists(pid) and time.monotonic() < deadline:
                time.sleep(0.02)
            while job.addresses() and job.process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
        _, said = job.process.communicate(timeout=300)
        assert job.process.returncode == 137
    assert "the job ended with policy: policy was killed by SIGKILL after 1 restarts" in said
    assert "small engine starting" in said  # the end of its log
    note = read_death_notes(job.job)[0]
    assert (note["component"], note["restarts"]) == ("policy", 1)


@pytest.mark.parametrize(
    ("words", "deadline_s", "said"),
    [
        (("--crash",), 60.0, "exited with code 1 while starting"),
        (("--never-ready",), 5.0, "was not ready within 5 s"),
    ],
)
def test_a_server_that_does_not_start_shows_the_end_of_its_log(
    tmp_path: Path, words: tuple[str, ...], deadline_s: float, said: str
) -> None:
    ready = ReadyCheck("/health", deadline_s=deadline_s, first_interval_s=0.05, longest_interval_s=0.2)
    counts = tmp_path / "starts"
    never = policy(*words, "--say", "why-it-failed", "--count-starts", str(counts), ready=ready, restarts=3)
    write_job_files(tmp_path, [never, main("raise SystemExit('must not start')")])
    end = run_local_job(tmp_path, tmp_path / "job")
    assert end.component == "policy"
    assert end.exit_code == 1
    assert end.message is not None
    assert said in end.message
    assert "why-it-failed" in end.message
    assert counts.read_text() == "started\n"  # what never worked is not tried again and again
    assert not (tmp_path / "job" / "logs" / "collect.0.log").exists()


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_job_files(tmp_path, [Component("policy", ("no-such-server", "{port}"), ready=QUICK), main("")])
    end = run_local_job(tmp_path, tmp_path / "job")
    assert end.component == "policy"
    assert "cannot run no-such-server" in (end.message or "")


def test_a_port_that_is_taken_is_replaced(tmp_path: Path) -> None:
    """A program that binds without SO_REUSEADDR cannot have the port we hold for it: it gets another, let go of."""
    counts = tmp_path / "starts"
    write_job_files(tmp_path, [policy("--no-reuse", "--count-starts", str(counts)), main("", "{port:policy}")])
    end = run_local_job(tmp_path, tmp_path / "job")
    assert end.exit_code == 0
    assert counts.read_text() == "started\nstarted\n"


def test_nothing_is_left_when_the_job_is_told_to_end(tmp_path: Path) -> None:
    offspring = tmp_path / "pids"
    waits = main("import time; time.sleep(3600)")
    with running(tmp_path, policy("--deaf", "--offspring", str(offspring)), waits) as job:
        job.await_(job.addresses)
        pids = json.loads(offspring.read_text())
        job.process.terminate()
        job.process.communicate(timeout=300)
    assert not living(pids)


@pytest.mark.parametrize("victim", ["job", "sidecar", "guard"])
def test_nothing_is_left_when_a_process_of_ours_is_killed(tmp_path: Path, victim: str) -> None:
    offspring = tmp_path / "pids"
    waits = main("import time; time.sleep(3600)")
    with running(tmp_path, policy("--deaf", "--offspring", str(offspring)), waits) as job:
        job.await_(job.addresses)
        pids = json.loads(offspring.read_text())
        chain = psutil.Process(pids[0]).parents()
        guard, sidecar = chain[0], chain[1]
        chosen = {"job": job.process.pid, "sidecar": sidecar.pid, "guard": guard.pid}[victim]
        os.kill(chosen, signal.SIGKILL)
        deadline = time.monotonic() + 300
        alive = pids
        while alive and time.monotonic() < deadline:
            time.sleep(0.05)
            alive = living(pids)
        assert not alive
        job.process.communicate(timeout=300)
    assert not [one for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(one.info["cmdline"] or ())]


def test_the_main_program_drains_while_servers_still_answer(tmp_path: Path) -> None:
    code = """
import signal, sys, time, urllib.request
def finish(*_):
    time.sleep(0.5)
    print("drained", urllib.request.urlopen(sys.argv[1] + "/health").status, flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, finish)
print("started", flush=True)
time.sleep(60)
"""
    with running(tmp_path, policy(), main(code, "{url:policy}")) as job:
        log = job.job / "logs" / "collect.0.log"
        job.await_(lambda: log.exists() and "started" in log.read_text())
        job.process.terminate()
        job.process.communicate(timeout=300)
        assert job.process.returncode == 5
    assert "drained 200" in log.read_text()


def test_sigusr1_reaches_only_the_main_program(tmp_path: Path) -> None:
    code = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print(1, flush=True)"
    write_job_files(tmp_path, [main(f"{code}; time.sleep(60)", needs=())])
    line = [sys.executable, str(tmp_path / "sidecar.pyz"), "--spec", str(tmp_path / "collect.json")]
    sidecar = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert sidecar.stdout is not None
    assert sidecar.stdout.readline() == b"1\n"
    sidecar.send_signal(signal.SIGUSR1)  # what a job gets before its time is up
    assert sidecar.wait(timeout=300) == 0
    sidecar.stdout.close()


def test_one_program_over_several_tasks_meets_at_its_head(tmp_path: Path) -> None:
    """The first task answers; the others are told where it is, before it answers."""
    rest = (sys.executable, "-c", "import sys, time; print(*sys.argv[1:], flush=True); time.sleep(60)")
    spread = policy(
        "--say", "{head}:{head_port}", tasks_per_node=3, rest_command=(*rest, "{head}:{head_port}", "{task*8}")
    )
    with running(tmp_path, spread, main("import time; time.sleep(3600)")) as job:
        job.await_(job.addresses)
        logs = [job.job / "logs" / f"policy.{task}.log" for task in range(3)]
        job.await_(lambda: all(log.exists() and log.read_text().endswith("\n") for log in logs))
        head = logs[0].read_text().split()[-1]
        assert [log.read_text().split() for log in logs[1:]] == [[head, "8"], [head, "16"]]
        assert [address["task"] for address in job.addresses()] == [0]


TALKATIVE = """
import http.server, sys
class Talker(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/talk":
            print("x" * 99_999, flush=True)
        self.send_response(200)
        self.end_headers()
    def log_message(self, *words):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Talker).serve_forever()
"""


def test_a_server_outlives_a_file_system_that_does_not_take_its_log(tmp_path: Path) -> None:
    """Caller nobody listens to any more blocks or dies when it speaks; its log is not worth that."""
    with small_disk(tmp_path / "disk", 512) as disk:
        server = Component("policy", (sys.executable, "-c", TALKATIVE, "{port}"), ready=QUICK, stop_s=1.0)
        with running(disk.folder, server, main("import time; time.sleep(3600)")) as job:
            (before,) = job.await_(job.addresses)
            disk.leave(0)
            for _ in range(4):
                with urllib.request.urlopen(f"{before['url']}/talk", timeout=60) as reply:
                    assert reply.status == 200
            disk.make_room()
            with urllib.request.urlopen(f"{before['url']}/talk", timeout=60):
                job.await_(lambda: "x" * 1000 in (job.job / "logs" / "policy.0.log").read_text())
            assert job.addresses() == [before], "it was started again"
            assert "could not be written" in (job.job / "logs" / "policy.0.log").read_text()
