"""The rule about logs without their run: the line that says why, what it means, and how certain that is."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gymnast.doctor.class_support import is_supported
from gymnast.doctor.failure_classes import OWN, class_of, layer_of, subject_of
from gymnast.doctor.failure_lines import names_bug
from gymnast.doctor.findings import Confidence, Evidence, Finding
from gymnast.doctor.line_roles import Role, advice_in, headline_of
from gymnast.doctor.provenance import own_words
from gymnast.doctor.root_cause import find_failures
from gymnast.doctor.rules.access_logs import ID as REQUESTS_REJECTED
from gymnast.doctor.rules.logs import hit_of, owner_of
from gymnast.doctor.rules.rule import Rule
from gymnast.doctor.signatures import ROOT_WEIGHT, SIGNATURES
from gymnast.doctor.system_errors import HARD, is_ambiguous
from gymnast.doctor.tracebacks import is_frame
from gymnast.doctor.vocabulary import guess_class
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.doctor.facts import Facts
    from gymnast.doctor.failure_lines import FailureLine

_MAX_SHOWN: Final = 3
_OTHER_WEIGHT: Final = 60
_FIRST: Final = -1.0
_NEAR_LINES: Final = 300
_NEAR_S: Final = 900.0
"""Within these, a failure is taken to follow from the first one."""
_LAST_WORDS: Final = 60
"""Lines after the failure that ends a log: its traceback, and what is said while it stops."""
_ENDS_JOBS: Final = frozenset({"time_limit", "preempted", "node_lost", "job_cancelled"})
"""The scheduler's own verdict."""
_REFUSALS: Final = frozenset({"ValueError", "AssertionError", "ValidationError"})
"""What libraries raise if they are given something that they do not accept."""
_COMMON: Final = frozenset({"command_missing", "permission", "not_ready", "module_missing", "key_refused"})
"""Words that occur in many failures: never certain."""
_SETTING: Final = re.compile(
    r"(?i)--?\w|options?\b|arg(?:ument)?s?\b|flags?\b|settings?\b|config|param|values?\b|fields?\b|keys?\b|names?\b|types?\b"
    r"|sizes?\b|length|dtype|models?\b|support|number|version|format|urls?\b|device|mode\b|template|syntax|trust_remote|\w=\S|[`\[]|_"
)
"""What a message about a setting names."""
_SERVER_PACKAGES: Final = frozenset({"vllm", "sglang", "tensorrt_llm", "lmdeploy", "text_generation_server", "fastapi"})
"""Packages through which a model server's code is called."""
_PANIC: Final = re.compile(r"^panic: |\bpanicked at\b")
_HARDWARE: Final = re.compile(r"(?i)\bXid\b|\bECC\b|NVLink|off the bus|GPU is lost|hardware")
"""What only a GPU that is broken reports: programs cause the other errors of GPUs as well."""
_FROM_LOGS: Final = frozenset({*SIGNATURES, *OWN, "unknown_failure", REQUESTS_REJECTED})


def settle(facts: Facts, findings: list[Finding]) -> list[Finding]:
    """Findings from logs, with the root cause first and what follows from it below. Of a run, its records say more."""
    failures = failures_in(facts) if is_settled(facts) and not facts.is_complete else []
    if not failures:
        return findings
    finding = explain_failure(facts, failures)
    others = [replace(other, explains=other.explains - {finding.id}) for other in findings if other.id != finding.id]
    apart = _independent(failures)
    following = {other.id for other in others if other.id in _FROM_LOGS} - apart
    others = [replace(other, confidence=_at_most_medium(other)) if other.id in apart else other for other in others]
    return [replace(finding, explains=frozenset(following)), *others]


def is_settled(facts: Facts) -> bool:
    """True if there are only logs to judge by, and none of our own messages in them, which say more."""
    return facts.run is None and not facts.logs.user_errors and not facts.logs.deaths


def _independent(failures: Sequence[FailureLine]) -> set[str | None]:
    """The classes of causes that do not follow from the first one: long after it, or in another log without times."""
    first = failures[0]
    return {line.failure_class for line in failures if line.role is Role.CAUSE and not _follows(line, first)}


def _follows(line: FailureLine, first: FailureLine) -> bool:
    if line.quote.file == first.quote.file and abs(line.quote.line - first.quote.line) <= _NEAR_LINES:
        return True
    return line.at is not None and first.at is not None and abs(line.at - first.at) <= _NEAR_S


def _at_most_medium(finding: Finding) -> Confidence:
    return Confidence.MEDIUM if finding.confidence is Confidence.HIGH else finding.confidence


