"""Feeds the processes of trackers from one background thread. The run never waits for it, except at its end.

Invariants:
- `log` only appends to a bounded queue: old points are dropped, the last one never is.
- A tracker that does not read gets the newest points once it does; one that fails is reported once.
- `finish` returns within `wait_s` (and at most a second): what has not ended by then is killed with all it started.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.config.environ import child_environ
from gymnast.errors import UserError
from gymnast.store.atomic import atomic_write
from gymnast.tracking.messages import (
    Finish,
    Finished,
    Point,
    Problem,
    Start,
    Started,
    encode_line,
    run_decoder,
)
from gymnast.tracking.tracker_process import STATUS_FD_FLAG
from gymnast.types.encoding import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gymnast.tracking.choice import TrackerChoice

DEFAULT_WAIT_S: Final = 30.0
_MAX_WAITING: Final = 64
_SLACK_S: Final = 1.0
_IDLE_S: Final = 5.0
_POLL_S: Final = 0.25
_SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """What trackers are told about a run."""

    name: str
    run_id: str
    log_dir: Path
    state: Path
    """Remembers the trackers' ids of this run, so that a resume continues them."""
    event_dir: Path
    """Where TensorBoard's files go, unless the option names a folder."""
    config: Mapping[str, Any] = field(default_factory=dict)
    group: str | None = None


class TrackerState(msgspec.Struct, frozen=True):
    """`x_tracking.json`."""

    run_id: str
    trackers: dict[str, Started] = {}
    schema_version: int = _SCHEMA_VERSION


def read_state(path: Path, run_id: str) -> TrackerState:
    """The trackers' ids of this run; empty if there are none, or if they are those of another run."""
    try:
        state = msgspec.json.decode(path.read_bytes(), type=TrackerState)
    except (OSError, ValueError):  # tracking starts over rather than fail
        return TrackerState(run_id)
    return state if state.run_id == run_id and state.schema_version == _SCHEMA_VERSION else TrackerState(run_id)


