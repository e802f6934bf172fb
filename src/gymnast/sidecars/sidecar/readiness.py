"""Readiness and health, by the status of an HTTP path. Proxies of the environment are ignored."""

from __future__ import annotations

import http.client
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gymnast.sidecars.sidecar.spec import Ready


def http_status(host: str, port: int, path: str, timeout_s: float) -> int | None:
    """The status of a path; None if nothing listens, 0 if the reply does not come in time."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers={"connection": "close"})
        return connection.getresponse().status
    except TimeoutError:
        return 0
    except (OSError, http.client.HTTPException) as error:
        return 0 if "timed out" in str(error) else None
    finally:
        connection.close()


def backoff_intervals(ready: Ready) -> Iterator[float]:
    """Growing intervals between checks, up to the longest."""
    pause_s = ready.first_interval_s
    while True:
        yield pause_s
        pause_s = min(1.5 * pause_s, ready.longest_interval_s)


def wait_until(condition: Callable[[], bool], ready: Ready, give_up: Callable[[], bool]) -> bool:
    """Check until the condition holds (True), the deadline passes, or `give_up` holds (False)."""
    deadline = time.monotonic() + ready.deadline_s
    for pause_s in backoff_intervals(ready):
        if condition():
            return True
        next_check = min(time.monotonic() + pause_s, deadline)
        while time.monotonic() < next_check:
            if give_up():
                return False
            time.sleep(min(0.1, max(0.0, next_check - time.monotonic())))
        if time.monotonic() >= deadline or give_up():
            return False
    return False