def failures_in(facts: Facts) -> list[FailureLine]:
    """The lines that report failures, the cause first."""
    hits = [(name, hit) for name, signature in SIGNATURES.items() if (hit := hit_of(signature, facts)) is not None]
    return find_failures(facts.logs, hits)


def explain_failure(facts: Facts, failures: Sequence[FailureLine]) -> Finding:
    """The failure that the logs tell about, by its cause."""
    first = failures[0]
    failure_class, is_guess = _class_of_line(first, facts)
    is_guess = is_guess or (failure_class == first.failure_class and not is_supported(first, failures))
    text = " ".join((first.quote.text, first.exception.own_frame or first.exception.frame if first.exception else ""))
    known = class_of(failure_class)
    headline = _headline(first)
    if failure_class in {None, "bad_setting"} and is_guess | (failure_class is None) and _stops_itself(first, facts):
        failure_class, is_guess, known = "program_error", False, class_of("program_error")
    if failure_class is None or known is None:
        subject = subject_of(text) or _subject_of_end(first, facts)
        return _unknown(facts, failures, subject or _layer_of_unknown(first, facts), headline)
    layer = layer_of(failure_class, text, _layer_of_log(first, facts))
    symptom = f"probably {known.symptom}: {headline}" if is_guess else f"{known.symptom}: {headline}"
    return Finding(
        failure_class,
        layer,
        symptom,
        _cause(first, known.cause if first.is_known else f"see the quoted line; usually {known.cause}"),
        _action(first, failure_class, known.action, facts, is_guess=is_guess),
        tuple(_evidence(failures)),
        Confidence.LOW if is_guess else _confidence(first, failures, facts),
        facts.unexplained,
        weight=ROOT_WEIGHT if first.role is Role.CAUSE else _OTHER_WEIGHT,
        order=_FIRST,
    )


def _layer_of_log(line: FailureLine, facts: Facts) -> Layer:
    """The layer of the program that wrote a log, by its content."""
    return Layer.MODEL_SERVING if line.quote.file in facts.logs.model_servers else Layer.INFRA


def _subject_of_end(line: FailureLine, facts: Facts) -> Layer | None:
    """Whose code ran, by the frames with which a log ends that breaks off within a traceback."""
    tails = [end.tail for end in facts.logs.ends if end.last is not None and end.last.file == line.quote.file]
    frames = [text for tail in tails for text in tail if any(is_frame(more.encode()) for more in tail)]
    return subject_of(" ".join(frames)) if frames else None


def _layer_of_unknown(line: FailureLine, facts: Facts) -> Layer:
    """The likely layer of a failure without a class: what a program's own code raises is most often its own fault."""
    layer, error = _layer_of_log(line, facts), line.exception
    is_own = error is not None and error.own_frame != "" and error.own_frame == error.frame
    is_bug = is_own or names_bug(line.message) or _PANIC.search(line.message) is not None
    return Layer.AGENT if layer is Layer.INFRA and is_bug else layer


def _class_of_line(line: FailureLine, facts: Facts) -> tuple[str | None, bool]:
    """The class of a failure, and whether it is only a guess from the nouns in its message."""
    if line.failure_class == "bad_setting" and not line.is_known and not _SETTING.search(line.message):
        return None, False
    if line.failure_class is not None and line.failure_class != "code_exception":
        return "training_oom" if line.failure_class == "cuda_oom" and _is_training(
            line, facts
        ) else line.failure_class, False
    owner = owner_of(line.exception, facts) if line.exception is not None else None
    if owner is not None:
        return owner[0], False
    if line.failure_class is None and line.exception is not None and line.quote.file in facts.logs.model_servers:
        return "engine_exception", False
    if line.failure_class is not None:
        return line.failure_class, False
    return _guess(line)


def _guess(line: FailureLine) -> tuple[str | None, bool]:
    guess = guess_class(own_words(line.quote.text)) if line.role is not Role.END else None
    error = line.exception
    if guess is None and error is not None and error.type in _REFUSALS and error.message and not error.own_frame:
        guess = "bad_setting"
    return guess, guess is not None


def _stops_itself(line: FailureLine, facts: Facts) -> bool:
    """True for a refusal of a program's own code, or of what it calls, with which its log ends."""
    error = line.exception
    if error is None or not error.own_frame or not error.message or line.quote.file in facts.logs.model_servers:
        return False
    is_own = error.type in _REFUSALS and subject_of(error.own_frame) is not Layer.MODEL_SERVING
    last = next((end.last.line for end in facts.logs.ends if end.last and end.last.file == line.quote.file), 0)
    return is_own and last - line.last_line <= _LAST_WORDS


