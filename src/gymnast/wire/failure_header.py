"""Failure details over HTTP: a header next to the contract's error body, small enough for any client to accept."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.types.failure import FailureDetail, bounded

if TYPE_CHECKING:
    from collections.abc import Mapping

FAILURE_HEADER: Final = "x-gymnast-failure"
_MAX_BYTES: Final = 6000  # HTTP clients commonly reject header fields above 8 KiB

_decoder = msgspec.json.Decoder(FailureDetail)


def encode_failure(detail: FailureDetail) -> str:
    """Encode as a header value; texts are truncated until it fits."""
    limit = 3000
    encoded = _pack(detail)
    while len(encoded) > _MAX_BYTES and limit > 50:
        truncated = msgspec.structs.replace(
            detail,
            message=bounded(detail.message, limit),
            body=bounded(detail.body, limit) if detail.body is not None else None,
            chain=detail.chain[-8:],
        )
        encoded = _pack(truncated)
        limit //= 2
    return encoded


def decode_failure(headers: Mapping[str, str]) -> FailureDetail | None:
    """The failure detail of a reply, or None. An unreadable header is ignored: the body has the error too."""
    value = headers.get(FAILURE_HEADER)
    if value is None:
        return None
    try:
        return _decoder.decode(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError, msgspec.DecodeError):
        return None


def _pack(detail: FailureDetail) -> str:
    return base64.b64encode(msgspec.json.encode(detail)).decode("ascii")
