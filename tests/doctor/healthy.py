"""Runs that look odd and are healthy: doctor says so and blames nobody."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.doctor.component_experiments import few_files
from tests.doctor.experiments import calls, collected, log_of, many, run_of
from tests.doctor.lab import LOOK, RIGHT, WRONG, Answer, Lab, error, install, said


@dataclass(frozen=True)
class Healthy:
    """A run, and the note doctor may make of it."""

    name: str
    make: Callable[[Lab], tuple[str, ...]]
    note: str = ""


def every(number: int, odd: Answer, usual: Callable[[int], Answer] = lambda n: RIGHT if n % 3 else WRONG) -> Any:
    """A policy whose n-th answers are odd."""
    return lambda n, _: odd if n % number == number - 1 else usual(n)


MIXED = every(3, WRONG)


def two_invocations(lab: Lab) -> tuple[str, ...]:
    lab.collect(MIXED, "--max-tokens", "60", "--concurrency", "1")
    lab.collect(MIXED, "--resume")
    assert lab.code == 0, lab.said
    return run_of(lab)


def source_changed_later(lab: Lab) -> tuple[str, ...]:
    lab.collect(MIXED)
    lab.rows(3)
    return run_of(lab)


def source_gone(lab: Lab) -> tuple[str, ...]:
    lab.collect(MIXED)
    lab.tasks.unlink()
    return run_of(lab)


def foreign_whole(lab: Lab) -> tuple[str, ...]:
    lab.collect(MIXED)
    for name in ("x_run.json", "x.jsonl.done", "x.err"):
        (lab.folder / name).unlink()
    return ("x.jsonl", "--input", "tasks.jsonl")


def torn_and_repaired(lab: Lab) -> tuple[str, ...]:
    lab.collect(MIXED, "--max-tokens", "60", "--concurrency", "1")
    lines = lab.lines()
    lab.rewrite([*lines[:-1], lines[-1][:100]])
    lab.collect(MIXED, "--resume")
    assert lab.code == 0, lab.said
    return run_of(lab)


def saturated(lab: Lab) -> tuple[str, ...]:
    lab.collect(MIXED)
    line = (
        "(APIServer pid=1) INFO 01-01 10:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 900.0 tokens/s, Avg "
        "generation throughput: 2000.1 tokens/s, Running: 256 reqs, Waiting: 512 reqs, GPU KV cache usage: 98.7%\n"
    )
    (lab.folder / "vllm.log").write_text(line * 50)
    return (str(lab.output), "--logs", "vllm.log")


def noisy_logs(lab: Lab) -> tuple[str, ...]:
    """Tracebacks of cancellations, and an error that a retry made good: the run is whole."""
    lab.collect(MIXED)
    (lab.folder / "x_logs").mkdir(exist_ok=True)
    (lab.folder / "x_logs" / "mcqa.log").write_text(
        "ERROR connection refused, trying again\n"
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\nasyncio.exceptions.CancelledError\n'
    )
    return run_of(lab)


def folder_with_the_run(lab: Lab) -> tuple[str, ...]:
    lab.collect(MIXED)
    return (str(lab.folder),)


def with_tools(lab: Lab) -> tuple[str, ...]:
    install(lab.folder)
    lab.rows(6, trouble="", tools=[LOOK])
    lab.collect(calls("look"), environment="lab")
    assert lab.code == 0, lab.said
    return run_of(lab)


def hallucinated_tool(lab: Lab) -> tuple[str, ...]:
    """The model calls a tool that nobody offered it: the policy's mistake, not the environment's."""
    install(lab.folder)
    lab.rows(6, trouble="", tools=[LOOK])
    lab.collect(calls("lock"), environment="lab")
    return run_of(lab)


def profiled(lab: Lab) -> tuple[str, ...]:
    lab.collect(MIXED, "-n", "2")
    code, _, err = lab.gymnast("profile", "x.jsonl")
    assert code == 0, err
    return run_of(lab)


def quiet_log(lab: Lab) -> tuple[str, ...]:
    (lab.folder / "serve.log").write_text("INFO:     Started server process [7]\nINFO:     Uvicorn running\n" * 20)
    return ("serve.log",)


def empty_failures_without_manifest(lab: Lab) -> tuple[str, ...]:
    lab.collect(MIXED)
    (lab.folder / "x_run.json").unlink()
    (lab.folder / "x_failures.jsonl").write_text("")
    return run_of(lab)


def negative_rewards(lab: Lab) -> tuple[str, ...]:
    lab.collect(MIXED)
    lines = [json.loads(line) for line in lab.lines()]
    lab.rewrite([json.dumps({**line, "reward": line["reward"] - 1}) + "\n" for line in lines])
    return run_of(lab)


HEALTHY = (
    Healthy("a plain run", collected(MIXED)),
    Healthy("all rewards 1", many(RIGHT), "all_perfect"),
    Healthy("a few rewards of 0", collected(WRONG)),
    Healthy("some 500s that were retried", many(every(7, error(500, {"error": "oops"}))), "recovered"),
    Healthy("some 429s that were retried", many(every(7, error(429, b"", retry_after="0"))), "recovered"),
    Healthy("some answers cut off", many(every(7, said("It", finish="length"))), "some_truncated"),
    Healthy("two invocations", two_invocations, "resumed"),
    Healthy("the input file changed later", source_changed_later, "source_changed_later"),
    Healthy("the input file is gone", source_gone, "source_gone"),
    Healthy("a whole run of NeMo Gym's", foreign_whole),
    Healthy("a torn line that was repaired", torn_and_repaired, "repaired"),
    Healthy("a saturated model server", saturated, "saturated"),
    Healthy("cancellations in the logs", noisy_logs),
    Healthy("a folder with a run in it", folder_with_the_run),
    Healthy("tools that work", with_tools),
    Healthy("a hallucinated tool", hallucinated_tool),
    Healthy("a profile beside it", profiled),
    Healthy("a log that says nothing", quiet_log),
    Healthy("a model server that was told to end", log_of("vllm_shut_down.log")),
    Healthy("a job that went back into the queue", log_of("slurm_requeued.out")),
    Healthy("no manifest, no failures", empty_failures_without_manifest),
    Healthy("negative rewards", negative_rewards),
    Healthy("few files may be open", few_files),
    Healthy("slow and steady", many(said("It is \\boxed{A}", delay_s=0.05), rows=8)),
)
