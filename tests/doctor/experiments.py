"""The experiments: each makes a real run go wrong and returns what doctor is given to look at."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.crash.harness import Collection, Tasks, collecting, policy_running
from tests.doctor.lab import FOREIGN, NO_WAIT, RIGHT, Answer, Lab, error, install, said
from tests.helpers.commands import BIN
from tests.helpers.parts import skip_without

LOGS = Path(__file__).parent / "logs"
ONCE = ("--max-attempts", "1")


def run_of(lab: Lab) -> tuple[str, ...]:
    return (str(lab.output),)


def collected(policy: Any, *arguments: str, **more: Any) -> Callable[[Lab], tuple[str, ...]]:
    """A run with this policy over the lab's rows."""

    def make(lab: Lab) -> tuple[str, ...]:
        lab.collect(policy, *arguments, **more)
        return run_of(lab)

    return make


def in_lab(trouble: str, *arguments: str, policy: Any = RIGHT, tools: Any = None) -> Callable[[Lab], tuple[str, ...]]:
    """A run in the lab's environment with rows in trouble."""

    def make(lab: Lab) -> tuple[str, ...]:
        install(lab.folder)
        lab.rows(6, trouble=trouble, **({"tools": tools} if tools else {}))
        lab.collect(policy, *ONCE, *arguments, environment="lab")
        return run_of(lab)

    return make


def log_of(name: str) -> Callable[[Lab], tuple[str, ...]]:
    """A log that another program wrote."""
    return lambda _: (str(LOGS / name),)


def calls(name: str) -> Callable[[int, dict[str, Any]], Answer]:
    """A policy that calls a tool once, then answers."""

    def policy(_: int, body: dict[str, Any]) -> Answer:
        return RIGHT if body["messages"][-1]["role"] == "tool" else said("", tool=(name, "{}"))

    return policy


# --- model serving ---------------------------------------------------------------------------------------------------


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def dead_endpoint(lab: Lab) -> tuple[str, ...]:
    lab.collect_at(f"http://127.0.0.1:{closed_port()}/v1", NO_WAIT, "--give-up-after", "0.3")
    return run_of(lab)


def dead_at_start(lab: Lab) -> tuple[str, ...]:
    lab.collect_at(f"http://127.0.0.1:{closed_port()}/v1", "++model_endpoint_readiness_timeout_seconds=0.3")
    assert lab.code == 2
    return ("x.err",)


def key_refused_at_start(lab: Lab) -> tuple[str, ...]:
    lab.collect(RIGHT, models=error(401, {"error": "who are you?"}))
    assert lab.code == 2
    return ("x.err",)


# --- data, configuration ---------------------------------------------------------------------------------------------


def verify_422(lab: Lab) -> tuple[str, ...]:
    install(lab.folder, FOREIGN)
    lab.collect(RIGHT, *ONCE, environment="lab")
    return run_of(lab)


def nested_500(lab: Lab) -> tuple[str, ...]:
    install(lab.folder, FOREIGN)
    lab.rows(6, target=3)
    lab.collect(RIGHT, *ONCE, environment="lab")
    return run_of(lab)


def seed_422(lab: Lab) -> tuple[str, ...]:
    lab.rows(6, grading_mode="by_feeling")
    lab.collect_as_ng(RIGHT)
    return run_of(lab)


def two_agents(lab: Lab) -> tuple[str, ...]:
    lab.collect(RIGHT, "-e", "example_single_tool_call")
    assert lab.code == 2
    return ("x.err",)


def unknown_agent(lab: Lab) -> tuple[str, ...]:
    lab.rows(6, agent_ref={"name": "nobody"})
    lab.collect(RIGHT)
    assert lab.code == 2
    return ("x.err",)


def bad_rows(lab: Lab) -> tuple[str, ...]:
    with lab.tasks.open("a") as stream:
        stream.write("not a row\n")
    lab.collect(RIGHT, "--skip-bad-rows")
    return run_of(lab)


def bad_rows_refused(lab: Lab) -> tuple[str, ...]:
    with lab.tasks.open("a") as stream:
        stream.write("not a row\n")
    lab.collect(RIGHT)
    assert lab.code == 2
    return ("x.err",)


def wrong_value(lab: Lab) -> tuple[str, ...]:
    lab.collect(RIGHT, "++mcqa.resources_servers.mcqa.grading_mode=by_feeling")
    assert lab.code == 2
    return ("x.err",)


# --- resume and files ------------------------------------------------------------------------------------------------


