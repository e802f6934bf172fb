"""Log lines that matter for reading logs: starts, shutdowns, advice, load, the ends of components; and the keywords.

Every line that matches a signature or a marker contains one of the `KEYWORDS`.
"""

from __future__ import annotations

import re
from typing import Final

from gymnast.doctor.facts import ComponentDeath, Quote
from gymnast.doctor.findings import quote_line

_WHILE_STARTING: Final = re.compile(
    rb"^\[(?P<name>[^\]\s]+)\.\d+\] (?P=name)(?: \((?:part|replica) \d+\))? "
    rb"(?:(?:exited with code \d+|was killed by \S+) while starting"
    rb"|was not ready within .*\)|cannot be started: .*)(?: after \d+ restarts)?$"
)
_WHILE_RUNNING: Final = re.compile(
    rb"^\[(?P<name>(?!worker\.)[^\]\s]+)\.\d+\] (?P=name)(?: \((?:part|replica) \d+\))? "
    rb"(?:exited with code \d+|was killed by \w+)(?: after \d+ restarts)?$"
)
"""Excludes workers, which may end with any exit code."""
_BY_SCRIPT: Final = re.compile(rb"gymnast: component (?P<name>\S+) ended \(exit code (?!70\))\d+\) before \S+ did")
"""Excludes 70: it was not started because another component died, which is reported itself."""
_OWN_LOG: Final = re.compile(r"last lines of (.+):$")
_ERROR: Final = re.compile(r"\b\w*(?:Error|Exception)\b(?:: |$)|out of memory|No space left")
_TAIL_LINES: Final = 120
SHUTDOWN: Final = re.compile(
    rb"(?i:received sigterm|signal=sigterm|\[shutdown\]|"
    rb"received signal 15|got sigterm|sigterm received|shutting down|CANCELLED AT"
    rb"|Application shutdown complete|KeyboardInterrupt|graceful\w* (?:exit|stop|shut|terminat))"
)
"""Later lines may be consequences of the shutdown."""
STARTED: Final = re.compile(
    rb"Started server process|startup complete|\bversion \S+ started\b"
    rb"|API server version|collecting \d+ rollouts|Started a local Ray instance"
)
"""A new start, in a log shared by several invocations."""
ADVICE: Final = re.compile(
    rb"(?i:common causes|possible (?:root )?(?:causes|reasons)|can cause|\bconsider\b|potential root causes"
    rb"|this may be caused|might be (?:incorrect"
    rb"|asynchronously)|^for debugging|^compile with|the above exception was the direct cause"
    rb"|during handling of the above|to enable device-side|^\s*note: "
    rb"|(?:^|[\])] )to (?:add|avoid|disable|silence|suppress|fix|allow)\b[^.\n]{0,80}, (?:call|use|run|set|pass)\b"
    rb")"
)
"""Advice about possible causes is not evidence of them."""
SATURATED: Final = re.compile(rb"Running: (\d+) reqs, Waiting: (\d+) reqs")
"""vLLM under full load: not a fault."""
BOUNDARY: Final = re.compile(
    rb"\[request-boundary\] rollout=\S+ to=(?!\S+ GET /tools ).{1,200}? at=.{1,300}? (?:status=[45]\d\d|failure=)"
)
"""A call across a boundary that got an error reply or none. Servers of NeMo Gym have no list of tools: 404 is fine."""
REQUEUED: Final = re.compile(rb"CANCELLED AT \S+ DUE TO JOB REQUEUE")
"""The job is requeued: its steps end, but it was not cancelled."""
JOB_CANCELLED: Final = re.compile(rb"\*\*\* JOB \S+ ON \S+ CANCELLED AT (?!\S+ DUE TO JOB REQUEUE)")
"""The job itself was cancelled, not only a step."""
VERIFY_500: Final = re.compile(rb'"POST /(?:verify|seed_session|step|reset)\b[^"]*" 500')
"""In an access log: an environment's server failed."""
SOURCE: Final = re.compile(
    rb"(?:^|\] ?|\) ?)\s{2,}(?:raise |assert |return |except\b.*:\s*$|try:\s*$"
    rb"|File \"|with |self\.|sys\.exit|[\^~]+\s*$|at [\w.$]+\()"
    rb"|called at \S+:\d+:\d+|\.go:\d+(?: \+0x[0-9a-f]+)?\s*$|\bgoroutine \d+ \["
    rb"|^[^\s].{0,80}[\])] {5,}(?!\S+:\d+ +\S+ +[A-Z]{4,} )\S"
)
"""A line of source code or a frame inside a traceback."""
ACCESS: Final = re.compile(rb"(?:HTTP/[\d.]+\"\s+|TCP_[A-Z_]+/)(\d{3})\b")
"""A line of an access log: its status says how a request ended, its other words are the client's."""
JSON_ACCESS: Final = re.compile(
    rb"(?:\"(?:method|path|uri|request_uri|url)\"[^\n]{0,400}?\"status(?:_code)?\"\s*:\s*\"?"
    rb"|\b(?:method|path|uri)=[^\n]{0,300}?\bstatus=)(\d{3})\b"
)
_COUNTED: Final = (
    rb"oom(?:[-_ ]?kills?)?|(?:errors?|fail(?:ed|ures?)|exceptions?|kill(?:ed|s)?|time-?outs?|crash(?:es|ed)?"
    rb"|evict(?:ed|ions)|retries|dropped|lost|missing|rejected|aborted|restarts?)(?:_(?:count|total))?"
)
_LABEL: Final = rb"^(?![^:=\n]*(?-i:\w(?:Error|Exception)\b))[^:=\n]{1,60}[:=]\s*"
COUNT: Final = re.compile(
    rb"(?i:\b(?:" + _COUNTED + rb")[\"']?\s*[=:]?\s*0|0 (?:\w+ )?(?:" + _COUNTED + rb")\b|" + _LABEL + rb"0+\s*$)"
)
"""A count of failures, in a line whose digits are all 0."""
ZERO_COUNT: Final = re.compile(
    rb"(?i:(?<![\w-])(?:"
    + _COUNTED
    + rb")[\"']?\s*[=:]?\s*0\b(?![.:x]\d)|(?<![\w.:-])"
    + rb"(?<!rank )(?<!worker )(?<!gpu )(?<!node )(?<!process )(?<!device )(?<!task )(?<!shard )(?<!stage )"
    + rb"(?<!replica )0 (?:\w+ )?(?:"
    + _COUNTED
    + rb")\b|"
    + _LABEL
    + rb"(?:0+|none|no|n/a|false|off|disabled|\[\]|\{\})\s*$)"
)
"""A count that says that there were none."""
HEDGED: Final = re.compile(
    rb"(?i:\b(?:perhaps|maybe|possibly|could it be|did you)\b[^.!?;\n]{0,80}\?"
    rb"|\[?--[a-z][\w-]*(?:oom|kill|fail|error)[\w-]*|\btest_\w+|\bnode\.kubernetes\.io/[\w-]+\S*"
    rb"|\b(?:if|in case|unless) (?:you|it|this|there|the|an?|any)\b[^.;\n]{0,160}"
    rb"|\bif \w+ (?:is|are) \w+\b|\bpotentially because\b[^.;\n]{0,120}|\bmight (?:run|lead|result)\b[^.;\n]{0,120}"
    rb"|\byou can (?:enable|set|use|try)\b[^.;\n]{0,160}|\bto enable (?:higher|faster|more|better)\b[^.;\n]{0,120})"
)
"""A question or a condition is not an observation; the name of an option is none either."""
SETTINGS: Final = re.compile(
    rb"(?i:^\W*(?:usage(?!: error)|tip|hint|example|help|see also|note|options?|config(?:uration)?|settings?|args"
    rb"|arguments)\b"
    rb"\s*[:=]|^\W*(?:[\w-]+ ){0,3}(?:errors|failures|warnings|exceptions):?\s*$"
    rb"|^\d+\s+\.\.?/[\w./-]+\.(?:s|c|cc|cpp|h): no such file"
    rb"|\b(?:passed|pass|\.\.\. ok)\s*$|^\s+-{1,2}\w[\w-]*(?:[ =]\S+)?\s{2,}\w|\bmeans (?:that|the|it|a)\b"
    rb"|\b(?:server_args|non-default args|engine_args|parsed args|namespace|config)\b\s*[=:(]\s*[\w{(\[])"
)
"""Advice, usage and settings: they name failures that did not happen."""
RESULT: Final = re.compile(rb"(?i:\b(?:reward|score)\b\W{1,4}-?\d)")
"""An item that got its score: a wrong answer is a result, whatever its tests said."""
FAILURE_NOTICE: Final = re.compile(
    rb"^failed -?\d+:\d+ [a-z_]+ at [a-z_]+(?: \(will be retried\))?: |^\s*why it ended: "
    rb"|\banswered \d{3}(?: \([a-z_]+\))?: \S"
)
"""The collector's line about a failed attempt, or an endpoint's reply in it: it repeats a failure record."""

