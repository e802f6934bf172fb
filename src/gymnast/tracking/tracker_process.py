"""The main program of a tracker's process: gets lines from the run on standard input and passes them to the library.

A process, because a library may print, fork, hang, register exit handlers or leave threads behind, and only a process
can be ended whatever it does. Points that the library is too slow for are dropped, oldest first, never the last one.
If the run dies, its end of the pipe closes, and the tracker's run is ended as interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from typing import IO, Final

from gymnast.tracking.libraries import TRACKERS, Tracker
from gymnast.tracking.messages import (
    Finish,
    Finished,
    FromTracker,
    Point,
    Problem,
    Start,
    ToTracker,
    encode_line,
    tracker_decoder,
)

STATUS_FD_FLAG: Final = "--status-fd"
ORPHAN_TIMEOUT_S: Final = 60.0
"""How long a tracker may take to end its run after the run's process has died."""
_PARENT_POLL_S: Final = 0.5
_MAX_WAITING: Final = 256
_MAX_TEXT: Final = 500
_ACCOUNT_HINTS: Final = {
    "wandb": "set WANDB_API_KEY, or WANDB_MODE=offline and run `wandb sync` later",
    "mlflow": "set MLFLOW_TRACKING_URI to a server that answers, or to sqlite:///mlflow.db",
    "trackio": "check TRACKIO_SERVER_URL and TRACKIO_DIR",
    "tensorboard": "choose a folder you can write to: --track tensorboard:FOLDER",
}


class Inbox:
    """Messages that wait for the library. Bounded: a slow library gets the newest points."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=_MAX_WAITING)
        self._finish: Finish | None = None
        self._changed = threading.Condition()

    def put(self, message: Point | Finish) -> None:
        with self._changed:
            if isinstance(message, Point):
                self._points.append(message)
            elif self._finish is None:
                self._finish = message
            self._changed.notify()

    def take(self) -> Point | Finish:
        """The next message; the end comes after all points."""
        with self._changed:
            while not self._points and self._finish is None:
                self._changed.wait()
            if self._points:
                return self._points.popleft()
            assert self._finish is not None
            return self._finish


class Reporter:
    """Answers the run. A broken pipe means that the run is gone."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, message: FromTracker) -> None:
        try:
            os.write(self._fd, encode_line(message))
        except OSError:
            return

    def send_error(self, name: str, doing: str, error: BaseException) -> None:
        """Report an exception, and what to do about it."""
        if isinstance(error, ImportError) and (error.name or name).partition(".")[0] == name:
            self.send(Problem(f"{name} is not installed", f"pip install 'gymnast[{name}]'"))
            return
        text = " ".join(str(error).split()) or "no message"
        self.send(Problem(f"{name} {doing}: {type(error).__name__}: {text[:_MAX_TEXT]}", _ACCOUNT_HINTS.get(name)))


def main() -> None:
    """Run the tracker that the first line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument(STATUS_FD_FLAG, type=int, required=True)
    reporter = Reporter(parser.parse_args().status_fd)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # schedulers signal every process; the run decides when this one ends
    lines = _take_input()
    first = lines.readline()
    start = tracker_decoder.decode(first) if first else None
    if not isinstance(start, Start):
        return
    inbox = Inbox()
    threading.Thread(target=_read, args=(lines, inbox), daemon=True).start()
    _drive(TRACKERS[start.tracker](), start, inbox, reporter)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # exit handlers and threads of the library must not keep this process


def _take_input() -> IO[bytes]:
    """Our lines, out of the library's reach: one that prompts for a key gets an end of file."""
    lines = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return lines


def _read(lines: IO[bytes], inbox: Inbox) -> None:
    parent = os.getppid()
    for line in lines:
        message: ToTracker = tracker_decoder.decode(line)
        if not isinstance(message, Start):
            inbox.put(message)
        if isinstance(message, Finish):
            break
    inbox.put(Finish("interrupted"))  # unless it has ended
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_S)
    time.sleep(ORPHAN_TIMEOUT_S)
    os.killpg(os.getpgid(0), signal.SIGKILL)  # the run is gone, and the library hangs


def _drive(tracker: Tracker, start: Start, inbox: Inbox, reporter: Reporter) -> None:
    """Pass messages on until the end. One exception of the library is reported; the next points are still tried."""
    doing = "did not start"
    try:
        reporter.send(tracker.start(start))
        while True:
            message = inbox.take()
            if isinstance(message, Finish):
                break
            try:
                tracker.log(message)
            except Exception as error:  # noqa: BLE001 - a library may raise anything, and may recover
                traceback.print_exc()
                reporter.send_error(start.tracker, "did not accept a point", error)
        doing = "did not finish"
        tracker.finish(message)
    except BaseException as error:  # noqa: BLE001 - the boundary: libraries also raise SystemExit
        traceback.print_exc()
        reporter.send_error(start.tracker, doing, error)
    else:
        reporter.send(Finished())


if __name__ == "__main__":
    main()
