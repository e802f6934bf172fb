"""Rules for what no other rule explains: a failure that is not recognized, and a log that is not understood.

They only apply if all other findings are symptoms. An honest "unknown" is better than a wrong answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding
from gymnast.doctor.log_lines import speaks_of_failure
from gymnast.doctor.provenance import own_words
from gymnast.doctor.rules.rule import Rule
from gymnast.doctor.signatures import SIGNATURES
from gymnast.doctor.vocabulary import guess_class
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.doctor.facts import Facts, LogEvent, Quote

_MAX_SHOWN: Final = 3
_STORM: Final = 20
_JUST_BEFORE: Final = 5
_HINTS: Final = (
    (Layer.MODEL_SERVING, re.compile(r"(?i)vllm|sglang|tensorrt|triton|engine|checkpoint|weights|kv cache|llm")),
    (Layer.VERIFIER, re.compile(r"(?i)verif|reward|grad(?:e|ing)|resources_servers|judge|tool\b")),
    (Layer.AGENT, re.compile(r"(?i)agent")),
    (Layer.DATA_SCHEMA, re.compile(r"(?i)schema|dataset|jsonl|column|field")),
    (
        Layer.CONFIG,
        re.compile(r"(?i)config|option|argument|flag|setting|licen[sc]e|lizenz|unbound variable|env(?:ironment)? var"),
    ),
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
    guess = guess_class(own_words(first.quote.text))
    layer = _layer_of(guess) or _likely_layer(first)
    evidence = [
        Evidence(failure.what, failure.quote.file, failure.quote.line, quote=failure.quote.text) for failure in failures
    ]
    logs = facts.logs
    size = f"{logs.lines} lines, {len(logs.files)} logs"
    searched = f"no known fault: none of {len(SIGNATURES)} signatures explains it (checked: {size})"
    place = f"{first.quote.file}:{first.quote.line}"
    known = SIGNATURES.get(guess or "")
    return Finding(
        guess or "unknown_failure",
        layer,
        f"something failed here that doctor does not recognize; probably: {_symptom_of(guess)}"
        if guess
        else "something failed here that doctor does not recognize",
        f"unknown; the first error in time is at {place}, and its words suggest {layer.value}"
        + (f": {known.cause}" if known is not None else ""),
        f"{known.action}; {_commands(facts, first)}" if known is not None else _commands(facts, first),
        (*evidence[:_MAX_SHOWN], Evidence(searched)),
        Confidence.LOW,
        facts.unexplained,
        weight=10,
        order=first.position,
    )


def _symptom_of(guess: str | None) -> str:
    known = SIGNATURES.get(guess or "")
    return known.symptom if known is not None else "the model server failed"


def _layer_of(guess: str | None) -> Layer | None:
    known = SIGNATURES.get(guess or "")
    return known.layer if known is not None else Layer.MODEL_SERVING if guess else None


def _failures(facts: Facts) -> list[_Failure]:
    """Failures by their level or form; if there are none, lines with words of failure."""
    raised = [
        _Failure(exception.end, f"an exception, raised at {exception.own_frame or exception.frame}", exception.position)
        for exception in facts.logs.real_exceptions
    ]
    certain = [_Failure(event.first, "an error", event.position) for event in facts.logs.events if event.is_certain]
    hints = [
        _Failure(event.first, "words of failure", event.position)
        for event in facts.logs.events
        if not event.is_certain and (not event.is_warning or _counts(event, facts))
    ]
    known = [*raised, *certain]
    if not known:
        return hints
    first = min(failure.position for failure in known)
    return [*known, *(hint for hint in hints if 0 < first - hint.position <= _JUST_BEFORE)]


def _counts(event: LogEvent, facts: Facts) -> bool:
    """True for a warning that repeats until the end of its log, or that is the end and speaks of a failure."""
    ends = [end for end in facts.logs.ends if end.last is not None and end.last.file == event.first.file]
    if not any(end.is_warning for end in ends):
        return False
    is_last = any(end.last is not None and end.last.text == event.first.text for end in ends)
    return event.count >= _STORM or (is_last and speaks_of_failure(event.first.text.encode()))


def _likely_layer(failure: _Failure) -> Layer:
    text = f"{failure.quote.text} {failure.what}"
    return next((layer for layer, words in _HINTS if words.search(text)), Layer.INFRA)


def _commands(facts: Facts, failure: _Failure) -> str:
    """The two commands that would tell more."""
    start = max(1, failure.quote.line - 20)
    context = f"sed -n '{start},{failure.quote.line + 20}p' {failure.quote.file}"
    second = "collect one task alone: the same command with --limit 1 --output one.jsonl"
    if facts.run is None:
        second = f"diagnose it together with its run: gymnast doctor RUN --logs {failure.quote.file}"
    return f"read the lines around it: {context}; then {second}"


def log_not_understood(facts: Facts) -> Finding | None:
    """A log shows neither a failure nor normal operation."""
    if (
        facts.run is not None
        or facts.servers
        or facts.job is not None
        or facts.live is not None
        or not facts.logs.files
    ):
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
