"""A line that reports a failure: its class and its role, by the vocabulary that programs share."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gymnast.doctor.line_roles import Role, message_of, role_of, role_of_exception
from gymnast.doctor.log_markers import without_hedges
from gymnast.doctor.provenance import own_words
from gymnast.doctor.python_bugs import BUGS, class_of_bug, loads_weights
from gymnast.doctor.signatures import BROAD, REFUSALS, SIGNATURES
from gymnast.doctor.system_errors import (
    BETWEEN_PROCESSES,
    ENDS,
    HARD,
    ORDER,
    classify,
    classify_plain,
    classify_wrapped,
)

if TYPE_CHECKING:
    from gymnast.doctor.facts import LoggedException, Quote

OVERRIDDEN: Final = frozenset({"bad_setting", "install_mismatch", "command_missing", "resource_busy", "module_missing"})
"""Classes with broad vocabulary: a line that reports an end is not their cause."""


BROADEST: Final = frozenset({"bad_setting", "command_missing", "resource_busy"})
_OF_MACHINE: Final = HARD | {"shared_memory"}
"""What is missing or taken is a part of the machine: that says more than that something is."""
TRANSPORT: Final = re.compile(
    r"(?i)NET/(?:IB|Socket|OFI)\b|\bibv_\w+|vendor err|no socket interface|socket\w*Connect\b|Connect to \S+ failed"
    r"|\bmlx5\w*|link (?:is |was |went )?(?:down|broken)|\bport error"
)
"""A line of a collective that names the connection that failed: why, not only that the ranks lost each other."""
_UNHANDLED: Final = re.compile(r"(?i)unhandled (?:cuda|system) error")
"""A collective passes on an error of the GPU or the system, and does not say which."""
_LOST_PEER: Final = frozenset(
    {"EOFError", "BrokenPipeError", "ConnectionResetError", "ConnectionAbortedError", "RemoteDisconnected"}
)
"""Exceptions that say that the other end is gone, even without a message."""
NOTICED: Final = frozenset({"peer_lost", "clients_gone"})
"""What the other end of a connection notices of a failure."""
_DETAIL_CHARS: Final = 130
_MAX_DELAY_S: Final = 7200.0
"""Time until a fault of the machine shows in the logs of others."""
_SOON: Final = 20


@dataclass(frozen=True, slots=True)
class FailureLine:
    """A line that reports a failure, and what it is about."""

    quote: Quote
    what: str
    position: float
    at: float | None
    failure_class: str | None
    """The id of its class: of a signature or of `system_errors`."""
    role: Role
    is_known: bool = False
    """A signature of one fault matches, not only words that programs share."""
    exception: LoggedException | None = None
    count: int = 1
    is_warning: bool = False
    before: str = ""
    """The line that the program printed just before."""
    is_aftermath: bool = False
    """It was noticed after a process is said to have died."""
    last_line: int = 0
    """Where it was reported last."""

    @property
    def message(self) -> str:
        return message_of(self.quote.text)


def line_of_text(
    quote: Quote, what: str, position: float, at: float | None, *, signature: str | None = None, count: int = 1
) -> FailureLine:
    own = _SOURCE_PLACE.sub("", _without_fields(own_words(message_of(quote.text))))
    message = _ERROR_OF_CALL.sub("", without_hedges(own.encode()).decode())
    if signature in BROADEST and not SIGNATURES[signature].pattern.search(message.encode()):
        signature = None
    failure_class, is_known = _class_of_line(message, signature)
    return FailureLine(quote, what, position, at, failure_class, _role(message, failure_class), is_known, count=count)


_ERROR_OF_CALL: Final = re.compile(r"(?i)(?:\berror:?|: |\() ?invalid argument\b[\s.)'\"]*$")
"""The text of an error number with which a call of a library failed: it is about no argument of the program's user."""
_SOURCE_PLACE: Final = re.compile(r"\b[\w./-]+\.(?:cc|cpp|cxx|hpp|rs|go|java|scala|kt|jl|[ch]):\d+\b")
"""A place in the source of a program: its name is not about the failure."""
_ERROR_TYPE: Final = re.compile(r"(?:\w+\.)*([A-Z]\w+(?:Error|Exception))(?:: |$)")
_OTHER_BUGS: Final = frozenset(
    {
        *("NullPointerException", "IllegalStateException", "IllegalArgumentException", "ClassCastException"),
        *(
            "ArrayIndexOutOfBoundsException",
            "IndexOutOfBoundsException",
            "ReferenceError",
            "RangeError",
            "NoMethodError",
        ),
    }
)
"""Those of Java, JavaScript and Ruby."""
_FIELD_NAME: Final = re.compile(r"\b\w+=(?=[\w'\"\[{(.-])")
_MIN_FIELDS: Final = 6


