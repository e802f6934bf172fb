"""Experiments with what a run depends on: endpoints, judges, memory, disks and code that fail as people meet it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.doctor.experiments import DEMO, ONCE, closed_port, run_of
from tests.doctor.lab import ENVIRONMENT, LOOK, NO_WAIT, RIGHT, WRONG, Answer, Lab, endpoint, error, install, said
from tests.helpers.commands import BIN
from tests.helpers.parts import skip_without

CGROUP = Path("/sys/fs/cgroup/memory")
BOOLEAN = {**LOOK, "parameters": {"type": "object", "properties": {"a": True}, "additionalProperties": False}}
BAD_SCHEMA = error(400, {"error": {"message": "Invalid schema for function 'look': True is not of type 'object'"}})
XGRAMMAR = error(500, {"error": {"message": "RuntimeError: [xgrammar] the schema should be an object"}})
VLLM_NAME = error(404, {"object": "error", "message": "The model `lab` does not exist.", "code": 404})
CONTEXT_512 = "This model's maximum context length is 512 tokens. However, you requested 700 tokens."


# --- endpoints -------------------------------------------------------------------------------------------------------


def offering(tool: dict[str, Any], policy: Any) -> Callable[[Lab], tuple[str, ...]]:
    """Rows with a tool."""

    def make(lab: Lab) -> tuple[str, ...]:
        lab.rows(6, tools=[tool])
        lab.collect(policy, *ONCE)
        return run_of(lab)

    return make


def half_overflow(number: int, _: dict[str, Any]) -> Answer:
    return error(400, {"object": "error", "message": CONTEXT_512, "code": 400}) if number % 2 else RIGHT


def fault_and_limit(number: int, _: dict[str, Any]) -> Answer:
    """Two faults at once: the graver one goes first, and each is charged with its own."""
    return error(500, {"error": "CUDA error: illegal access"}) if number % 2 else error(429, {}, retry_after="0")


def bad_arguments(_: int, body: dict[str, Any]) -> Answer:
    return WRONG if body["messages"][-1]["role"] == "tool" else said("", tool=("look", "{not json"))


def with_bad_arguments(lab: Lab) -> tuple[str, ...]:
    install(lab.folder)
    lab.rows(20, trouble="zero", tools=[LOOK])
    lab.collect(bad_arguments, environment="lab")
    return run_of(lab)


def unknown_host(lab: Lab) -> tuple[str, ...]:
    lab.collect_at("http://no-such-host.invalid/v1", NO_WAIT, "--give-up-after", "0.3")
    return run_of(lab)


def https_to_http(lab: Lab) -> tuple[str, ...]:
    with endpoint(lambda _, __: RIGHT) as url:
        lab.collect_at(url.replace("http:", "https:"), NO_WAIT, "--give-up-after", "0.3")
    return run_of(lab)


def endpoint_that_dies(lab: Lab) -> tuple[str, ...]:
    """It answers some, and is gone."""
    lab.rows(30)
    enough = threading.Event()

    def policy(number: int, _: dict[str, Any]) -> Answer:
        if number >= 8:
            enough.set()
        return replace(said("It is \\boxed{A}", delay_s=0.1), headers=(("connection", "close"),))

    def end() -> None:
        enough.wait(30)
        stack.close()

    with contextlib.ExitStack() as stack:
        url = stack.enter_context(endpoint(policy))
        ending = threading.Thread(target=end)
        ending.start()
        lab.collect_at(url, *ONCE, "--concurrency", "2", "--give-up-after", "0.5")
        ending.join()
    return run_of(lab)


# --- judges ----------------------------------------------------------------------------------------------------------


def judged_at(judge: Callable[[], contextlib.AbstractContextManager[str]]) -> Callable[[Lab], tuple[str, ...]]:
    """The policy is well; the judge lives somewhere else."""

    def make(lab: Lab) -> tuple[str, ...]:
        rows = [
            {"responses_create_params": {"input": f"Q{n}"}, "question": f"Q{n}", "expected_answer": f"rain {n}"}
            for n in range(6)
        ]
        lab.tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
        with judge() as url:
            settings = f'{{entrypoint: app.py, base_url: "{url}", api_key: none, model: judge, max_attempts: 1}}'
            config = f"judge_model:\n  responses_api_models:\n    vllm_model: {settings}\n"
            (lab.folder / "judge.yaml").write_text(config)
            name = "equivalence_llm_judge"
            setting = f"++{name}.resources_servers.{name}.judge_model_server.name=judge_model"
            lab.collect(said("evaporation"), *ONCE, NO_WAIT, "-c", "judge.yaml", setting, environment=name)
        return run_of(lab)

    return make


@contextmanager
def nobody() -> Iterator[str]:
    yield f"http://127.0.0.1:{closed_port()}/v1"


@contextmanager
def another_model() -> Iterator[str]:
    with endpoint(lambda _, __: VLLM_NAME) as url:
        yield url


# --- environments and their code -------------------------------------------------------------------------------------


def one_in_five(lab: Lab) -> tuple[str, ...]:
    """The verifier raises on some rows; the others are scored."""
    install(lab.folder)
    lab.rows(20)
    rows = [json.loads(line) for line in lab.tasks.read_text().splitlines()]
    told = [{**row, "trouble": "" if number % 5 else "verify"} for number, row in enumerate(rows)]
    lab.tasks.write_text("".join(json.dumps(row) + "\n" for row in told))
    lab.collect(RIGHT, *ONCE, environment="lab")
    return run_of(lab)


def broken_code(code: str, *arguments: str) -> Callable[[Lab], tuple[str, ...]]:
    """The run never begins. Doctor is asked about the output that was to be, as people do."""

    def make(lab: Lab) -> tuple[str, ...]:
        install(lab.folder, code)
        lab.collect(RIGHT, *arguments, environment="lab")
        assert lab.code == 2, lab.said
        return run_of(lab)

    return make


MISSING_PACKAGE = "import no_such_package_at_all\n" + ENVIRONMENT


def no_input(lab: Lab) -> tuple[str, ...]:
    lab.tasks.unlink()
    lab.collect(RIGHT)
    assert lab.code == 2
    return run_of(lab)


def one_row_edited(lab: Lab) -> tuple[str, ...]:
    lab.collect(RIGHT, "--max-tokens", "60", "--concurrency", "1")
    rows = [json.loads(line) for line in lab.tasks.read_text().splitlines()]
    rows[4]["expected_answer"] = "B"
    lab.tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lab.collect(RIGHT, "--resume")
    assert lab.code == 2
    return run_of(lab)


# --- the machine -----------------------------------------------------------------------------------------------------


def limited(lab: Lab, limit: str, url: str, *arguments: str, output: str = "x.jsonl") -> int:
    """A collection in a process of its own, under a limit that the shell sets before it."""
    model = f"--model-type vllm_model -m lab --model-url {url}"
    command = f"{BIN / 'gymnast'} collect -e mcqa {model} -i tasks.jsonl -o {output} {' '.join(arguments)}"
    shell = ["bash", "-c", f"{limit}; exec {command} 2> x.err > x.out"]
    return subprocess.run(shell, cwd=lab.folder, timeout=100, check=False).returncode


def too_little_memory(lab: Lab) -> tuple[str, ...]:
    """What a verifier's processes need does not fit: they end before they can say anything."""
    lab.rows(2)
    with endpoint(lambda _, __: said("x" * 20_000_000)) as url:
        assert limited(lab, "ulimit -v 900000", url, *ONCE, "--concurrency", "2") == 1
    return run_of(lab)


