"""Rules for what no other rule explains: a failure that is not recognized, and a log that is not understood.

They only apply if all other findings are symptoms. An honest "unknown" is better than a wrong answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding
from gymnast.doctor.rules.rule import Rule
from gymnast.doctor.signatures import SIGNATURES
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.doctor.facts import Facts, Quote

_MAX_SHOWN: Final = 3
_HINTS: Final = (
    (Layer.MODEL_SERVING, re.compile(r"(?i)vllm|sglang|tensorrt|triton|engine|checkpoint|weights|kv cache|llm")),
    (Layer.VERIFIER, re.compile(r"(?i)verif|reward|grad(?:e|ing)|resources_servers|judge|tool\b")),
    (Layer.AGENT, re.compile(r"(?i)agent")),
    (Layer.DATA_SCHEMA, re.compile(r"(?i)schema|dataset|jsonl|column|field")),
    (Layer.CONFIG, re.compile(r"(?i)config|option|argument|flag|setting|licen[sc]e|lizenz|unbound variable|env(?:ironment)? var")),
)
"""Words that suggest a layer; without any of them, it is the machinery."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """The first failure in a log."""

    quote: Quote
    what: str
    position: float


def unknown_failure(facts: Facts) -> Finding | None:
    """Something failed, and no rule recognizes it."""
    if facts.is_complete:
        return None
    failures = sorted(_failures(facts), key=lambda failure: failure.position)
    if not failures:
        return None
    first = failures[0]
    layer = _likely_layer(first)
    evidence = [Evidence(failure.what, failure.quote.file, failure.quote.line, quote=failure.quote.text) for failure in failures]
    logs = facts.logs
    searched = f"no known fault: none of {len(SIGNATURES)} signatures explains it (checked: {logs.lines} lines, {len(logs.files)} logs)"
    return Finding(
        "unknown_failure",
        layer,
        "something failed here that doctor does not recognize",
        f"unknown; the first error in time is at {first.quote.file}:{first.quote.line}, and its words suggest {layer.value}",
        _commands(facts, first),
        (*evidence[:_MAX_SHOWN], Evidence(searched)),
        Confidence.LOW,
        facts.unexplained,
        weight=10,
        order=first.position,
    )


def _failures(facts: Facts) -> list[_Failure]:
    """Failures by their level or form; if there are none, lines with words of failure."""
    raised = [
        _Failure(exception.end, f"an exception, raised at {exception.own_frame or exception.frame}", exception.position)
        for exception in facts.logs.real_exceptions
    ]
    certain = [_Failure(event.first, "an error", event.position) for event in facts.logs.events if event.is_certain]
    if raised or certain:
        return [*raised, *certain]
    return [_Failure(event.first, "words of failure", event.position) for event in facts.logs.events]


def _likely_layer(failure: _Failure) -> Layer:
    text = f"{failure.quote.text} {failure.what}"
    return next((layer for layer, words in _HINTS if words.search(text)), Layer.INFRA)


def _commands(facts: Facts, failure: _Failure) -> str:
    """The two commands that would tell more."""
    start = max(1, failure.quote.line - 20)
    context = f"sed -n '{start},{failure.quote.line + 20}p' {failure.quote.file}"
    if facts.run is not None:
        return f"read the lines around it: {context}; then collect one task alone: the same command with --limit 1 --output one.jsonl"
    return f"read the lines around it: {context}; then diagnose it together with its run: gymnast doctor RUN --logs {failure.quote.file}"


def log_not_understood(facts: Facts) -> Finding | None:
    """A log shows neither a failure nor normal operation."""
    if facts.run is not None or facts.servers or facts.job is not None or facts.live is not None or not facts.logs.files:
        return None
    odd = [(file, end) for file, end in zip(facts.logs.files, facts.logs.ends, strict=False) if not end.is_normal]
    if len(odd) < len(facts.logs.files):
        return None
    file, end = odd[0]
    if end.last is None:
        evidence, symptom = Evidence("the file is empty", file), "the log is empty"
        cause = "the program wrote nothing: it did not start, or writes elsewhere"
    else:
        evidence = Evidence("its last lines", file, end.last.line, quote=" ⏎ ".join(end.tail))
        symptom = "doctor does not understand this log: it shows neither a known fault nor normal operation"
        cause = "unknown: no line has a level, a known message or a sign of progress"
    return Finding(
        "log_not_understood",
        Layer.INFRA,
        symptom,
        cause,
        f"read its end: tail -n 50 {file}; then name the run it belongs to: gymnast doctor RUN --logs {file}",
        (evidence,),
        Confidence.LOW,
    )


def explain_unknown(facts: Facts, symptoms: Sequence[Finding]) -> list[Finding]:
    """What to say if there are only symptoms, or nothing at all."""
    finding = unknown_failure(facts)
    if finding is None and not symptoms:
        finding = log_not_understood(facts)
    return [finding] if finding is not None else []


RULES: Final = (
    Rule(
        *("unknown_failure", Layer.INFRA, 1, "Something failed that no other rule recognizes; the layer is a guess."),
        *("Read the lines around the first error.", unknown_failure),
    ),
    Rule(
        *("log_not_understood", Layer.INFRA, 1, "A log shows neither a known fault nor normal operation, or is empty."),
        *("Read its end, and name the run it belongs to.", log_not_understood),
    ),
)