def data_changed(lab: Lab) -> tuple[str, ...]:
    lab.collect(RIGHT, "--max-tokens", "30", "--concurrency", "1")
    lab.rows(6, expected_answer="B")
    lab.collect(RIGHT, "--resume", "--force", "--max-tokens", "60", "--concurrency", "1")
    lab.manifest(note=None)
    return run_of(lab)


def data_changed_refused(lab: Lab) -> tuple[str, ...]:
    lab.collect(RIGHT, "--max-tokens", "30", "--concurrency", "1")
    lab.rows(6, expected_answer="B")
    (lab.folder / "x.err").unlink()
    lab.collect(RIGHT, "--resume")
    assert lab.code == 2
    return ("x.err",)


def settings_changed(lab: Lab) -> tuple[str, ...]:
    lab.collect(RIGHT, "--max-tokens", "30", "--concurrency", "1")
    (lab.folder / "x.err").unlink()
    lab.collect(RIGHT, "--resume", "++mcqa.resources_servers.mcqa.grading_mode=lenient_boxed")
    assert lab.code == 2
    return ("x.err",)


def foreign_data_changed(lab: Lab) -> tuple[str, ...]:
    """A run of NeMo Gym's: no manifest, only its files."""
    lab.collect(RIGHT)
    for name in ("x_run.json", "x.jsonl.done", "x.err"):
        (lab.folder / name).unlink()
    lab.rows(6, expected_answer="C")
    return ("x.jsonl", "--input", "tasks.jsonl")


def empty_profile(lab: Lab) -> tuple[str, ...]:
    lab.collect(RIGHT)
    for name in ("x_run.json", "x.jsonl.done", "x.err"):
        (lab.folder / name).unlink()
    lab.rewrite(lab.lines()[:2])
    lab.rewrite([], "x_reward_profiling.jsonl")
    return run_of(lab)


def duplicates(lab: Lab) -> tuple[str, ...]:
    lab.collect(RIGHT)
    lab.rewrite([*lab.lines(), lab.lines()[0]])
    return run_of(lab)


def lost_records(lab: Lab) -> tuple[str, ...]:
    lab.collect(RIGHT)
    lab.rewrite(lab.lines()[:-2])
    return run_of(lab)


def torn(lab: Lab) -> tuple[str, ...]:
    lab.collect(RIGHT, "--max-tokens", "60", "--concurrency", "1")
    lines = lab.lines()
    lab.rewrite([*lines[:-1], lines[-1][:100]])
    lab.manifest(note=None)
    return run_of(lab)


def other_plan(lab: Lab) -> tuple[str, ...]:
    lab.collect(RIGHT)
    lab.rewrite(lab.lines("x_materialized_inputs.jsonl")[:-3], "x_materialized_inputs.jsonl")
    return run_of(lab)


def output_taken(lab: Lab) -> tuple[str, ...]:
    lab.collect(RIGHT)
    (lab.folder / "x.err").unlink()
    lab.collect(RIGHT)
    (lab.folder / "x.err").rename(lab.folder / "second.err")
    return ("second.err",)


def foreign_partial(lab: Lab) -> tuple[str, ...]:
    lab.collect(RIGHT)
    for name in ("x_run.json", "x.jsonl.done", "x.err"):
        (lab.folder / name).unlink()
    lab.rewrite(lab.lines()[:3])
    return run_of(lab)


def foreign_inner_500(lab: Lab) -> tuple[str, ...]:
    foreign_partial(lab)
    (lab.folder / "x.log").write_text(
        "(mcqa_simple_agent) INFO started\n"
        "(mcqa_simple_agent) Hit an exception in SimpleAgent___mcqa_simple_agent calling an inner server: b''\n"
    )
    return run_of(lab)


def foreign_failures(failure_class: str) -> Callable[[Lab], tuple[str, ...]]:
    """Failures as NeMo Gym writes them: a class, and no account of what happened."""

    def make(lab: Lab) -> tuple[str, ...]:
        foreign_partial(lab)
        scored = {json.loads(line)["_ng_task_index"] for line in lab.lines()}
        rows = [json.loads(line) for line in lab.lines("x_materialized_inputs.jsonl")]
        lost = [row for row in rows if row["_ng_task_index"] not in scored]
        more = {"_ng_failure_class": failure_class, "_ng_failure_judge_error": "APITimeoutError: no answer"}
        lab.rewrite([json.dumps({**row, "reward": 0.0, **more}) + "\n" for row in lost], "x_failures.jsonl")
        return run_of(lab)

    return make


def skewed(lab: Lab) -> tuple[str, ...]:
    lab.collect(RIGHT)
    lab.manifest(updated_at=time.time() + 7200)
    return run_of(lab)


# --- infrastructure --------------------------------------------------------------------------------------------------