KEYWORDS: Final = (
    *(b"error", b"traceback", b"kill", b"cancelled", b"memory", b"fail", b"space left", b"quota", b"read-only"),
    *(b"too many open", b"already", b"refuse", b"not found", b"not_found", b"no such", b"inner server", b"missing"),
    *(b"unprocessable", b"unauthorized", b"grammar", b"outlines", b"denied", b"ready within", b"timed out"),
    *(b"dead", b"nccl", b"sigterm", b"shut", b"exit code", b"exit status", b"exited with", b"bad_alloc"),
    *(b"maximum", b"max_model", b"does not", b"could not", b"cannot connect", b"retries exceeded"),
    *(b"incorrect api", b"api key", b"not known", b"terminate", b"segmentation"),
    *(b"core dumped", b"xid", b"uncorrectable", b"blocked for", b"the configuration has", b"next:", b"where:"),
    *(b"boundary]", b"waiting:", b"started server", b"startup complete", b"api server version", b"collecting "),
    *(b"started a local", b"unsupported", b"fatal", b"critical", b"panic", b"exception", b"abort", b"assert"),
    *(b"cannot", b"can't", b"couldn't", b"unable", b"invalid", b"must ", b"insufficient", b"mismatch", b"unbound"),
    *(b"crash", b"rejected", b"undefined", b"attempt to", b"severe", b"fehler", b"erreur", b"emerg", b"alert"),
    *(
        b"stale",
        b"evict",
        b"was lost",
        b"low on resource",
        b"upstream",
        b"backoff",
        b"gated",
        b"corrupt",
        b"disconnect",
    ),
    *(b"ray::", b"nxdomain", b"servfail", b"eai_", b"enotfound", b"econn", b"enospc", b"enomem", b"etimedout"),
    *(b"deserializ", b"resource temporarily", b"[e", b"not responding", b"watchdog", b"status="),
    *(
        b"sigabrt",
        b"sigsegv",
        b"sigbus",
        b"raylet",
        b"warning",
        b" died",
        b"caused by",
        b"exceed",
        b"e0000 00:",
        b"f0000 00:",
        b"no solution",
    ),
    *(b"unsatisf", b"not permitted", b"expired", b"conflict", b"limit (", b"limit.", b"preempt", b"reclaim"),
    *(b"bug: ", b"oops: ", b"lockup", b"general protection", b"balance", b"billing", b"credits"),
    *(
        b"doesn't exist",
        b"unreachable",
        b"unknown ",
        b"incompatib",
        b"is not ",
        b"what():",
        b"signal ",
        b"signal=",
        b"reached ",
    ),
    *(b"keyboardinterrupt", b": *** ", b"misconfig", b"not healthy", b"is down"),
)
"""In lower case and without digits."""