def _without_fields(message: str) -> str:
    """A message that prints the state of something, without the names of its fields: a name is not an observation."""
    return _FIELD_NAME.sub("", message) if len(_FIELD_NAME.findall(message)) >= _MIN_FIELDS else message


def _class_of_line(message: str, signature: str | None) -> tuple[str | None, bool]:
    """The class of a line, and whether a signature of one fault says so."""
    shared = classify_wrapped(message)
    is_wrapper = signature == "server_assert" and shared == "collective_failed"  # it quotes the error that it wraps
    is_open = signature in BROAD or signature == "command_missing"
    is_plain = (is_open and classify_plain(message) is not None) or (signature in BROADEST and shared in _OF_MACHINE)
    if signature is None or is_wrapper or is_plain:
        return shared, False
    if signature == "key_refused" and not _API.search(message):
        return "access_denied", False
    if signature not in BROAD and signature not in BETWEEN_PROCESSES:
        return signature, True
    if shared is None or shared in BETWEEN_PROCESSES or shared in ENDS or shared in BROADEST:
        return signature, False
    if ORDER[shared] < ORDER.get(signature, ORDER["bad_setting"]):
        return shared, False
    return signature, False


_API: Final = re.compile(r"(?i)api[ _-]?key|/v1/|endpoint|openai|refuses our key")


def _role(message: str, failure_class: str | None) -> Role:
    known = SIGNATURES.get(failure_class or "")
    is_cause = failure_class is not None and failure_class not in BETWEEN_PROCESSES and failure_class not in ENDS
    if known is not None and failure_class not in ORDER and failure_class not in REFUSALS:
        is_cause = is_cause and known.is_root
    if failure_class == "collective_failed" and TRANSPORT.search(message):
        return Role.CAUSE
    if _UNHANDLED.search(message):
        return Role.REPORT
    role = role_of(message, is_cause=is_cause and failure_class not in OVERRIDDEN)
    if failure_class in ENDS or failure_class in NOTICED:
        return Role.END
    return Role.CAUSE if role is Role.REPORT and is_cause else role


def names_bug(message: str) -> bool:
    """True for a message in the form of an exception that languages raise themselves: a fault of the code."""
    error = _ERROR_TYPE.match(message)
    return error is not None and (error[1] in BUGS or error[1] in _OTHER_BUGS)


def line_of_exception(error: LoggedException) -> FailureLine:
    line = line_of_text(error.end, "an exception", error.position, error.at, count=error.count)
    return with_exception(line, error)


def with_exception(line: FailureLine, error: LoggedException) -> FailureLine:
    where = error.own_frame or error.frame
    what = f"an exception, raised at {where}" if where else "an exception"
    failure_class, role = line.failure_class, role_of_exception(line.role, line.message)
    if failure_class == "weights_mismatch" and error.own_frame == error.frame and not loads_weights(error):
        failure_class = "code_exception"
    if failure_class is None and error.type in _LOST_PEER:
        failure_class, role = "peer_lost", Role.END
    if failure_class is None and (told := _class_of_details(error)) is not None:
        failure_class, detail = told
        role = Role.CAUSE if role is not Role.END else role
        line = replace(line, quote=replace(line.quote, text=f"{line.quote.text} … {detail[-_DETAIL_CHARS:]}"))
    is_open = failure_class is None or (failure_class in OVERRIDDEN and failure_class != "install_mismatch")
    if is_open and not line.is_known and (own := class_of_bug(error)):
        failure_class, role = own, Role.CAUSE if role is not Role.END else role
    return replace(line, exception=error, what=what, failure_class=failure_class, role=role, last_line=error.last_line)


def _class_of_details(error: LoggedException) -> tuple[str, str] | None:
    """The class that the further lines of an exception's message tell, and that line. The last one says why."""
    for detail in reversed(error.details):
        told = classify(without_hedges(own_words(detail).encode()).decode())
        if told is not None and told not in BROADEST | BETWEEN_PROCESSES | ENDS:
            return told, detail
    return None


def is_followed(line: FailureLine, certain: list[FailureLine]) -> bool:
    """True if something certain failed soon after a line."""
    return any(
        0 < other.quote.line - line.quote.line <= _SOON
        if other.quote.file == line.quote.file
        else line.failure_class in HARD and _seconds_after(line, other) <= _MAX_DELAY_S
        for other in certain
    )


def _seconds_after(line: FailureLine, other: FailureLine) -> float:
    if line.at is None or other.at is None or other.at < line.at:
        return float("inf")
    return other.at - line.at
