"""What failed model calls have in common: the cause in the table of endpoint errors.

Records have it; for those of NeMo Gym, or of earlier versions, the same table is applied to the body.
"""

from __future__ import annotations

import re
from typing import Final

from gymnast.types.failure import FailureKind
from gymnast.wire.endpoint_errors import Cause, Certainty, diagnose, diagnose_transport

_CAUSES: Final = frozenset(Cause)
_CUT_OFF: Final = re.compile(r"(?i)unexpected end of data|stream ended|broke off|EOF while parsing")
_STATUS: Final = {FailureKind.MODEL_NOT_FOUND: 404, FailureKind.MODEL_ERROR: 500, FailureKind.MODEL_RATE_LIMITED: 429}
"""What a kind implies if no status was recorded."""
_BY_KIND: Final = {
    FailureKind.MODEL_TIMEOUT: Cause.TIMEOUT,
    FailureKind.MODEL_RATE_LIMITED: Cause.RATE_LIMIT,
    FailureKind.MODEL_OVERLOADED: Cause.OVERLOADED,
    FailureKind.MODEL_ERROR: Cause.SERVER_ERROR,
    FailureKind.MODEL_BAD_REPLY: Cause.NOT_AN_ANSWER,
    FailureKind.MODEL_AUTH: Cause.KEY_REFUSED,
    FailureKind.MODEL_NOT_FOUND: Cause.MODEL_NAME,
    FailureKind.MODEL_QUOTA: Cause.QUOTA,
}


def find_cause(kind: FailureKind, message: str, body: str, status: int | None) -> tuple[Cause, Certainty]:
    """The cause of a failure without a recorded one."""
    if kind is FailureKind.MODEL_UNREACHABLE:
        return diagnose_transport(message).cause, Certainty.KNOWN
    if kind is FailureKind.MODEL_BAD_REPLY and _CUT_OFF.search(message):
        return Cause.CONNECTION_LOST, Certainty.KNOWN
    if kind is not FailureKind.MODEL_TIMEOUT:
        diagnosis = diagnose(status or _STATUS.get(kind, 400), body)
        if diagnosis.certainty is not Certainty.STATUS:
            return diagnosis.cause, diagnosis.certainty
    return _BY_KIND.get(kind, Cause.UNRECOGNISED), Certainty.STATUS


def endpoint_flavor(kind: FailureKind, message: str, body: str, status: int | None, cause: str | None) -> str:
    """The flavor of a failed model call: its cause."""
    if cause is not None and cause in _CAUSES:
        return cause
    return find_cause(kind, message, body, status)[0].value