def without_hedges(line: bytes) -> bytes:
    """A line without what it only asks, supposes, advises, or counts as zero."""
    return HEDGED.sub(b"", ZERO_COUNT.sub(b"", without_advice(line)))


def without_advice(line: bytes) -> bytes:
    """What a line observes before it gives advice; empty if it only advises."""
    advice = ADVICE.search(line)
    if advice is None:
        return line
    sentence = max(line.rfind(end, 0, advice.start()) for end in (b". ", b"! ", b"; "))
    return line[: sentence + 1]


def death_at(at: Quote, lines: list[bytes], index: int) -> ComponentDeath | None:
    """The death that a line reports, with the end of the component's own log, which follows it."""
    line = lines[index]
    match = _WHILE_STARTING.search(line) or _WHILE_RUNNING.search(line) or _BY_SCRIPT.search(line)
    if match is None:
        return None
    name = match["name"].decode(errors="replace")
    death = ComponentDeath(name, Quote(at.file, at.line, quote_line(line.decode(errors="replace"))))
    prefix, output = f"[{name}.", []
    for further in range(index + 1, min(index + _TAIL_LINES, len(lines))):
        text = lines[further].decode(errors="replace")
        message = text.partition("] ")[2] if text.startswith(prefix) else ""
        if log := _OWN_LOG.match(message):
            death.log = log[1]
        if message.startswith("  | ") and (tail := message[4:].strip()):
            output.append(Quote(at.file, at.line + further - index, tail))
    errors = [quote for quote in output if _ERROR.search(quote.text)]
    if output:
        last = (errors or output)[-1]
        death.last_output = Quote(last.file, last.line, quote_line(last.text))
    return death
