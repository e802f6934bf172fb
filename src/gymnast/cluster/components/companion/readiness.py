"""Is it ready, is it well: by the status of an HTTP page. Without proxies, whatever the environment says of them."""

from __future__ import annotations

import http.client
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gymnast.cluster.components.companion.order import Ready


def status_of(host: str, port: int, path: str, timeout_s: float) -> int | None:
    """The status of a page; None if nobody answers, 0 if the answer does not come in time."""
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


def pauses(ready: Ready) -> Iterator[float]:
    """The pauses between looks: growing, up to the longest."""
    pause_s = ready.first_interval_s
    while True:
        yield pause_s
        pause_s = min(1.5 * pause_s, ready.longest_interval_s)


def until(
    is_so: Callable[[], bool], ready: Ready, give_up: Callable[[], bool], clock: Callable[[], float] = time.monotonic
) -> bool:
    """Look until it is so (True), or the deadline has passed or there is a reason to give up (False)."""
    deadline = clock() + ready.deadline_s
    for pause_s in pauses(ready):
        if is_so():
            return True
        next_look = min(clock() + pause_s, deadline)
        while clock() < next_look:
            if give_up():
                return False
            time.sleep(min(0.1, max(0.0, next_look - clock())))
        if clock() >= deadline or give_up():
            return False
    return False
