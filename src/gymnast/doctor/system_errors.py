"""Classes of failures by the vocabulary that programs share: error numbers, statuses, signals, exit codes.

Only lines that report a failure are classified with it, so its patterns may be broad. Programs differ in their
sentences, but they pass on the same words of the operating system, the network, the GPU and their parsers. The patterns
are in tables/system_errors.toml.
"""

from __future__ import annotations

import re
from typing import Final

from gymnast.doctor.load_table import join_pattern, load_table

_TABLE: Final = [
    (name, join_pattern(pattern))
    for section in load_table("system_errors").values()
    for name, pattern in section.items()
]
_PATTERNS: Final = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _TABLE)
_PLAIN: Final = _PATTERNS[: len(load_table("system_errors")["plain"])]
BETWEEN_PROCESSES: Final = frozenset(
    {
        *("container", "collective_failed", "service_down", "unreachable", "endpoint_down", "peer_lost", "timed_out"),
        *(
            "upstream_failed",
            "upstream_slow",
            "not_ready",
            "ray_down",
            "server_hang",
            "clients_gone",
            "download_failed",
        ),
        *("model_unloadable", "server_assert", "scheduler_down", "inner_500_no_body", "verifier_exception"),
        "data_unreadable",
    }
)
"""What a program sees of another one, or of its data: often the consequence of a failure there."""
ENDS: Final = frozenset(
    {"process_killed", "process_crashed", "terminated", "engine_dead", "task_refused", "step_failed"}
)
"""How a process ended, not why."""
DEATHS: Final = ENDS - {"terminated", "task_refused", "step_failed"}
"""Ends that nothing asked for."""
HARD: Final = frozenset({"time_limit", "preempted", "oom_kill", "cuda_oom", "disk_full", "gpu_fault", "storage_lost"})
"""Faults of the machine."""
EVEN_WARNINGS: Final = HARD | {"tls", "dns", "access_denied", "throttled", "permission"}
"""Counts even if a line calls it a warning, provided that something failed soon afterwards."""


def classify_plain(message: str) -> str | None:
    """The class of a failure by words that leave no doubt, or None."""
    return next((name for name, pattern in _PLAIN if pattern.search(message)), None)


_ZERO: Final = re.compile(r"\b[a-zA-Z][\w-]*[:=]? 0(?:,|;|$)")
"""A counter of what did not happen."""


def classify(message: str) -> str | None:
    """The class of a failure that a program reports, or None. The earlier entry of the table wins."""
    message = _ZERO.sub("", message)
    return next((name for name, pattern in _PATTERNS if pattern.search(message)), None)


_ERRNO_TEXT: Final = re.compile(
    r"(?i)(?:: |\()(?:connect\w*: )?(connection refused|no such host|no route to host|network is unreachable"
    r"|permission denied|no space left on device|too many open files|connection reset by peer|i/o timeout"
    r"|read-only file system)[\s.)\"'\\]*$"
)
"""The text of an error number at the end of an error that wraps others: it is the reason of all of them."""
_MIN_WRAPS: Final = 2


def classify_wrapped(message: str) -> str | None:
    """The class of an error, by its last part if that is the text of an error number of the system."""
    end = _ERRNO_TEXT.search(message) if message.count(": ") >= _MIN_WRAPS else None
    inner = classify(end[1]) if end is not None else None
    outer = classify(message)
    return inner if inner is not None and outer not in SPECIFIC_PARTS else outer


SPECIFIC_PARTS: Final = HARD | {
    "service_down",
    "container",
    "sandbox_failed",
    "shared_memory",
    "port_denied",
    "port_taken",
}
"""What the beginning of an error may name that its end does not say better."""


def is_ambiguous(message: str, failure_class: str) -> bool:
    """True if the words of a message fit another class about a part of the machine as well."""
    return any(name in _PARTS and name != failure_class and pattern.search(message) for name, pattern in _PATTERNS)


_PARTS: Final = frozenset(
    {"collective_failed", "container", "service_down", "storage_lost", "gpu_fault", "sandbox_failed"}
)


ORDER: Final = {name: number for number, (name, _) in reversed(list(enumerate(_TABLE)))}