TASKS = Tasks(20, 2)


def killed_run(lab: Lab, victim: str, *arguments: str) -> Collection:
    """A collection in processes of its own; one of them gets SIGKILL while it works."""
    with (
        policy_running("--slow-s", "0.3") as policy,
        collecting(lab.folder, TASKS, policy.url, "--concurrency", "4", *ONCE, *arguments) as collection,
    ):
        collection.start()
        deadline = time.monotonic() + 300
        while not (lab.output.exists() and lab.output.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.02)
        if victim == "collector":
            collection.kill()
        elif victim == "term":
            assert collection.process is not None
            collection.process.send_signal(signal.SIGTERM)
            collection.finish()
        else:
            for process in collection.processes(victim):  # type: ignore[arg-type]
                process.kill()
            collection.finish()
    return collection


def killed(victim: str, *arguments: str, line: str = "") -> Callable[[Lab], tuple[str, ...]]:
    def make(lab: Lab) -> tuple[str, ...]:
        killed_run(lab, victim, *arguments)
        if line:
            (lab.folder / "x-kernel.log").write_text(line + "\n")
        return run_of(lab)

    return make


OOM_LINE = (
    "[ 8123.4] Out of memory: Killed process 4711 (python) total-vm:9000000kB, anon-rss:7000000kB, oom_score_adj:0"
)


def full_disk(lab: Lab) -> tuple[str, ...]:
    disk = lab.folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        skip_without("mounting")
    try:
        lab.rows(40)
        lab.gymnast("version")
        with (disk / "ballast").open("wb") as stream:
            stream.write(bytes(8192))
        code, _, err = lab.gymnast("collect", "-e", "mcqa", "-i", "tasks.jsonl", "-o", "disk/x.jsonl", *DEMO)
        assert code == 2, err
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
    (lab.folder / "collect.err").write_text(err)
    return ("collect.err",)


DEMO = ("-c", "responses_api_models/scripted_model/configs/demo.yaml")


def too_many_files(lab: Lab) -> tuple[str, ...]:
    """Another program that runs out of file descriptors."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))"
    code = f"{limit}; f = [open('/dev/null') for _ in range(40)]"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    (lab.folder / "server.log").write_text(done.stderr)
    return ("server.log",)


def port_taken(lab: Lab) -> tuple[str, ...]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = str(sock.getsockname()[1])
        done = subprocess.run(
            [str(BIN / "gymnast"), "serve", *DEMO, "--head-port", port],
            cwd=lab.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2, done.stderr
    (lab.folder / "serve.err").write_text(done.stderr)
    return ("serve.err",)


def shutdown_noise(lab: Lab) -> tuple[str, ...]:
    """The real exception comes first; cancellations after a SIGTERM come in dozens."""
    install(lab.folder)
    lab.rows(6, trouble="verify")
    lab.collect(RIGHT, *ONCE, environment="lab")
    for path in lab.folder.glob("x*.jsonl*"):
        path.unlink()
    (lab.folder / "x_run.json").unlink()
    log = lab.folder / "x_logs" / "lab.log"
    noise = (
        "Received SIGTERM\n" + 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nCancelledError\n' * 40
    )
    log.write_text(log.read_text() + noise)
    return ("x_logs",)


# --- judges ----------------------------------------------------------------------------------------------------------


def judged(verdict: Answer) -> Callable[[Lab], tuple[str, ...]]:
    """The policy's own endpoint judges, and says this."""

    def policy(_: int, body: dict[str, Any]) -> Answer:
        return verdict if "[[A" in json.dumps(body) else said("evaporation")

    def make(lab: Lab) -> tuple[str, ...]:
        rows = [
            {"responses_create_params": {"input": f"Q{n}"}, "question": f"Q{n}", "expected_answer": f"rain {n}"}
            for n in range(6)
        ]
        lab.tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
        lab.collect(policy, *ONCE, environment="equivalence_llm_judge")
        return run_of(lab)

    return make


def many(policy: Any, *arguments: str, rows: int = 20) -> Callable[[Lab], tuple[str, ...]]:
    def make(lab: Lab) -> tuple[str, ...]:
        lab.rows(rows)
        lab.collect(policy, *arguments)
        return run_of(lab)

    return make


OVERFLOW = error(400, {"error": {"message": "This model's maximum context length is 4096 tokens."}})
GRAMMAR = error(400, {"error": {"message": "Grammar error: properties must be an object", "type": "BadRequestError"}})
TOO_LONG = error(400, {"error": {"message": "max_tokens=4000 cannot be greater than max_model_len=512.", "code": 400}})