class Publisher:
    """Sends points and the end of one run to its trackers."""

    def __init__(
        self,
        choices: Sequence[TrackerChoice],
        prepare: Callable[[], TrackedRun],
        say: Callable[[str], None],
        *,
        wait_s: float = DEFAULT_WAIT_S,
    ) -> None:
        """`prepare` describes the run. It is called in the thread, because it may read files."""
        self._choices = choices
        self._prepare = prepare
        self._say = say
        self._wait_s = wait_s
        self._points: deque[Point] = deque(maxlen=_MAX_WAITING)
        self._end: Finish | None = None
        self._deadline: float | None = None
        self._is_cut_short = False
        self._ended = threading.Event()
        """Set by the thread. An interrupted `join` would take a running thread for a finished one."""
        self._feeds: list[_Feed] = []
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="trackers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def log(self, step: int, figures: Mapping[str, float]) -> dict[str, float]:
        """Add a point. Never blocks. Returns what was added: figures that are not finite numbers are left out."""
        finite = {printable(str(name)): float(value) for name, value in figures.items() if _is_finite(value)}
        self._points.append(Point(int(step), time.time(), finite))
        self._wake()
        return finite

    def finish(self, end: Finish) -> None:
        """Deliver what is left and end the trackers' runs. Ctrl-C ends the wait."""
        if self._ended.is_set() or not self._thread.is_alive():
            return
        self._deadline = time.monotonic() + self._wait_s
        self._end = end
        self._wake()
        try:
            self._ended.wait(self._wait_s + _SLACK_S)
        except KeyboardInterrupt:
            self._is_cut_short = True
            self._deadline = time.monotonic()
            self._wake()
            self._ended.wait(_SLACK_S)

    def _wake(self) -> None:
        with suppress(OSError):  # a full pipe wakes the thread as well
            os.write(self._wake_write, b"\0")

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._launch(self._prepare())
            while any(feed.is_open for feed in self._feeds) and not self._is_over():
                self._step()
            self._stop()
        except Exception as error:  # noqa: BLE001 - the boundary: tracking must not end with a traceback in the run's output
            self._say(f"warning: tracking ended: {type(error).__name__}: {error}; the run continues without it")
            for feed in self._feeds:
                feed.kill()
        finally:
            self._ended.set()

    def _launch(self, run: TrackedRun) -> None:
        self._tracked = run
        self._state = read_state(run.state, run.run_id)
        run.log_dir.mkdir(parents=True, exist_ok=True)
        for choice in self._choices:
            known = self._state.trackers.get(str(choice))
            message = Start(
                tracker=choice.name,
                place=choice.place,
                name=choice.run_name or run.name,
                group=run.group,
                resume_id=known.id if known is not None else None,
                config=dict(run.config),
                folder=str(run.event_dir),
            )
            try:
                feed = _Feed(choice, run.log_dir / f"track-{choice.name}.log", message)
            except OSError as error:
                self._say(f"warning: {choice} cannot be started: {error}; the run continues without it")
                continue
            self._feeds.append(feed)
            self._selector.register(feed.status_fd, selectors.EVENT_READ, feed)

    def _is_over(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _step(self) -> None:
        """Wait for something to do, and do it."""
        timeout = _IDLE_S if self._deadline is None else min(_POLL_S, max(0.0, self._deadline - time.monotonic()))
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                with suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
            elif key.data.is_open and key.fd == key.data.status_fd:
                self._read_status(key.data)
        for feed in self._feeds:
            if feed.is_open and feed.has_exited and not self._read_status(feed):
                self._close(feed)  # what it forked keeps its end of the pipe open
        while self._points:
            point = self._points.popleft()
            for feed in self._feeds:
                feed.put(point)
        for feed in self._feeds:
            if self._end is not None:
                feed.put_end(self._end)
            self._flush(feed)

    def _flush(self, feed: _Feed) -> None:
        """Write what the pipe takes, and wait for room if something is left."""
        is_waiting = feed.flush()
        if is_waiting and not feed.is_registered:
            self._selector.register(feed.input_fd, selectors.EVENT_WRITE, feed)
        elif not is_waiting and feed.is_registered:
            self._selector.unregister(feed.input_fd)
        feed.is_registered = is_waiting
        if feed.is_done_writing:
            feed.close_input()

    def _read_status(self, feed: _Feed) -> bool:
        """Handle what the process sent. Returns whether it has ended."""
        messages, at_end = feed.read()
        for message in messages:
            if isinstance(message, Started):
                self._remember(feed.choice, message)
            elif isinstance(message, Problem):
                self._report(feed, message.what, message.next)
            elif isinstance(message, Finished):
                feed.is_finished = True
        if at_end or feed.is_finished:
            self._close(feed)
        return not feed.is_open

    def _close(self, feed: _Feed) -> None:
        self._selector.unregister(feed.status_fd)
        if feed.is_registered:
            self._selector.unregister(feed.input_fd)
            feed.is_registered = False
        code = feed.close()
        if not feed.is_finished:
            how = (
                f"its process was killed by signal {-code}"
                if code and code < 0
                else f"its process ended with code {code}"
            )
            self._report(feed, how, f"see {feed.log}")

    def _remember(self, choice: TrackerChoice, started: Started) -> None:
        known = self._state.trackers.get(str(choice))
        is_resumed = known is not None and known.id == started.id
        self._say(f"note: {choice.name}: {'continues ' if is_resumed else ''}{started.url or started.id}")
        self._state = msgspec.structs.replace(self._state, trackers={**self._state.trackers, str(choice): started})
        try:
            atomic_write(self._tracked.state, msgspec.json.format(msgspec.json.encode(self._state), indent=2) + b"\n")
        except (OSError, UserError) as error:
            self._say(f"warning: cannot write {self._tracked.state}: {error}; a resume starts new tracker runs")

    def _report(self, feed: _Feed, what: str, hint: str | None) -> None:
        """Say it once for each tracker."""
        if not feed.is_reported:
            feed.is_reported = True
            self._say(
                f"warning: --track {feed.choice}: {what}; the run is not affected" + (f" ({hint})" if hint else "")
            )

    def _stop(self) -> None:
        """Kill what has not ended."""
        for feed in self._feeds:
            if feed.is_open:
                why = (
                    "was stopped by Ctrl-C"
                    if self._is_cut_short
                    else f"did not finish within {self._wait_s:g} s and was stopped"
                )
                feed.is_reported = False
                self._report(
                    feed, f"{feed.choice.name} {why}; its last points or files may be missing", f"see {feed.log}"
                )
                feed.close()
            feed.kill()


def _is_finite(value: Any) -> bool:
    """Also for the numbers of numpy and torch, which are not Python's."""
    try:
        return math.isfinite(value)
    except (TypeError, ValueError, OverflowError):
        return False


class _Feed:
    """The run's side of one tracker's process."""

    def __init__(self, choice: TrackerChoice, log: Path, start: Start) -> None:
        self.choice = choice
        self.log = log
        self.is_open = True
        self.is_finished = self.is_reported = self.is_registered = False
        self._points: deque[Point] = deque(maxlen=_MAX_WAITING)
        self._unwritten = encode_line(start)
        self._end: Finish | None = None
        self._is_end_written = False
        self._partial = b""
        self.status_fd, theirs = os.pipe()
        try:
            with log.open("ab") as out:
                self._process = subprocess.Popen(  # noqa: S603 - our own module
                    [sys.executable, "-m", "gymnast.tracking.tracker_process", f"{STATUS_FD_FLAG}={theirs}"],
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=out,
                    pass_fds=(theirs,),
                    start_new_session=True,  # Ctrl-C is for the run
                    env=child_environ({"PYTHONUNBUFFERED": "1", **dict(choice.variables)}),
                )
        except BaseException:
            os.close(self.status_fd)
            raise
        finally:
            os.close(theirs)
        assert self._process.stdin is not None
        self.input_fd = self._process.stdin.fileno()
        os.set_blocking(self.input_fd, False)
        os.set_blocking(self.status_fd, False)

    def put(self, point: Point) -> None:
        if self._end is None:
            self._points.append(point)

    def put_end(self, end: Finish) -> None:
        self._end = self._end or end

    @property
    def is_done_writing(self) -> bool:
        return self._is_end_written and not self._unwritten

    @property
    def has_exited(self) -> bool:
        return self._process.poll() is not None

    def flush(self) -> bool:
        """Write without blocking. Returns whether something is left that the pipe had no room for."""
        while self.is_open and not self._process.stdin.closed:  # type: ignore[union-attr]
            if not self._unwritten:
                if self._points:
                    self._unwritten = encode_line(self._points.popleft())
                elif self._end is not None and not self._is_end_written:
                    self._unwritten, self._is_end_written = encode_line(self._end), True
                else:
                    return False
            try:
                written = os.write(self.input_fd, self._unwritten)
            except BlockingIOError:
                return True
            except OSError:  # it has exited: its status says why
                self._points.clear()
                self._unwritten, self._is_end_written = b"", self._end is not None
                return False
            self._unwritten = self._unwritten[written:]
        return False

    def read(self) -> tuple[list[Any], bool]:
        """The messages that arrived, and whether there will be no more."""
        try:
            data = os.read(self.status_fd, 65536)
        except BlockingIOError:
            return [], False
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        return [run_decoder.decode(line) for line in lines], not data

    def close_input(self) -> None:
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]

    def close(self) -> int | None:
        """Close the pipes. Returns the exit code, if it has exited."""
        self.is_open = False
        self.close_input()
        os.close(self.status_fd)
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(0.5 if self.is_finished else 0.0)
        return None

    def kill(self) -> None:
        """Kill the process and all it started; its process group is its own."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