def killed_by_the_kernel(lab: Lab) -> tuple[str, ...]:
    group = CGROUP / f"gymnast-lab-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(150 << 20))
    except OSError as problem:
        skip_without("memory control groups", str(problem))
    lab.at_end(lambda: _remove(group))
    if subprocess.run(["dmesg"], capture_output=True, check=False).returncode:
        skip_without("the kernel's log")
    lab.rows(12)
    with endpoint(lambda _, __: said("x" * 20_000_000)) as url:
        assert limited(lab, f"echo $$ > {group}/cgroup.procs", url, *ONCE, "--concurrency", "12") == -9
    (lab.folder / "x.err").unlink()
    return run_of(lab)


def _remove(group: Path) -> None:
    """A group can be removed when the kernel has done with the processes that were in it."""
    deadline = time.monotonic() + 300
    while group.exists():
        with contextlib.suppress(OSError):
            group.rmdir()
        assert time.monotonic() < deadline, "processes of the group live on"
        time.sleep(0.05)


@contextmanager
def mounted(lab: Lab, *options: str) -> Iterator[Path]:
    """A small file system of its own."""
    disk = lab.folder / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(disk)], check=False)
    if done.returncode:
        skip_without("mounting")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def disk_that_fills_up(lab: Lab) -> tuple[str, ...]:
    """In the middle of a run, of which nobody kept what it said. The disk is still full when doctor looks."""
    lab.rows(60)
    stack = contextlib.ExitStack()
    disk = stack.enter_context(mounted(lab, "size=120k"))
    lab.at_end(stack.close)
    with endpoint(lambda _, __: said("It is \\boxed{A} " + "y" * 3000)) as url:
        limited(lab, "true", url, output="disk/x.jsonl")
    (lab.folder / "x.err").unlink()
    return (str(disk / "x.jsonl"),)


def read_only(lab: Lab) -> tuple[str, ...]:
    with mounted(lab, "ro"), endpoint(lambda _, __: RIGHT) as url:
        assert limited(lab, "true", url, output="disk/x.jsonl") == 2
    return ("x.err",)


def instance_port_taken(lab: Lab) -> tuple[str, ...]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        setting = f"++mcqa.resources_servers.mcqa.port={sock.getsockname()[1]}"
        command = [str(BIN / "gymnast"), "serve", *DEMO, "-e", "mcqa", "--head-port", "auto", setting]
        done = subprocess.run(command, cwd=lab.folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    (lab.folder / "serve.err").write_text(done.stderr)
    return ("serve.err",)


def few_files(lab: Lab) -> tuple[str, ...]:
    """64 files may be open, and 200 rollouts would like to be: the run gets along with fewer."""
    lab.rows(100)
    with endpoint(lambda n, _: said(f"It is \\boxed{{{'AB'[n % 2]}}}", delay_s=0.05)) as url:
        assert limited(lab, "ulimit -n 64", url, "--concurrency", "200") == 0
    return run_of(lab)
