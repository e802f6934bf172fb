"""A signature: a pattern of a server's own words, and the cause that it means. And which one wins."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final

from gymnast.wire.endpoint_errors.causes import Cause


@dataclass(frozen=True, slots=True)
class Signature:
    """A pattern, the cause it means, and the server that writes it."""

    cause: Cause
    expression: str
    stack: str
    source: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled when an error is first looked at: most processes never see one."""
        return _compile(self.expression)


@functools.cache
def _compile(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


def make_table(stack: str, source: str, *rows: tuple[Cause | str, ...], flags: str = "is") -> tuple[Signature, ...]:
    """The signatures of one serving stack. A row is a cause and patterns, of which one must match."""
    return tuple(Signature(Cause(cause), f"(?{flags}){'|'.join(patterns)}", stack, source) for cause, *patterns in rows)


PRECEDENCE: Final = (
    Cause.PLAIN_ON_TLS,
    Cause.PROXY_REFUSED,
    Cause.QUOTA,
    Cause.REQUEST_TOO_LARGE,
    Cause.OUTPUT_LIMIT,
    Cause.BAD_TOOL_CALL,
    Cause.CONTENT_FILTER,
    Cause.TOOL_PARSER_MISSING,
    Cause.TOOLS_UNSUPPORTED,
    Cause.TOOL_SCHEMA,
    Cause.IMAGE_UNSUPPORTED,
    Cause.CONTEXT_OVERFLOW,
    Cause.CHAT_TEMPLATE,
    Cause.HISTORY_REFUSED,
    Cause.LORA,
    Cause.ENGINE_DIED,
    Cause.OUT_OF_MEMORY,
    Cause.LOADING,
    Cause.OVERLOADED,
    Cause.GATEWAY_DOWN,
    Cause.RATE_LIMIT,
    Cause.TIMEOUT,
    Cause.SERVER_ERROR,
    Cause.WRONG_DIALECT,
    Cause.KEY_REFUSED,
    Cause.ACCESS_DENIED,
    Cause.MODEL_NAME,
    Cause.PARAMETER_REFUSED,
    Cause.NO_SUCH_PATH,
)
"""The earlier one wins: a specific reason precedes the general words that accompany it."""
