"""Logs and runs that look odd and are fine, made by hand: nothing may be blamed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.doctor.quoted import DONE, UP, log, mixed
from tests.doctor.synthetic import Run, call, did, mcqa_row, message, said, tool_output

VLLM = (
    "INFO 11-02 09:14:{0:02d} [loggers.py:118] Engine 000: Avg prompt throughput: 900.0 tokens/s, Avg generation "
    "throughput: 2000.1 tokens/s, Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: 8.7%"
)
ODD: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "vllm with startup warnings": log(
        "INFO 11-02 09:14:01 [api_server.py:1289] vLLM API server version 0.10.0",
        'WARNING 11-02 09:14:02 [utils.py:100] Failed to import from vllm._moe_C with ModuleNotFoundError("No '
        "module named 'vllm._moe_C'\")",
        "WARNING 11-02 09:14:03 [cuda.py:80] Detected different devices in the system. Please make sure to set "
        "`CUDA_DEVICE_ORDER=PCI_BUS_ID` to avoid unexpected behavior.",
        "WARNING 11-02 09:14:03 [config.py:472] Default sampling parameters have been overridden by the model's "
        "Hugging Face generation config.",
        "INFO 11-02 09:14:09 [gpu_worker.py:276] Available KV cache memory: 48.11 GiB",
        *UP,
        *(VLLM.format(n) for n in range(30)),
    ),
    "a favicon": log(*UP, 'INFO:     10.0.0.4:55312 - "GET /favicon.ico HTTP/1.1" 404 Not Found', DONE, DONE),
    "a few disconnects": log(
        *UP,
        DONE,
        "INFO 11-02 10:00:01 [serving_chat.py:600] Client disconnected while processing request chatcmpl-1",
        *([DONE] * 40),
    ),
    "nccl talk": log(
        "n0:7:7 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.3<0>",
        "n0:7:7 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so), using internal implementation",
        "n0:7:7 [0] NCCL INFO cudaDriverVersion 12040",
        "n0:7:9 [0] NCCL INFO comm 0x55 rank 0 nranks 2 - Init COMPLETE",
        "step 1 loss 2.0",
        "step 2 loss 1.9",
    ),
    "slurm job that ended well": log("collecting 900 rollouts", "900 of 900 scored", "done", name="slurm-7.out"),
    "warnings of python": log(
        "/opt/venv/lib/python3.12/site-packages/torch/cuda/__init__.py:63: FutureWarning: The pynvml package is "
        "deprecated.",
        "  import pynvml",
        *UP,
        DONE,
    ),
    "a plugin registered twice, then warnings of a library": log(
        "2026-11-02 10:00:00.594758: E external/xla/fft.cc:477] Unable to register cuFFT factory: Attempting to "
        "register factory for plugin cuFFT when one has already been registered",
        "E0000 00:00:1737817030.660638 18877 dnn.cc:8310] Unable to register cuDNN factory: Attempting to register "
        "factory for plugin cuDNN when one has already been registered",
        "You should probably TRAIN this model on a task to be able to use it for predictions.",
        "/opt/env/lib/python3.12/site-packages/transformers/optimization.py:591: FutureWarning: This is deprecated.",
        "  warnings.warn(",
    ),
    "spans that are sent to nobody": log(
        *UP,
        'ERROR exporter: I/O error on POST request for "http://collector:9411/api/v2/spans": unknown host',
        *([DONE] * 24),
    ),
    "a loss that was not finite once": log(
        "step 1 loss: nan", "step 2 loss: 2.4", "step 3 loss: 2.2", "step 4 loss: 2.1"
    ),
    "a first probe without a key": log(
        *UP,
        'INFO:     10.0.0.4:55312 - "GET /v1/models HTTP/1.1" 401 Unauthorized',
        'INFO:     10.0.0.4:55313 - "GET /v1/models HTTP/1.1" 200 OK',
        *([DONE] * 6),
    ),
    "retries that worked": log(
        "2026-11-02 10:00:00 WARNING http: connection reset by peer, retrying in 1 s (attempt 1 of 5)",
        "2026-11-02 10:00:01 INFO http: ok",
        *(f"2026-11-02 10:00:{n:02d} INFO rollout {n} scored" for n in range(2, 40)),
    ),
    "error in a name": log("INFO loading module error_model.py", "INFO errors=0 failed=0 killed=0", "INFO done"),
    "zero errors": log("2026-11-02 10:00:00 INFO summary: 0 errors, 0 failures, 40 passed"),
    "nginx access": log(
        *(
            f'10.0.0.{n} - - [02/Nov/2026:10:00:{n:02d} +0000] "POST /v1/chat/completions HTTP/1.1" 200 512 "-" "x"'
            for n in range(20)
        ),
        name="access.log",
    ),
    "ray at start": log(
        "2026-11-02 09:45:50,528 INFO worker.py:1841 -- Started a local Ray instance.",
        "(raylet) [2026-11-02 09:45:53,301 I 981 981] node_manager.cc:200: Raylet started",
        "(pid=77) INFO task done",
    ),
    "sglang at work": log(
        "[2026-11-02 09:50:27] INFO:     Uvicorn running on http://0.0.0.0:30000",
        "[2026-11-02 09:50:30] The server is fired up and ready to roll!",
        "[2026-11-02 09:50:31 TP0] Decode batch. #running-req: 8, #token: 4012, token usage: 0.02, gen throughput "
        "(token/s): 900.1",
    ),
    "kubernetes at rest": log(
        "Events:",
        "  Normal   Scheduled  2m   default-scheduler  Successfully assigned rl/policy-0 to gpu-node-3",
        "  Normal   Pulled     90s  kubelet            Successfully pulled image",
        "  Normal   Started    90s  kubelet            Started container policy",
    ),
    "shutdown on request": log(
        *UP,
        DONE,
        "INFO:     Shutting down",
        "INFO:     Waiting for application shutdown.",
        "ERROR:    Traceback (most recent call last):",
        '  File "a.py", line 1, in f',
        "asyncio.exceptions.CancelledError",
        "INFO:     Application shutdown complete.",
        "INFO:     Finished server process [7]",
    ),
    "advice": log("INFO tip: if you see CUDA out of memory, consider lowering --max-model-len", *UP, DONE),
    "rewards of a hard task set": Run(
        said("\\boxed{A}", "\\boxed{B}", "\\boxed{C}"), lambda t, r: float(t == 3 and r == 1)
    ).write,
    "rewards that are all 1 and right": Run(
        lambda t, r: {"output": [message(f"Way {r}: \\boxed{{{'ABCD'[t % 4]}}}")]}, lambda _t, _r: 1.0
    ).write,
    "one task, constant": Run(said("\\boxed{B}"), lambda _t, _r: 0.0, tasks=1).write,
    "few rollouts, constant": Run(said("\\boxed{B}", "\\boxed{C}"), lambda _t, _r: 0.0, tasks=4, repeats=1).write,
    "some refusals": Run(
        said("\\boxed{A}", "I'm sorry, but I can't help with that.", "\\boxed{B}", "\\boxed{C}"), mixed
    ).write,
    "some tools fail": Run(
        lambda _t, r: {
            "output": [
                call("look", "{}"),
                tool_output('{"error": "no such room"}' if r else "a room"),
                message("\\boxed{A}"),
            ]
        },
        mixed,
    ).write,
    "answers mention control tokens": Run(
        said("The token <|im_end|> ends a turn. \\boxed{A}", "\\boxed{B}"), mixed
    ).write,
    "answers show a tool call": Run(
        said('One would write <tool_call>{"name": "x"}</tool_call>. \\boxed{A}', "\\boxed{B}"), mixed
    ).write,
    "repeats are identical but rewards vary by task": Run(
        lambda t, _r: {"output": [message(f"\\boxed{{{'AB'[t % 2]}}}")]}, lambda t, _r: float(t % 2)
    ).write,
    "long repeated text in a poem": Run(
        said("row, row, row your boat \\boxed{A}", "la la la la \\boxed{B}"), mixed
    ).write,
    "fractional rewards": Run(said("\\boxed{A}", "\\boxed{B}"), lambda _t, r: 0.25 * (r % 3)).write,
    "rows without expected answer, varied rewards": Run(
        said("\\boxed{A}", "\\boxed{B}"),
        mixed,
        row=lambda t: {k: v for k, v in mcqa_row(t).items() if k != "expected_answer"},
    ).write,
    "tool call as the answer": Run(did(call("look", "{}")), mixed).write,
}
