"""Rules for what no other rule explains: a failure that is not recognized, and a log that is not understood.

They only apply if all other findings are symptoms. An honest "unknown" is better than a wrong answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding
from gymnast.doctor.rules.incident import explain_failure, failures_in, is_settled
from gymnast.doctor.rules.rule import rule
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.doctor.facts import Facts


@rule(Layer.INFRA, 1, "Read the lines around the first error.")
def unknown_failure(facts: Facts) -> Finding | None:
    """Something failed that no other rule recognizes; the layer is a guess."""
    failures = [] if facts.is_complete or is_settled(facts) else failures_in(facts)
    return explain_failure(facts, failures) if failures else None


@rule(Layer.INFRA, 1, "Read its end, and name the run it belongs to.")
def log_not_understood(facts: Facts) -> Finding | None:
    """A log shows neither a known fault nor normal operation, or is empty."""
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
    finding = unknown_failure.apply(facts)
    if finding is None and not symptoms:
        finding = log_not_understood.apply(facts)
    return [finding] if finding is not None else []


RULES: Final = (unknown_failure, log_not_understood)
