"""What classes of failures mean: those of signatures, and those that only `system_errors` knows. Data only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gymnast.doctor.signatures import SIGNATURES
from gymnast.doctor.system_errors import BETWEEN_PROCESSES
from gymnast.types.failure import Layer


@dataclass(frozen=True, slots=True)
class FailureClass:
    """What a class of failures means, and what to do."""

    layer: Layer
    symptom: str
    cause: str
    action: str


OWN: Final = {
    "data_unreadable": FailureClass(
        Layer.DATA_SCHEMA,
        "a data file or a reply cannot be parsed",
        "a file, a column or a field is not in the format that the program expects",
        "look at the named file, column or line; correct the data, or the name that the program was given",
    ),
    "resource_busy": FailureClass(
        Layer.INFRA,
        "something that the program needs is locked or exists already",
        "another process holds a lock or a name, or an earlier run left it behind",
        "find the other process (ps, lsof FILE, ray status), stop it or use another name; lower --concurrency "
        "for locks",
    ),
    "output_exists": FailureClass(
        Layer.CONFIG,
        "a file or folder that the program wants to create exists already",
        "an earlier run left its output at the same path, and the program does not overwrite it",
        "resume that run if it is the same work (often --resume), name another output folder, or move the old one away",
    ),
    "unreachable": FailureClass(
        Layer.INFRA,
        "a host cannot be reached over the network",
        "there is no route, a firewall drops the packets, or a proxy is missing or wrong",
        "check the connection from that node (curl -v URL, nc -vz HOST PORT), the firewall and the proxy settings",
    ),
    "peer_lost": FailureClass(
        Layer.INFRA,
        "the other end closed a connection",
        "the process at the other end died, restarted or timed out, or a proxy in between cut the connection",
        "read the log of the other end at that time; if it was alive, compare the timeouts of both ends and of proxies",
    ),
    "timed_out": FailureClass(
        Layer.THROUGHPUT,
        "something took longer than its timeout",
        "the other end hangs, is overloaded or slower than the timeout allows",
        "read the log of what it waited for at that time; if that only needs longer, raise the timeout or lower "
        "the load",
    ),
    "terminated": FailureClass(
        Layer.INFRA,
        "a process was asked to stop (SIGTERM or SIGINT)",
        "a user, the scheduler, a supervisor or another process that failed first stopped it",
        "look for who stopped it: the scheduler's events (sacct, kubectl describe), the supervisor's log at that time",
    ),
    "variable_unset": FailureClass(
        Layer.CONFIG,
        "an environment variable is not set",
        "the program reads a variable that is missing where it runs",
        "set the named environment variable where the program runs (export NAME=…, the job script, the "
        "container's env)",
    ),
    "quota_used_up": FailureClass(
        Layer.CONFIG,
        "the endpoint's account has no credit left",
        "credits or quota of the account are used up; waiting and retries do not help",
        "add credits or raise the quota of the account whose key is used, or choose another endpoint; then run again "
        "with --resume",
    ),
    "pool_exhausted": FailureClass(
        Layer.MODEL_SERVING,
        "the model server has no room for more requests",
        "the requests that run at once used up a pool of the server: its request slots, tokens or cache blocks",
        "lower the number of requests at once (--max-running-requests, --max-num-seqs, --concurrency), or give the "
        "server's cache more memory",
    ),
    "step_failed": FailureClass(
        Layer.INFRA,
        "a task of a job step failed, and the scheduler ended the others",
        "one process of the step ended with an error; this log does not say why",
        "find the task that is not in the list of those that were terminated, and read its output (srun --label, "
        "sacct -j ID --format=JobID,State,ExitCode)",
    ),
    "offline_mode": FailureClass(
        Layer.CONFIG,
        "a file is not in the local cache, and offline mode prevents the download",
        "HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE or a similar setting is on where the program runs",
        "download it to the cache first (huggingface-cli download NAME), or unset the variable",
    ),
    "gpu_busy": FailureClass(
        Layer.INFRA,
        "a GPU is not free",
        "another process holds the GPU, it is in exclusive mode, or its last user left it in a bad state",
        "list its processes and its mode (nvidia-smi; nvidia-smi -q -d COMPUTE), stop the other process or take "
        "another GPU; if no process holds it, reset it (nvidia-smi --gpu-reset)",
    ),
    "not_finite": FailureClass(
        Layer.AGENT,
        "numbers of a training are not finite any more (NaN or infinity)",
        "the training diverged or an input is broken: a learning rate that is too high, a division by zero, a number "
        "format that overflows, a damaged checkpoint, or rows without a target",
        "find the first step whose loss or gradient norm is not finite, and go back to the checkpoint before it; then "
        "lower the learning rate, clip gradients, train in bf16 instead of fp16, and look at that step's rows",
    ),
    "gpu_assert": FailureClass(
        Layer.MODEL_SERVING,
        "code on the GPU stopped at a check of its own",
        "an index or a size out of range reached the GPU (a token id, a label, the parts of an image): a wrong input "
        "or a fault of the program, not of the GPU",
        "find the input that triggers it (the lines before name the kernel and often the request), and run it again "
        "with CUDA_LAUNCH_BLOCKING=1; if the input is right, try another version of the program",
    ),
    "port_denied": FailureClass(
        Layer.CONFIG,
        "a server may not listen on its port",
        "ports below 1024, or this address, need rights that the program does not have",
        "choose a port above 1024, or grant the right (setcap cap_net_bind_service, the container's capabilities)",
    ),
    "training_oom": FailureClass(
        Layer.INFRA,
        "a program has too little GPU memory",
        "the model, its optimizer and the activations of a batch do not fit into the GPU's memory, or others use it",
        "lower the batch size or the sequence length, enable gradient checkpointing or sharding, add GPUs, or free the "
        "GPU memory that others use (nvidia-smi)",
    ),
    "engine_exception": FailureClass(
        Layer.MODEL_SERVING,
        "the model server failed",
        "an error inside the server",
        (
            "read the server's own log before this line; if the message is not about one of your settings, it is a "
            "fault of the server: try another version, or report it to its developers"
        ),
    ),
    "verifier_exception": FailureClass(
        Layer.VERIFIER,
        "the code of an environment failed",
        "an exception in an environment's code",
        "fix the code that the traceback points to",
    ),
    "agent_exception": FailureClass(
        Layer.AGENT, "the agent's code failed", "an exception in an agent's code", "fix the code that it points to"
    ),
    "program_error": FailureClass(
        Layer.AGENT,
        "a program stopped because it does not accept something",
        "its message says what: its input, a setting or its own state",
        "read the message and the code at the named place; change what it names, or the code",
    ),
    "code_exception": FailureClass(
        Layer.AGENT,
        "a fault in a program's own code",
        "the code that the traceback or the message points to is wrong, or does not handle this case",
        "fix the code that the traceback or the message points to",
    ),
}
_SUBJECTS: Final = (
    (
        Layer.MODEL_SERVING,
        re.compile(
            r"(?i)vllm|sglang|litellm|openrouter|tensorrt|trtllm|tritonserver|text.generation|llama|ollama|lmdeploy|/v1/(?:chat"
            r"|completions|models|responses|embeddings)|openai|\bpolicy"
            r"|inference|model[ _-]?server|kv[ _-]cache|checkpoint shard|huggingface/transformers"
        ),
    ),
    (
        Layer.VERIFIER,
        re.compile(
            r"(?i)verif|reward|grad(?:er|ing)|judge|\bscor(?:e|ing)|resources_servers|/envs?/|\benvs?\b"
            r"|environment(?! variables?\b)|tools?\b"
        ),
    ),
    (Layer.SANDBOX, re.compile(r"(?i)sandbox|bwrap|gvisor|firecracker")),
    (Layer.AGENT, re.compile(r"(?i)agent")),
    (Layer.DATA_SCHEMA, re.compile(r"(?i)dataset|jsonl|\brows?\b|(?<=[\w.-])/data/|data\.py|loader")),
)
"""Whose failure it is, by the words in a line and its frames."""
_SYSTEM_PATH: Final = re.compile(r"(?<![\w/])/(?:run|var|dev|proc|sys|etc|\S*spool|tmp/slurm\w*)/")
_BY_SUBJECT: Final = frozenset(
    {
        *(BETWEEN_PROCESSES - {"container", "collective_failed", "data_unreadable", "ray_down"}),
        "code_exception",
        "program_error",
    }
)
_NOT_FREE: Final = re.compile(
    r"(?i)\binsufficient\b|nodes are available|unschedulable|not enough (?:nodes|resources|slots)"
    r"|no (?:available )?capacity|stockout|ZONE_RESOURCE|InsufficientInstance"
)
"""What was asked for exists, and is not free."""
_OF_MACHINE: Final = {"command_missing": _SYSTEM_PATH, "scheduler_refused": _NOT_FREE}
"""Words with which a class of failures is about the machine, not about what was asked of it."""
_STARTING: Final = re.compile(
    r"(?i)\b(?:register\w*|join\w*|rendezvous|mount\w*|boot\w*|attach\w*|ranks?|nodes?|process(?:es)?|pods?|volumes?)\b"
)
"""Processes and hosts that did not come up in time: nothing that less load would help."""
_RESTORING: Final = re.compile(
    r"(?i)\bresum(?:e|ed|ing)\b|\brestor|\bckpt|checkpoint_(?:connector|io|utils)|load_checkpoint"
)
"""Code that continues an earlier run from its checkpoint."""
_DAEMON: Final = re.compile(r"\b(?:kubelet|containerd|dockerd|slurm\w*|systemd|kernel)\b")
"""Programs of the node itself."""
_INSTALLED: Final = re.compile(r"(?i)\S*/(?:site|dist)-packages/|\S*/lib/python3[^/]*/")


def class_of(failure_class: str | None) -> FailureClass | None:
    if failure_class in OWN:
        return OWN[failure_class]
    known = SIGNATURES.get(failure_class or "")
    return FailureClass(known.layer, known.symptom, known.cause, known.action) if known is not None else None


def subject_of(text: str) -> Layer | None:
    """The layer whose things a text names."""
    own = _INSTALLED.sub("", text.replace("\\", "/"))
    return next((layer for layer, words in _SUBJECTS if words.search(own)), None)


def _own_layer(failure_class: str, text: str, layer: Layer, of_log: Layer) -> Layer:
    """The layer of a class that is not about any program."""
    if failure_class == "gpu_assert":
        return of_log  # its words are those of GPU code
    if failure_class == "weights_mismatch" and _RESTORING.search(text):
        return Layer.CACHE_RESUME
    is_of_model = failure_class == "throttled" and subject_of(text) is Layer.MODEL_SERVING
    return Layer.MODEL_SERVING if is_of_model else layer


def layer_of(failure_class: str, text: str, of_log: Layer = Layer.INFRA) -> Layer:
    """The layer of a failure: of its class, or of its subject if the class may concern any program.

    `of_log`: the layer of the program that wrote the line.
    """
    known = class_of(failure_class)
    assert known is not None
    of_machine = _OF_MACHINE.get(failure_class)
    if of_machine is not None and of_machine.search(text):
        return Layer.INFRA
    if failure_class not in _BY_SUBJECT:
        return _own_layer(failure_class, text, known.layer, of_log)
    if failure_class == "timed_out" and (_STARTING.search(text) or _DAEMON.search(text)):
        return Layer.INFRA
    subject = subject_of(text)
    if failure_class in {"code_exception", "program_error"}:
        return subject if subject in {Layer.VERIFIER, Layer.DATA_SCHEMA, Layer.AGENT} else Layer.AGENT
    if subject is None and of_log is not Layer.INFRA:
        return of_log
    return subject or (Layer.INFRA if known.layer is Layer.MODEL_SERVING else known.layer)
