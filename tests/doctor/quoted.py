"""Text that a row or a model wrote, in places where doctor reads: it is evidence of nothing but itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.doctor.synthetic import Run, mcqa_row, said, write_compact

SCARY = (
    "[ 8123.4] Out of memory: Killed process 4711 (python) total-vm:9000000kB",
    "OSError: [Errno 28] No space left on device",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "slurmstepd: error: *** JOB 7 ON n0 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
    "ModuleNotFoundError: No module named 'sympy'",
    "This model's maximum context length is 512 tokens.",
    "NCCL error: unhandled cuda error",
    "ConnectionRefusedError: [Errno 111] Connection refused",
)
BLAMED = frozenset(
    {"oom_kill", "disk_full", "cuda_oom", "time_limit", "module_missing", "context_overflow", "gpu_fault"}
    | {"endpoint_down", "job_cancelled", "process_killed"}
)


@dataclass(frozen=True)
class Quoted:
    """A run or log that quotes user data."""

    name: str
    make: Callable[[Path], tuple[str, ...]]
    first: tuple[str, ...] = ()
    """Acceptable first answers; none: healthy."""


def mixed(task: int, rollout: int) -> float:
    return float(rollout % 2)


def failures(folder: Path, detail: dict[str, Any], scary: str) -> tuple[str, ...]:
    """A run whose second half failed like this."""
    Run(said("It is \\boxed{A}", "It is \\boxed{B}"), mixed).write(folder)
    lines = (folder / "x.jsonl").read_text().splitlines(keepends=True)
    half = len(lines) // 2
    lost = [json.loads(line) for line in lines[half:]]
    (folder / "x.jsonl").write_text("".join(lines[:half]))
    base = {"layer": "", "stage": "verify", "instance": "mcqa", "chain": [], "started_at": 1.0, "seconds": 0.1}
    write_compact(
        folder / "x_failures.jsonl",
        [
            {
                "failure": {**base, **detail},
                "_ng_task_index": row["_ng_task_index"],
                "_ng_rollout_index": row["_ng_rollout_index"],
            }
            for row in lost
        ],
    )
    manifest = json.loads((folder / "x_run.json").read_text())
    manifest["state"] = "incomplete"
    (folder / "x_run.json").write_text(json.dumps(manifest))
    return (str(folder / "x.jsonl"),)


def rejected(scary: str) -> Callable[[Path], tuple[str, ...]]:
    body = json.dumps(
        {
            "detail": [
                {"type": "missing", "loc": ["body", "target"], "msg": "Field required", "input": {"question": scary}}
            ]
        }
    )
    detail = {
        "kind": "verify_rejected",
        "message": f"mcqa answered 422 to /verify: {body}",
        "body": body,
        "status": 422,
    }
    return lambda folder: failures(folder, detail, scary)


def raised(scary: str) -> Callable[[Path], tuple[str, ...]]:
    text = f"ValueError: cannot parse the answer {scary!r}"
    detail = {"kind": "verifier_error", "message": f"mcqa answered 500 to /verify: {text}", "body": text, "status": 500}
    return lambda folder: failures(folder, detail, scary)


def refused(scary: str) -> Callable[[Path], tuple[str, ...]]:
    body = json.dumps(
        {
            "error": {
                "message": "temperature must be positive",
                "param": {"messages": [{"role": "user", "content": scary}]},
            }
        }
    )
    detail = {"kind": "model_rejected", "message": f"400: {body}", "body": body, "status": 400, "stage": "model"}
    return lambda folder: failures(folder, detail, scary)


def judged(scary: str) -> Callable[[Path], tuple[str, ...]]:
    text = f"judge_failed: no verdict in the reply: {scary!r}"
    detail = {"kind": "judge_failed", "message": text, "body": text}
    return lambda folder: failures(folder, detail, scary)


def in_records(scary: str) -> Callable[[Path], tuple[str, ...]]:
    def row(task: int) -> dict[str, Any]:
        return {**mcqa_row(task), "question": scary}

    return Run(said(f"The log says {scary}", "It is \\boxed{A}"), mixed, row=row).write


def log(*lines: str, name: str = "server.log") -> Callable[[Path], tuple[str, ...]]:
    def make(folder: Path) -> tuple[str, ...]:
        (folder / name).write_text("\n".join(lines) + "\n")
        return (str(folder / name),)

    return make


UP = ("INFO:     Started server process [7]", "INFO:     Application startup complete.")
DONE = 'INFO:     10.0.0.4:55312 - "POST /v1/chat/completions HTTP/1.1" 200 OK'


def prompt_logged(scary: str) -> Callable[[Path], tuple[str, ...]]:
    prompt = "<|user|>" + scary
    line = (
        f"INFO 11-02 09:14:01 [logger.py:41] Received request chatcmpl-7: prompt: {prompt!r}, params: SamplingParams()"
    )
    return log(*UP, line, DONE)


def json_logged(scary: str) -> Callable[[Path], tuple[str, ...]]:
    line = json.dumps({"level": "info", "msg": "request", "body": {"messages": [{"role": "user", "content": scary}]}})
    return log(line, json.dumps({"level": "info", "msg": "done"}))


def output_logged(scary: str) -> Callable[[Path], tuple[str, ...]]:
    return log(*UP, f"INFO 11-02 09:14:01 [env.py:9] model said: {scary!r}", DONE)


def validation_logged(scary: str) -> Callable[[Path], tuple[str, ...]]:
    """A 422 in a log, with the row that caused it."""
    line = str([{"type": "missing", "loc": ("body", "target"), "msg": "Field required", "input": {"question": scary}}])
    return log(*UP, line, 'INFO:     127.0.0.1:7 - "POST /verify HTTP/1.1" 422 Unprocessable Entity')


def debug_logged(scary: str) -> Callable[[Path], tuple[str, ...]]:
    return log(*UP, f"DEBUG:env:completion={scary!r} reward=0.0", DONE)


SCHEMA = ("verify_schema",)
REJECTED = ("verifier_exception",)
QUOTED = (
    *(Quoted(f"422 quotes {n}", rejected(SCARY[n]), SCHEMA) for n in (0, 1, 2, 4)),
    *(Quoted(f"exception quotes {n}", raised(SCARY[n]), REJECTED) for n in (0, 1, 3)),
    *(Quoted(f"400 quotes {n}", refused(SCARY[n]), ("parameter_refused",)) for n in (0, 5, 2)),
    *(Quoted(f"judge quotes {n}", judged(SCARY[n]), ("judge_failed",)) for n in (0, 7)),
    *(Quoted(f"records quote {n}", in_records(SCARY[n])) for n in (0, 1)),
    *(Quoted(f"log of a prompt quotes {n}", prompt_logged(SCARY[n])) for n in (0, 1, 2)),
    *(Quoted(f"json log quotes {n}", json_logged(SCARY[n])) for n in (0, 6)),
    *(Quoted(f"log of an answer quotes {n}", output_logged(SCARY[n])) for n in (1, 3)),
    Quoted("422 in a log quotes 0", validation_logged(SCARY[0]), SCHEMA),
)
MORE = (
    Quoted("422 quotes 6", rejected(SCARY[6]), SCHEMA),
    Quoted("exception quotes 7", raised(SCARY[7]), REJECTED),
    Quoted("exception quotes 4", raised(SCARY[4]), REJECTED),
    Quoted("judge quotes 2", judged(SCARY[2]), ("judge_failed",)),
    Quoted("log of a prompt quotes 3", prompt_logged(SCARY[3])),
    Quoted("log of a debug line quotes 0", debug_logged(SCARY[0])),
    Quoted("422 in a log quotes 1", validation_logged(SCARY[1]), SCHEMA),
    Quoted("json log quotes 4", json_logged(SCARY[4])),
)


def escaped(scary: str) -> Callable[[Path], tuple[str, ...]]:
    """A row as JSON within the JSON of a log."""
    inner = json.dumps({"messages": [{"role": "user", "content": scary}]})
    return log(
        json.dumps({"level": "warning", "msg": "slow request", "payload": inner}),
        json.dumps({"level": "info", "msg": "ok"}),
    )


def own_print(scary: str) -> Callable[[Path], tuple[str, ...]]:
    return log(*UP, f"INFO env: graded answer={scary!r} expected='A' reward=0", DONE)


def repeated(scary: str) -> Callable[[Path], tuple[str, ...]]:
    """An endpoint repeats the prompt in its own sentence, without quotation marks, and our own output repeats that."""
    body = json.dumps({"detail": [{"type": "value_error", "msg": f"Value error, content not accepted: {scary}"}]})
    message = f"policy_model: http://10.0.0.1:8000/v1/chat/completions answered 422 (parameter_refused): {body}"
    detail = {"kind": "model_misconfigured", "message": message, "body": body, "status": 422, "stage": "model"}
    detail |= {"cause": "parameter_refused", "instance": "policy_model"}

    def make(folder: Path) -> tuple[str, ...]:
        made = failures(folder, detail, scary)
        (folder / "x.err").write_text(f"  why it ended: the first 5 attempts failed on the configuration: {message}\n")
        return made

    return make


EVEN_MORE = (
    *(Quoted(f"422 repeats {n}", repeated(SCARY[n]), ("parameter_refused",)) for n in (0, 1, 2)),
    Quoted("422 quotes 3", rejected(SCARY[3]), SCHEMA),
    Quoted("exception quotes 6", raised(SCARY[6]), REJECTED),
    Quoted("400 quotes 1", refused(SCARY[1]), ("parameter_refused",)),
    Quoted("json in json quotes 1", escaped(SCARY[1])),
    Quoted("graded answer quotes 2", own_print(SCARY[2])),
    Quoted("422 in a log quotes 3", validation_logged(SCARY[3]), SCHEMA),
)
ALL = (*QUOTED, *MORE, *EVEN_MORE)
