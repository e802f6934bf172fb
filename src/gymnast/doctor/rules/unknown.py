"""Rules for what no other rule explains: a failure that is not recognized, and a log that is not understood.

They only apply if all other findings are symptoms. An honest "unknown" is better than a wrong answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.failure_classes import class_of
from gymnast.doctor.findings import Confidence, Evidence, Finding, Note, quote_line
from gymnast.doctor.log_lines import hints_at_failure, is_normal, reports_failure
from gymnast.doctor.rules.incident import explain_failure, failures_in, is_settled
from gymnast.doctor.rules.rule import rule
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.doctor.facts import Facts, LogEnd
    from gymnast.doctor.rules.rule import NoteRule

_FEW_LINES: Final = 3
_FEW_BYTES: Final = 2000


@rule(Layer.INFRA, 1, "Read the lines around the first error.")
def unknown_failure(facts: Facts) -> Finding | None:
    """Something failed that no other rule recognizes; the layer is a guess."""
    failures = [] if facts.is_complete or is_settled(facts) else failures_in(facts)
    return explain_failure(facts, failures) if failures else None


@rule(Layer.INFRA, 1, "Read its end, and name the run it belongs to.")
def log_not_understood(facts: Facts) -> Finding | None:
    """A log ends with words of failure that no rule knows, has no form that logs have, or is empty."""
    if (
        facts.run is not None
        or facts.servers
        or facts.job is not None
        or facts.live is not None
        or not facts.logs.files
    ):
        return None
    odd = _odd_ends(facts)
    if len(odd) < len(facts.logs.files):
        return None
    file, end = odd[0]
    is_explained = bool(facts.logs.overcome) or not (_speaks_of_trouble(end) or _is_foreign(end, facts))
    if end.last is not None and is_explained:
        return None
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


def _odd_ends(facts: Facts) -> list[tuple[str, LogEnd]]:
    """The logs that do not end in normal operation."""
    return [(file, end) for file, end in zip(facts.logs.files, facts.logs.ends, strict=False) if not end.is_normal]


def _speaks_of_trouble(end: LogEnd) -> bool:
    """True if one of the last lines of a log has words of failure."""
    return any(hints_at_failure(line.encode()) or reports_failure(line.encode()) for line in end.tail)


def _is_foreign(end: LogEnd, facts: Facts) -> bool:
    """True for a few lines of which none has a form that logs have."""
    is_short = facts.logs.lines <= _FEW_LINES and facts.logs.size_bytes <= _FEW_BYTES
    return is_short and not any(is_normal(line.encode()) for line in end.tail)


@rule(Layer.INFRA, 1, "Find out why its program stopped writing.")
def log_breaks_off(facts: Facts) -> Finding | None:
    """A log breaks off in the middle of a line, and says nothing about a failure."""
    if facts.run is not None or facts.servers or facts.job is not None or facts.live is not None:
        return None
    cut = next((end.last for end in facts.logs.ends if end.is_cut and end.last is not None), None)
    if cut is None:
        return None
    return Finding(
        "log_breaks_off",
        Layer.INFRA,
        "the log breaks off in the middle of a line; nothing before it failed",
        "unknown: its program was killed, its host stopped or lost the disk, the copy is incomplete, or it is still "
        "being written",
        f"check that the copy is complete (ls -l {cut.file}); then ask what ended the program at that time: "
        "sacct -j JOB --format=State,ExitCode, or dmesg -T on its host",
        (Evidence("its last line", cut.file, cut.line, quote=cut.text),),
        Confidence.LOW,
    )


@rule(Layer.INFRA, 1, "Find out what its program waits for.")
def log_stalls(facts: Facts) -> Finding | None:
    """A log ends with minutes in which its program only says that it waits for something."""
    if facts.run is not None or facts.servers or facts.job is not None or facts.live is not None:
        return None
    first = next((end.stall for end in facts.logs.ends if end.stall is not None), None)
    if first is None:
        return None
    return Finding(
        "log_stalls",
        Layer.MODEL_SERVING if first.file in facts.logs.model_servers else Layer.INFRA,
        f"for minutes, until the end of its log, a program only waits: {first.text}",
        "unknown: what it waits for hangs, ended or needs longer; a lock may be left over from a killed process",
        "find out what it waits for: read the lines before the first of these, and look at the other processes "
        "(py-spy dump --pid PID, nvidia-smi, their logs)",
        (Evidence("the first of its last lines", first.file, first.line, quote=first.text),),
        Confidence.LOW,
    )


def interrupted(facts: Facts) -> Finding | None:
    """A log that ends with a traceback of the signal that stopped its program, without a word that it was done.

    An interrupt without a message is a user's own Ctrl-C.
    """
    if facts.run is not None or facts.servers or facts.job is not None or facts.live is not None:
        return None
    known = class_of("terminated")
    ends = {end.last.file: end for end in facts.logs.ends if end.last is not None and not end.is_done}
    for error in facts.logs.exceptions:
        end = ends.get(error.end.file)
        if known is None or end is None or end.last is None:
            continue
        is_signal = error.type == "KeyboardInterrupt" and error.message != ""
        if is_signal and end.last.line == max(error.last_line, error.end.line):
            return Finding(
                "terminated",
                known.layer,
                f"{known.symptom}: {error.end.text}",
                f"{known.cause}; nothing failed before",
                known.action,
                (Evidence("its last line", error.end.file, end.last.line, quote=error.end.text),),
                Confidence.LOW,
            )
    return None


def not_finite(facts: Facts) -> Finding | None:
    """A log that ends with reports of a training whose loss or gradients are not finite, and with no error."""
    known = class_of("not_finite")
    last = next((end.not_finite for end in facts.logs.ends if end.not_finite is not None), None)
    if known is None or last is None or facts.run is not None:
        return None
    return Finding(
        "not_finite",
        known.layer,
        known.symptom,
        known.cause,
        known.action,
        (Evidence("one of its last lines", last.file, last.line, quote=last.text),),
        Confidence.MEDIUM,
    )


def explain_unknown(facts: Facts, symptoms: Sequence[Finding]) -> list[Finding]:
    """What to say if there are only symptoms, or nothing at all."""
    finding = unknown_failure.apply(facts)
    if finding is None and not symptoms:
        finding = (
            interrupted(facts)
            or not_finite(facts)
            or log_stalls.apply(facts)
            or log_breaks_off.apply(facts)
            or log_not_understood.apply(facts)
        )
    return [finding] if finding is not None else []


def errors_overcome(facts: Facts) -> Note | None:
    """Errors that did not matter: work went on after them, or the log ends well."""
    lines = facts.logs.overcome
    if not lines:
        return None
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    return Note("errors_overcome", f"work went on after this error, so it is not blamed: {quote_line(lines[0])}{more}")


def log_says_little(facts: Facts) -> Note | None:
    """A log without words of failure that does not say either that its program works."""
    odd = _odd_ends(facts)
    if facts.run is not None or facts.servers or facts.job is not None or facts.live is not None or not odd:
        return None
    end = next((end.last for _, end in odd if end.last is not None), None)
    if end is None or facts.logs.failure_lines:
        return None
    return Note(
        "log_says_little",
        f"no line of {end.file} reports a failure, and none says that the work is done; its last line: "
        f"{quote_line(end.text)}",
    )


NOTES: Final[tuple[NoteRule, ...]] = (errors_overcome, log_says_little)
RULES: Final = (unknown_failure, log_stalls, log_breaks_off, log_not_understood)
