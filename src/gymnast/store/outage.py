"""Reads from a file system that is away for a while: the read is repeated until it succeeds or patience runs out."""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING, Final, TypeVar

from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
PATIENCE_S: Final = 60.0
_RETRY_S: Final = 0.5
_AWAY: Final = frozenset({
    *(errno.ENOTCONN, errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH),
    *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.ENETDOWN, errno.ENETUNREACH, errno.ESHUTDOWN),
})  # fmt: skip
"""What network file systems answer while their server is away. Anything else is an answer."""


def read_patiently(
    read: Callable[[], T],
    *,
    patience_s: float = PATIENCE_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """The result of `read`, which has no effects. Raises UserError if the file system stays away."""
    deadline = clock() + patience_s
    while True:
        try:
            return read()
        except (OSError, UserError) as error:
            outage = _outage_behind(error)
            if outage is None:
                raise
            if clock() >= deadline:
                raise UserError(
                    f"the file system has been unavailable for {patience_s:.0f} s: {outage.strerror or outage}",
                    where=str(outage.filename or ""),
                    next="start it again when the folder can be read",
                ) from error
            sleep(_RETRY_S)


def _outage_behind(error: BaseException | None) -> OSError | None:
    """The outage that an error is, or that it was raised from."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _AWAY:
            return error
        error = error.__cause__
    return None
