"""Lines that are no fault and yet matter when logs are read: beginnings, ends, advice, load; and the needles.

`NEEDLES` are the bytes without which no line can match a signature or a marker.
"""

from __future__ import annotations

import re
from typing import Final

SHUTDOWN: Final = re.compile(
    rb"(?i:received sigterm|signal=sigterm|\[shutdown\]|"
    rb"received signal 15|got sigterm|sigterm received|shutting down|CANCELLED AT"
    rb"|Application shutdown complete|KeyboardInterrupt)"
)
"""What comes after this in a log may be the consequence of being told to end."""
STARTED: Final = re.compile(
    rb"Started server process|startup complete|API server version|collecting \d+ rollouts|Started a local Ray instance"
)
"""And this begins anew, in a log that several invocations wrote."""
ADVICE: Final = re.compile(rb"(?i:common causes|can cause|\bconsider\b|potential root causes|this may be caused)")
"""Lines that tell what might be are no evidence that it is."""
SATURATED: Final = re.compile(rb"Running: (\d+) reqs, Waiting: (\d+) reqs")
"""vLLM under full load: no fault."""
BOUNDARY: Final = re.compile(
    rb"\[request-boundary\] rollout=\S+ to=.{1,200}? at=.{1,300}? (?:status=[45]\d\d|failure=)"
)
"""A call that crossed a boundary and was answered badly, or not at all."""
REQUEUED: Final = re.compile(rb"CANCELLED AT \S+ DUE TO JOB REQUEUE")
"""The job goes back into the queue: its steps end, and nobody cancelled it."""
JOB_CANCELLED: Final = re.compile(rb"\*\*\* JOB \S+ ON \S+ CANCELLED AT (?!\S+ DUE TO JOB REQUEUE)")
"""The job itself, not only a step of it."""
NEEDLES: Final = (
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
"""In small letters and without digits."""
