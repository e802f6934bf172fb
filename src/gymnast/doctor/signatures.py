"""Lines that say what went wrong, whoever wrote them: Slurm, the kernel, vLLM, Ray, uvicorn, NeMo Gym or Gymnast.

One row for each: adding one is adding a row, a line in tests/doctor/lines.py, and a needle where none fits yet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gymnast.doctor.findings import Confidence
from gymnast.types.failure import Layer


@dataclass(frozen=True, slots=True)
class Signature:
    """A kind of line, and what it means."""

    id: str
    layer: Layer
    pattern: re.Pattern[bytes]
    symptom: str
    cause: str
    action: str
    weight: int
    """Which one is the cause where several are found: the heavier."""
    confidence: Confidence = Confidence.HIGH

    @property
    def is_vague(self) -> bool:
        """Says that something ended, not why."""
        return self.confidence is Confidence.LOW


def _sureness(name: str) -> Confidence:
    return Confidence.LOW if name in _VAGUE else Confidence.HIGH


def _table(*rows: tuple[str, Layer, int, str, str, str, str]) -> dict[str, Signature]:
    return {
        name: Signature(name, layer, re.compile(pattern.encode()), symptom, cause, action, weight, _sureness(name))
        for name, layer, weight, pattern, symptom, cause, action in rows
    }


_VAGUE: Final = frozenset({"task_refused"})
"""Lines that say that something ended, not why. (75 is the exit code of a worker that was told to end.)"""
SIGNATURES: Final = _table(
    (
        *("time_limit", Layer.INFRA, 95, r"DUE TO TIME LIMIT|DUE TO PREEMPTION|DUE TO NODE FAILURE"),
        "the scheduler ended the job",
        "the job's time, or its node, was taken away",
        "ask for more time (sbatch --time), then finish the run: the same collect command with --resume",
    ),
    (
        *("oom_kill", Layer.INFRA, 100),
        (
            r"(?i:out of memory: killed process|oom[-_ ]?kill|memory cgroup out of memory|killed because memory ran out"
            r"|killed due to memory pressure|OutOfMemoryError: Task was killed|exceeded memory limit|\bMemoryError\b"
            r"|cannot allocate memory|std::bad_alloc)"
        ),
        "memory ran out: a process was killed or could go no further",
        "the host, or the job's memory limit, has less memory than the run needs",
        "ask for more memory (sbatch --mem) or lower concurrency (--concurrency), then run again with --resume",
    ),
    (
        *("job_cancelled", Layer.INFRA, 85),
        (
            r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT "
            r"(?!\S+ DUE TO (?:JOB REQUEUE|TIME LIMIT|PREEMPTION|NODE FAILURE))"
        ),
        "the job was cancelled",
        "somebody (scancel), or the scheduler, ended the job",
        "see who with sacct -j ID --format=State,ExitCode, submit it again and finish the run with --resume",
    ),
    (
        *("disk_full", Layer.INFRA, 98, r"No space left on device|Disk quota exceeded"),
        "a file could not be written",
        "the disk, or your quota on it, is full",
        "make room (df -h, quota -s) or choose an --output elsewhere, then run again with --resume",
    ),
    (
        *("fd_limit", Layer.INFRA, 97, r"Too many open files"),
        "files or sockets could not be opened",
        "the limit of open files of the process is too low for this many connections",
        "raise it before starting (ulimit -n 65535) or lower --concurrency, then run again with --resume",
    ),
    (
        *("port_taken", Layer.INFRA, 90),
        r"(?i:address already in use|port \d+ is already used|error while attempting to bind on address)",
        "a server could not listen on its port",
        "another process listens there already",
        "end that process (ss -ltnp shows it) or choose another port (port 0 or --head-port auto takes a free one)",
    ),
    (
        *("cuda_oom", Layer.MODEL_SERVING, 92),
        (
            r"CUDA out of memory|No available memory for the cache blocks|less than desired GPU memory utilization"
            r"|larger than the maximum number of tokens that can be stored in KV cache"
        ),
        "the model server has too little GPU memory",
        "weights and KV cache do not fit into the GPU's memory",
        "lower --max-model-len or --gpu-memory-utilization of vLLM, add GPUs, or free the GPU (nvidia-smi)",
    ),
    (
        *("gpu_fault", Layer.INFRA, 88),
        r"NCCL (?:error|WARN)|ncclUnhandledCudaError|CUDA error: |NVRM: Xid|uncorrectable ECC",
        "a GPU or the links between GPUs failed",
        "a hardware, driver or NCCL fault",
        "keep the node out (sbatch --exclude), look at nvidia-smi and dmesg there, and run again with --resume",
    ),
    (
        *("server_flag", Layer.CONFIG, 89, r"error: unrecognized arguments|error: argument --|No such option: "),
        "a command was started with an argument it does not know",
        "a wrong or misspelt argument, often of another version",
        "correct the argument: the command's --help lists what this version takes",
    ),
    (
        *("model_path", Layer.CONFIG, 89),
        (
            r"Repo id must be in the form|is not a local folder and is not a valid model identifier"
            r"|Invalid repository ID or local directory|does not appear to have a file named config\.json"
            r"|Can't load (?:the configuration|tokenizer) (?:of|for)"
        ),
        "the model server cannot find its model",
        "the model's path or name is wrong, or not mounted where the server runs",
        "correct --model (the folder must hold config.json and be visible inside the container)",
    ),
    (
        *("model_length", Layer.CONFIG, 89, r"max_model_len \(\d+\) is greater than the derived max_model_len"),
        "the model server refuses its context length",
        "a longer context was asked for than the model has",
        "lower --max-model-len to what the message names",
    ),
    (
        *("command_missing", Layer.CONFIG, 87),
        r"execve\(\): .*No such file or directory|: command not found$|: No such file or directory$",
        "a command or a file is not there",
        "it is not installed, not mounted, or not on the PATH where the job runs",
        "check the path inside the job (srun which COMMAND) and the container's mounts",
    ),
    (
        *("container", Layer.INFRA, 86),
        (
            r"pyxis: (?:couldn't|failed|container start)|enroot-\w+: error|\[ERROR\] .*(?:image|squashfs)"
            r"|FATAL: +(?:container creation failed|could not open image)|docker: Error response from daemon"
        ),
        "the container did not start",
        "its image or its mounts are not there",
        "start the container by hand on that node and correct the image or the mounts",
    ),
    (
        *("ray_down", Layer.INFRA, 84),
        (
            r"Failed to connect to GCS|has been marked dead because|ray\.exceptions\.(?:RaySystemError|NodeDiedError"
            r"|ActorDiedError|ActorUnavailableError|LocalRayletDiedError)|Raylet is terminated"
            r"|ConnectionError: Could not find any running Ray instance"
        ),
        "Ray lost a node or its head",
        "a Ray process died or cannot be reached",
        "look at ray status and the raylet's log on the node that is named, then start Ray again",
    ),
    (
        *("engine_dead", Layer.MODEL_SERVING, 80),
        (
            r"EngineDeadError|Engine core initialization failed|EngineCore (?:encountered a fatal|failed to start|died)"
            r"|AsyncEngineDeadError"
        ),
        "the model server's engine died",
        "vLLM's engine ended with an error of its own; the lines before it say which",
        "read the first error of the EngineCore lines above this one, mend that, start vLLM again, then --resume",
    ),
    (
        *("tool_grammar", Layer.DATA_SCHEMA, 83),
        (
            r"(?i:(?:compil\w*|invalid|unsupported|not supported|fail\w*|error).{0,80}"
            r"(?:grammar|xgrammar|outlines|guided)"
            r"|(?:grammar|xgrammar|outlines|guided)\b.{0,80}(?:error|fail|not supported|unsupported|invalid|cannot))"
        ),
        "requests with tools are refused before anything is generated",
        "a tool's JSON schema cannot be turned into a grammar by the engine's constrained decoding",
        "gymnast check tools DATA.jsonl names the schemas; correct those before changing the engine or the agent",
    ),
    (
        *("inner_500_no_body", Layer.VERIFIER, 60),
        r"calling an inner server: (?:b''|b\"\"|b'\"\"')|calling an inner server: *$",
        "an inner server answered 500 without saying why",
        "the body of the inner error was lost on the way",
        (
            "make the boundaries visible: run one task again with ++global_aiohttp_client_request_debug=True "
            "(--limit 1) and read the innermost [request-boundary] line"
        ),
    ),
    (
        *("verifier_exception", Layer.VERIFIER, 42, r"calling an inner server: b(?:'[^'\"]|'\"[^\"]|\"[^\"'])"),
        "an inner server raised",
        "an exception in an environment or agent; its words are quoted at the end of the line",
        "mend what the innermost body names; the server's own log has the traceback",
    ),
    (
        *("verify_schema", Layer.DATA_SCHEMA, 70),
        r"/verify[^\n]{0,40}\b422\b|422 Unprocessable|(?:'|\")type(?:'|\"): ?(?:'|\")missing(?:'|\"), ?(?:'|\")loc",
        "a server refused request bodies (422)",
        "the rows do not have the fields the environment's request model asks for",
        "compare the fields named here with the environment's task model: gymnast check rows DATA --against ENV",
    ),
    (
        *("key_refused", Layer.CONFIG, 75),
        r"(?i:refuses our key|invalid[ _]api[ _]key|incorrect api key|\b401 unauthorized|authenticationerror)",
        "the endpoint refuses the API key",
        "policy_api_key is missing, wrong or expired",
        "set the right key (policy_api_key in env.yaml, or ++policy_api_key=…) and run again",
    ),
    (
        *("model_name_wrong", Layer.CONFIG, 74),
        r"(?i:the model `[^`]+` does not exist|['\"]model_not_found['\"]|\"?model\"? .{1,80} does not exist)",
        "the endpoint does not know the model",
        "policy_model_name is not a name the endpoint serves",
        "use a name that GET <base URL>/models lists (policy_model_name)",
    ),
    (
        *("dns", Layer.INFRA, 72),
        r"(?i:name or service not known|temporary failure in name resolution|getaddrinfo failed)",
        "a host name does not resolve",
        "the host name is wrong, or this node has no name server for it",
        "check the URL's host from the node itself: getent hosts NAME",
    ),
    (
        *(
            "tls",
            Layer.INFRA,
            72,
            r"(?i:certificate[ _]verify[ _]failed|SSLError|\[SSL[]:]|wrong[ _]version[ _]number)",
        ),
        "a TLS connection was refused",
        "the certificate is not trusted here, or http and https are mixed up",
        "check the URL's scheme and the CA bundle (SSL_CERT_FILE)",
    ),
    (
        *("not_ready", Layer.MODEL_SERVING, 66),
        r"did not become ready within|was not ready within|Timed out waiting for .*(?:server|endpoint)",
        "something did not become ready in time",
        "the endpoint or server is still starting, died while starting, or its URL is wrong",
        "look at that server's own log; where it only needs longer: ++model_endpoint_readiness_timeout_seconds=1800",
    ),
    (
        *("endpoint_down", Layer.MODEL_SERVING, 67),
        r"(?i:connection refused|cannot connect to host|connect call failed|ClientConnectorError|max retries exceeded)",
        "connections are refused",
        "nothing listens at that address: the server is not up, died, or the URL is wrong",
        "check that the endpoint runs and its URL is right: curl <base URL>/models",
    ),
    (
        *("context_overflow", Layer.CONFIG, 55),
        r"maximum context length is \d+ tokens|longer than the maximum model length|exceeds the model's maximum",
        "prompts do not fit into the context",
        "the conversation, or the output that was asked for, is longer than the model's context",
        "lower max_output_tokens or the number of turns, or serve the model with a larger --max-model-len",
    ),
    (
        *("process_killed", Layer.INFRA, 78),
        (
            r"(?i:was killed by SIGKILL|\btask \d+: killed|^\S+: line \d+: +\d+ Killed|returned non-zero exit status -9"
            r"|exit code:? 137|exited with code -9|(?:^|\W)Killed\s*$)"
        ),
        "a process was killed (SIGKILL)",
        "usually the kernel or the job's memory limit; sometimes a person",
        (
            "look for the kernel's line (dmesg -T | grep -i 'killed process', or sacct -j ID --format=State,MaxRSS); "
            "if it was memory, ask for more or lower --concurrency, then --resume"
        ),
    ),
    (
        *("process_crashed", Layer.INFRA, 77),
        r"Segmentation fault|core dumped|Bus error|Fatal Python error|was killed by SIG(?:SEGV|BUS|ABRT|ILL)",
        "a process crashed",
        "native code (a driver, a tokenizer, a compiled verifier) ended it",
        "read the last lines before it in that log; run the instance in a process of its own (runs_in: child)",
    ),
    (
        *("module_missing", Layer.CONFIG, 68, r"ModuleNotFoundError: No module named"),
        "a Python package is missing",
        "the environment or server needs a package that is not installed where it runs",
        "install it there, or let the instance have its own venv (runs_in: venv with a requirements.txt)",
    ),
    (
        *("permission", Layer.INFRA, 63, r"PermissionError: |: Permission denied$|Read-only file system"),
        "a file may not be opened or written",
        "it belongs to somebody else, or is mounted read-only",
        "correct the owner or choose another folder",
    ),
    (
        *("loop_blocked", Layer.THROUGHPUT, 58, r"the event loop has been blocked for \d+ s at "),
        "a process does nothing else while one piece of code computes or waits",
        "code that blocks (time.sleep, a long computation, a synchronous request) runs on the event loop",
        "move that work off the loop: await asyncio.to_thread(…), a WorkPool, or runs_in: child for the instance",
    ),
    (
        *("config_key", Layer.CONFIG, 69),
        (
            r"InterpolationKeyError|MissingMandatoryValue|ConfigAttributeError|ConfigKeyError|Could not override"
            r"|the configuration has \d+ problems"
        ),
        "the configuration cannot be used",
        "a key is missing, misspelt or of the wrong type",
        "gymnast config validate shows all problems; gymnast config explain KEY says where a value comes from",
    ),
    (
        *("task_refused", Layer.INFRA, 45, r"srun: error: .*Exited with exit code (?!75\b)[1-9]"),
        "a step of the job ended with an error",
        "the program itself failed; what it said stands above",
        "read the lines before this one in the same log",
    ),
)
"""Their order does not matter: weights decide."""
