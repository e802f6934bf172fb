"""The jail's server: process 1 of the jail, trusted, asked over its standard input, answering over its standard output.

Each program is served by a fork, which reads the request, runs the program inside namespaces of its own, watches
deadlines and memory, and kills all of the program's processes at once. The server itself never holds what belongs to a
program: whatever it held, every later program would find in its own memory. Where namespaces cannot be made, the
server runs the jail's only program itself.
"""

from __future__ import annotations

import base64
import gc
import importlib
import os
import select
import signal
import sys
import time
from typing import Any

from gymnast.kit.sandbox.inside import confine, program
from gymnast.kit.sandbox.inside.frames import packed, read_frame, write_all
from gymnast.kit.sandbox.inside.watch import Watch

COUNTED = 4
"""The server, its monitor, its fork and the namespace's process 1 count against the program's number of processes."""


def main() -> None:
    """Take the protocol away from the numbers that programs get, then serve until nobody asks any more."""
    hear, say = os.dup(0), os.dup(1)
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    # Signals from inside its namespace reach process 1 only where it handles them.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asked = read_frame(hear)
    if asked is None:
        return
    server = Server(asked[0])
    write_all(say, packed(server.greeting()))
    if server.why_not_nested:
        server.attend(hear, say)
    else:
        while attended_by_fork(server, hear, say):
            """The next program."""


def attended_by_fork(server: Server, hear: int, say: int) -> bool:
    """Have one program, or one session, served; False when nobody asks any more."""
    select.select([hear], [], [])
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if server.attend(hear, say) else 1)
        finally:
            os._exit(2)
    return os.waitpid(pid, 0)[1] == 0


