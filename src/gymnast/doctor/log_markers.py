"""Log lines that are not faults but matter for reading logs: starts, shutdowns, advice, load; and the keywords.

Every line that matches a signature or a marker contains one of the `KEYWORDS`.
"""

from __future__ import annotations

import re
from typing import Final

SHUTDOWN: Final = re.compile(
    rb"(?i:received sigterm|signal=sigterm|\[shutdown\]|"
    rb"received signal 15|got sigterm|sigterm received|shutting down|CANCELLED AT"
    rb"|Application shutdown complete|KeyboardInterrupt)"
)
"""Later lines may be consequences of the shutdown."""
STARTED: Final = re.compile(
    rb"Started server process|startup complete|API server version|collecting \d+ rollouts|Started a local Ray instance"
)
"""A new start, in a log shared by several invocations."""
ADVICE: Final = re.compile(rb"(?i:common causes|can cause|\bconsider\b|potential root causes|this may be caused)")
"""Advice about possible causes is not evidence of them."""
SATURATED: Final = re.compile(rb"Running: (\d+) reqs, Waiting: (\d+) reqs")
"""vLLM under full load: not a fault."""
BOUNDARY: Final = re.compile(
    rb"\[request-boundary\] rollout=\S+ to=.{1,200}? at=.{1,300}? (?:status=[45]\d\d|failure=)"
)
"""A call across a boundary that got an error reply or none."""
REQUEUED: Final = re.compile(rb"CANCELLED AT \S+ DUE TO JOB REQUEUE")
"""The job is requeued: its steps end, but it was not cancelled."""
JOB_CANCELLED: Final = re.compile(rb"\*\*\* JOB \S+ ON \S+ CANCELLED AT (?!\S+ DUE TO JOB REQUEUE)")
"""The job itself was cancelled, not only a step."""
KEYWORDS: Final = (
    *(b"error", b"traceback", b"kill", b"cancelled", b"memory", b"fail", b"space left", b"quota", b"read-only"),
    *(b"too many open", b"already", b"refuse", b"not found", b"not_found", b"no such", b"inner server", b"missing"),
    *(b"unprocessable", b"unauthorized", b"grammar", b"outlines", b"denied", b"ready within", b"timed out"),
    *(b"dead", b"nccl", b"sigterm", b"shut", b"exit code", b"exit status", b"exited with", b"bad_alloc"),
    *(b"maximum", b"max_model", b"does not", b"could not", b"cannot connect", b"retries exceeded"),
    *(b"incorrect api", b"api key", b"not known", b"terminated", b"segmentation"),
    *(b"core dumped", b"xid", b"uncorrectable", b"blocked for", b"the configuration has", b"next:", b"where:"),
    *(b"boundary]", b"waiting:", b"started server", b"startup complete", b"api server version", b"collecting "),
    *(b"started a local", b"unsupported"),
)
"""In lower case and without digits."""