def _is_training(line: FailureLine, facts: Facts) -> bool:
    """True for a program that is no model server, by what its log contains or by the code that failed."""
    error = line.exception
    if line.quote.file in facts.logs.model_servers:
        return False
    is_script = error is not None and bool(error.own_frame) and subject_of(error.own_frame) is not Layer.MODEL_SERVING
    is_script = is_script and not _SERVER_PACKAGES.intersection(error.packages if error is not None else ())
    return line.quote.file in facts.logs.trainers or is_script


def _headline(line: FailureLine) -> str:
    error = line.exception
    if error is not None and not error.message and error.source:
        return f"{error.type} in {error.frame.rpartition('/')[2]}: {error.source}"
    return headline_of(line.quote.text)


def _cause(line: FailureLine, cause: str) -> str:
    place = f"{line.quote.file}:{line.quote.line}"
    return f"{cause} (first error: {place})"


def _action(line: FailureLine, failure_class: str, action: str, facts: Facts, *, is_guess: bool) -> str:
    error = line.exception
    if failure_class in {"code_exception", "verifier_exception", "agent_exception"} and error is not None:
        frame = error.own_frame or error.frame
        return f"fix {frame or 'the code that the traceback points to'}, then run it again"
    advice = advice_in(line.quote.text)
    action = f'the line advises: "{advice}"; else {action}' if advice else action
    return f"{action}; {_commands(facts, line)}" if is_guess else action


def _is_proved(first: FailureLine, failures: Sequence[FailureLine], facts: Facts) -> bool:
    """True if the log shows that this ended the work: a process ends after it, or the log itself does."""
    last = next((end.last.line for end in facts.logs.ends if end.last and end.last.file == first.quote.file), 0)
    if last - first.quote.line <= _LAST_WORDS or first.failure_class in _ENDS_JOBS:
        return True
    return any(line.role is Role.END and _follows(line, first) for line in failures)


def _confidence(first: FailureLine, failures: Sequence[FailureLine], facts: Facts) -> Confidence:
    """High only for a known fault that ended the work and has no rival; low for an end without a reason."""
    known = SIGNATURES.get(first.failure_class or "")
    if known is not None and known.is_vague:
        return Confidence.LOW
    if not first.is_known or known is None or first.role is not Role.CAUSE or first.failure_class in _COMMON:
        return Confidence.MEDIUM
    if is_ambiguous(first.message, first.failure_class or ""):
        return Confidence.MEDIUM
    if first.failure_class == "gpu_fault" and not _HARDWARE.search(first.message):
        return Confidence.MEDIUM
    if not _is_proved(first, failures, facts):
        return Confidence.MEDIUM
    rivals = {line.failure_class for line in failures if line.role is Role.CAUSE} - {first.failure_class}
    return Confidence.MEDIUM if rivals and first.failure_class not in HARD else known.confidence


def _evidence(failures: Sequence[FailureLine]) -> list[Evidence]:
    first = failures[0]
    earlier = sorted(failures[1:], key=lambda line: line.position)
    context = [Evidence("just before it", quote=first.before)] if first.before and first.exception is None else []
    evidence = [
        Evidence(line.what, line.quote.file, line.quote.line, count=line.count, quote=line.quote.text)
        for line in (first, *earlier[: _MAX_SHOWN - 1 - len(context)])
    ]
    return [evidence[0], *context, *evidence[1:]]


def _unknown(facts: Facts, failures: Sequence[FailureLine], layer: Layer, headline: str) -> Finding:
    first, logs = failures[0], facts.logs
    searched = f"no known fault: none of {len(SIGNATURES)} signatures explains it (checked: {logs.lines} lines, "
    return Finding(
        "unknown_failure",
        layer,
        f"something failed here that doctor does not recognize: {headline}",
        f"unknown; the first error in time is at {first.quote.file}:{first.quote.line}, and its words suggest "
        f"{layer.value}",
        _commands(facts, first),
        (*_evidence(failures), Evidence(f"{searched}{len(logs.files)} logs)")),
        Confidence.LOW,
        facts.unexplained,
        weight=10,
        order=first.position,
    )


def _commands(facts: Facts, line: FailureLine) -> str:
    """The two commands that would tell more."""
    start = max(1, line.quote.line - 20)
    context = f"sed -n '{start},{line.quote.line + 20}p' {line.quote.file}"
    second = "collect one task alone: the same command with --limit 1 --output one.jsonl"
    if facts.run is None:
        second = f"diagnose it together with its run: gymnast doctor RUN --logs {line.quote.file}"
    return f"read the lines around it: {context}; then {second}"


RULES: Final = tuple(
    Rule(name, known.layer, 1, known.symptom.capitalize() + ".", known.action, lambda _facts: None)
    for name, known in OWN.items()
    if name not in {"engine_exception", "verifier_exception", "agent_exception", "code_exception"}
)
"""Classes that only this module reports; `settle` applies them together."""