class Server:
    """What the jail knows about itself, and the program that runs."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.libc = confine.c_library()
        self.filter = base64.b64decode(config["filter"]) if config.get("filter") else None
        self.environment = dict(config["environment"])
        self.processes_counted = COUNTED if config["processes_counted"] else -1
        self.has_walls = bool(config["has_walls"])
        self.session: Running | None = None
        self.libc.prctl(confine.SET_DUMPABLE, 0, 0, 0, 0)
        self.libc.prctl(confine.SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if not self.has_walls:  # else it ends with the walls
            self.libc.prctl(confine.SET_DEATH_SIGNAL, confine.KILL_SIGNAL, 0, 0, 0)
        for name in config["preload"]:
            try:
                importlib.import_module(name)
            except ImportError:  # a program that needs it will say so itself
                continue
        self.why_not_nested = confine.works(self._try_namespaces) if config["nest"] else "not asked for"
        gc.collect()
        gc.freeze()  # forks then share these objects' pages

    def _try_namespaces(self) -> None:
        if confine.fork_into_namespaces(self.libc) == 0:
            try:
                confine.private_places(self.libc, 1)
            except OSError as error:
                os.write(1, str(error).encode())
                os._exit(1)
            os._exit(0)
        if os.wait()[1] != 0:
            raise OSError("no private /tmp and /proc")

    def greeting(self) -> dict[str, Any]:
        return {"python": sys.version.split()[0], "nested": not self.why_not_nested, "why": self.why_not_nested}

    def attend(self, hear: int, say: int) -> bool:
        """Serve one program, or one session from its first step to its last; False when nobody asks any more."""
        while (asked := read_frame(hear)) is not None:
            reply, blob = self.answer(*asked)
            write_all(say, packed(reply, blob))
            if self.session is None:
                return True
        return False

    def answer(self, request: dict[str, Any], blob: bytes) -> tuple[dict[str, Any], bytes]:
        """One program to its end, or one step of the session."""
        try:
            if request["kind"] == "execute":
                return self._execute(request, blob)
            if request["kind"] == "end":
                return self._end()
            running = Running(self, request, blob)
            return running.to_its_end()
        except OSError as error:
            return {"failed": f"{type(error).__name__}: {error}"}, b""

    def _execute(self, request: dict[str, Any], blob: bytes) -> tuple[dict[str, Any], bytes]:
        if self.session is None:
            self.session = Running(self, request, b"")
        return self.session.step(request["limits"], blob)

    def _end(self) -> tuple[dict[str, Any], bytes]:
        """The session is over; the jail serves others."""
        running, self.session = self.session, None
        return running.stopped("wall") if running else ({"stdout": 0, "stderr": 0, "reason": "wall"}, b"")


class Running:
    """A program that runs."""

    def __init__(self, server: Server, request: dict[str, Any], blob: bytes) -> None:
        self.server, self.request, self.blob = server, request, blob
        self.nested = not server.why_not_nested
        pipes = {name: os.pipe() for name in ("stdin", "stdout", "stderr", "say", "hear", "status")}
        theirs = {name: pair[0 if name in ("stdin", "hear") else 1] for name, pair in pipes.items()}
        ours = {name: pair[1 if name in ("stdin", "hear") else 0] for name, pair in pipes.items()}
        self.started = time.monotonic()
        self.pid = confine.fork_into_namespaces(server.libc) if self.nested else os.fork()
        if self.pid == 0:
            self._be_first(theirs)
        for fd in theirs.values():
            os.close(fd)
        self.watch = Watch(self.pid, ours, everything_is_ours=server.has_walls)

    def to_its_end(self) -> tuple[dict[str, Any], bytes]:
        limits, stdin = self.request["limits"], self.blob[: self.request.get("stdin", 0)]
        self.watch.feed("stdin", stdin, then_close=True)
        reason = self.watch.until_end(limits, self.started, calls=len(self.request.get("arguments", ())))
        return self.stopped(reason)

    def step(self, limits: dict[str, Any], source: bytes) -> tuple[dict[str, Any], bytes]:
        """Execute one piece of code in the session."""
        started = time.monotonic()
        self.watch.feed("stdin", b"", then_close=True)
        self.watch.feed("hear", packed({}, source), then_close=False)
        reason = self.watch.until_answer(limits, started)
        if reason == "answered":
            return self.watch.taken(), self.watch.take_output()
        self.server.session = None
        return self.stopped(reason)

    def stopped(self, reason: str) -> tuple[dict[str, Any], bytes]:
        """End whatever is left of it, and say how it went."""
        if reason != "ended":
            used = self.watch.cpu_s(self.watch.processes())  # nobody will have waited for those that are killed
            os.kill(self.pid, signal.SIGKILL)
        _, status, usage = os.wait4(self.pid, 0)
        cpu = used if reason != "ended" else usage.ru_utime + usage.ru_stime
        said = self.watch.status()
        self._end_strays()
        seconds = time.monotonic() - self.started
        report = self.watch.taken() | {"reason": reason, "seconds": seconds, "cpu": cpu}
        if reason == "ended":
            report |= said or {"status": status if not self.nested else signal.SIGKILL}
        return report, self.watch.close()

    def _end_strays(self) -> None:
        """Without a namespace of its own, what the program started outlives it."""
        if self.nested:
            return
        for _ in range(1000):
            for pid in self.watch.processes():
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    continue
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.001)

    def _be_first(self, fds: dict[str, int]) -> None:
        """Process 1 of the program's namespaces: signals from inside do not reach it, and with it everything ends."""
        libc = self.server.libc
        status = fds.pop("status")
        try:
            libc.prctl(confine.SET_DEATH_SIGNAL, confine.KILL_SIGNAL, 0, 0, 0)
            if self.nested:
                confine.private_places(libc, self.request["limits"]["tmp_mb"])
            pid = os.fork()
            if pid == 0:
                self._be_program(fds, status)
            confine.keep_only({3: status})
            while True:
                ended, wait_status = os.wait()
                if ended == pid:
                    os.write(3, packed({"status": wait_status}))
                    os._exit(0)
        except BaseException as error:  # noqa: BLE001 - said to the server, which says it to us
            os.write(status, packed({"failed": f"{type(error).__name__}: {error}"}))
        finally:
            os._exit(1)

    def _be_program(self, fds: dict[str, int], status: int) -> None:
        """Give up everything, then become the model's program."""
        try:
            self._settle(fds)
        except BaseException as error:  # noqa: BLE001 - said to the server, which says it to us
            os.write(status, packed({"failed": f"{type(error).__name__}: {error}"}))
            os._exit(1)
        os._exit(self._start())

    def _settle(self, fds: dict[str, int]) -> None:
        server, limits = self.server, self.request["limits"]
        server.libc.prctl(confine.SET_DUMPABLE, 1, 0, 0, 0)  # the files of /proc/self belong to it from here on
        if not self.nested:  # else it ends with its namespace
            server.libc.prctl(confine.SET_DEATH_SIGNAL, confine.KILL_SIGNAL, 0, 0, 0)
        os.setsid()
        os.umask(0o022)
        with open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123 - pathlib costs an import in every jail
            score.write("1000")
        self._put_files()
        kept = {0: fds["stdin"], 1: fds["stdout"], 2: fds["stderr"]}
        if self.request["kind"] in ("call", "execute"):
            kept |= {program.SAY: fds["say"], program.HEAR: fds["hear"]}
        confine.keep_only(kept)
        session = self.request["kind"] == "execute"  # its CPU time is watched step by step
        limits = limits | ({"cpu_s": 0} if session else {})
        if self.request["kind"] == "command" and self.request["has_group"]:
            limits = limits | {"memory_mb": 0}  # runtimes of other languages reserve far more addresses than memory
        confine.limit(limits, server.processes_counted)
        confine.drop_privileges(server.libc, server.filter)
        if self.request["kind"] == "command":  # undoes what this interpreter ignores
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        else:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _put_files(self) -> None:
        place = self.request.get("place") or confine.PLACE
        os.makedirs(place, exist_ok=True)  # noqa: PTH103 - as above
        os.chdir(place)
        at = self.request.get("stdin", 0)
        for name, size in self.request.get("files", ()):
            folder = os.path.dirname(name)  # noqa: PTH120 - as above
            if folder:
                os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - as above
            with open(name, "wb") as file:  # noqa: PTH123 - as above
                file.write(self.blob[at : at + size])
            at += size

    def _start(self) -> int:
        request = self.request
        if request["kind"] == "command":
            return program.run_command(request["command"], self.server.environment | request["environment"])
        if request["kind"] == "execute":
            return program.keep_interpreting()
        source = self.blob[request.get("stdin", 0) :][: request["files"][0][1]]
        if request["kind"] == "call":
            return program.answer_calls(source, request["function"], request["arguments"])
        return program.run_main(source)
