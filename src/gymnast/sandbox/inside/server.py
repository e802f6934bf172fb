"""The jail's server: process 1 of the jail. Trusted. Requests come over standard input, replies go to standard output.

Each program is served by a fork, which reads the request, runs the program in new namespaces, enforces deadlines and
memory, and kills all of the program's processes together. The server itself never holds a program's data, because later
programs are forked from it and would find that data in their memory. Where namespaces cannot be created, the server
runs the jail's only program itself.
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

from gymnast.sandbox.inside import confine, program
from gymnast.sandbox.inside.frames import pack_frame, read_frame, write_all
from gymnast.sandbox.inside.monitor import ProgramMonitor

FIRST_IDLE_CHECK_S, LAST_IDLE_CHECK_S = 0.2, 5.0
"""Between two steps of a session: when to check for the first time that its processes are still stopped, and the
longest interval between two checks."""
OWN_PROCESSES = 4
"""The server, its monitor, its fork and the namespace's process 1 count against the program's process limit."""


def main() -> None:
    """Move the protocol's streams away from the descriptors that programs get, then serve until the input ends."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    # Signals from its own namespace reach process 1 only if it handles them.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    config = read_frame(requests)
    if config is None:
        return
    server = Server(config[0])
    write_all(replies, pack_frame(server.handshake_reply()))
    if server.nesting_error:
        server.serve(requests, replies)
    else:
        while serve_in_fork(server, requests, replies):
            """The next program."""


def serve_in_fork(server: Server, requests: int, replies: int) -> bool:
    """Serve one program, or one session, in a fork. Returns False when the input has ended."""
    select.select([requests], [], [])
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if server.serve(requests, replies) else 1)
        finally:
            os._exit(2)
    return os.waitpid(pid, 0)[1] == 0


class Server:
    """The jail's configuration, and its session if one is running."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.libc = confine.c_library()
        self.filter = base64.b64decode(config["filter"]) if config.get("filter") else None
        self.environment = dict(config["environment"])
        self.own_processes = OWN_PROCESSES if config["processes_counted"] else -1
        self.is_isolated = bool(config["is_isolated"])
        self.session: RunningProgram | None = None
        self.libc.prctl(confine.SET_DUMPABLE, 0, 0, 0, 0)
        self.libc.prctl(confine.SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if not self.is_isolated:  # otherwise it ends with its namespaces
            self.libc.prctl(confine.SET_DEATH_SIGNAL, confine.KILL_SIGNAL, 0, 0, 0)
        for name in config["preload"]:
            try:
                importlib.import_module(name)
            except ImportError:  # a program that needs it will report that itself
                continue
        self.nesting_error = confine.try_in_child(self._try_namespaces) if config["nest"] else "not requested"
        gc.collect()
        gc.freeze()  # so that forks share the pages of these objects

    def _try_namespaces(self) -> None:
        if confine.fork_into_namespaces(self.libc) == 0:
            try:
                confine.mount_private_dirs(self.libc, 1)
            except OSError as error:
                os.write(1, str(error).encode())
                os._exit(1)
            os._exit(0)
        if os.wait()[1] != 0:
            raise OSError("cannot mount a private /tmp and /proc")

    def handshake_reply(self) -> dict[str, Any]:
        return {"python": sys.version.split()[0], "nested": not self.nesting_error, "why": self.nesting_error}

    def serve(self, requests: int, replies: int) -> bool:
        """Serve one program, or one session from first to last step. Returns False when the input has ended."""
        while (request := read_frame(requests)) is not None:
            reply, blob = self.answer(*request, requests)
            write_all(replies, pack_frame(reply, blob))
            if self.session is None:
                return True
            self.session.wait_for_request(requests)
        return False

    def answer(self, request: dict[str, Any], blob: bytes, requests: int) -> tuple[dict[str, Any], bytes]:
        """Run one program to its end, or one step of the session.

        The arguments of calls follow in a separate frame, which is read after the program was forked: it would
        otherwise find them in its memory.

        "failed": the program was not started. An error afterwards may be the program's work: this process ends, and
        the sender of the request gets the reason.
        """
        if request["kind"] == "end":
            return self._end()
        running = self.session
        is_step = request["kind"] == "execute"
        try:
            running = running or RunningProgram(self, request, b"" if is_step else blob)
        except OSError as error:
            return {"failed": f"{type(error).__name__}: {error}"}, b""
        self.session = running if is_step else None
        try:
            if is_step:
                return running.step(request["limits"], blob)
            arguments = read_frame(requests) if request["kind"] == "call" else None
            return running.run_to_end(arguments[0]["arguments"] if arguments else [])
        except BaseException:
            running.kill()
            raise

    def _end(self) -> tuple[dict[str, Any], bytes]:
        """End the session, so that the jail can serve others."""
        running, self.session = self.session, None
        if running is None:
            return {"stdout": 0, "stderr": 0, "reason": "wall"}, b""
        return running.last_reply or running.stop("wall")


class RunningProgram:
    def __init__(self, server: Server, request: dict[str, Any], blob: bytes) -> None:
        self.server, self.request, self.blob = server, request, blob
        self.limits: dict[str, Any] = request["limits"]
        self.nested = not server.nesting_error
        inputs = ("stdin", "requests")
        pipes = {name: os.pipe() for name in (*inputs, "stdout", "stderr", "answers", "status")}
        theirs = {name: pair[0 if name in inputs else 1] for name, pair in pipes.items()}
        ours = {name: pair[1 if name in inputs else 0] for name, pair in pipes.items()}
        self.started = time.monotonic()
        self.pid = confine.fork_into_namespaces(server.libc) if self.nested else os.fork()
        if self.pid == 0:
            self._run_as_init(theirs)
        for fd in theirs.values():
            os.close(fd)
        self.monitor = ProgramMonitor(self.pid, ours, owns_all_processes=server.is_isolated)
        self.last_reply: tuple[dict[str, Any], bytes] | None = None
        """How the session ended, if it was killed between two steps."""

    def run_to_end(self, arguments: list[Any]) -> tuple[dict[str, Any], bytes]:
        limits, stdin = self.request["limits"], self.blob[: self.request.get("stdin", 0)]
        self.monitor.feed("stdin", stdin, then_close=True)
        calls = [pack_frame({"arguments": values}) for values in arguments]
        return self.stop(self.monitor.wait_for_end(limits, self.started, calls))

    def step(self, limits: dict[str, Any], source: bytes) -> tuple[dict[str, Any], bytes]:
        """Execute one piece of code in the session, then stop its processes until the next one."""
        if self.last_reply:
            self.server.session = None
            return self.last_reply
        self.limits, started = limits, time.monotonic()
        self.monitor.feed("stdin", b"", then_close=True)
        self.monitor.feed("requests", pack_frame({}, source), then_close=False)
        reason = self.monitor.wait_for_answer(limits, started)
        if reason == "answered":
            reason = self.monitor.suspend(limits)
            if not reason:
                return self.monitor.output_sizes(), self.monitor.take_output()
        self.server.session = None
        return self.stop(reason)

    def wait_for_request(self, requests: int) -> None:
        """Wait for the next step. Stopped processes use nothing, but this does not rely on it."""
        interval = FIRST_IDLE_CHECK_S
        while not select.select([requests], [], [], interval)[0]:
            interval = min(2 * interval, LAST_IDLE_CHECK_S)
            reason = "" if self.last_reply else self.monitor.suspend(self.limits)
            if reason:
                self.last_reply = self.stop(reason)

    def stop(self, reason: str) -> tuple[dict[str, Any], bytes]:
        """Kill what is left of the program, and report how it ended."""
        if reason != "ended":
            # wait4 does not count processes that nothing waited for
            used = self.monitor.cpu_s(self.monitor.processes())
            os.kill(self.pid, signal.SIGKILL)
        _, status, usage = os.wait4(self.pid, 0)
        cpu = used if reason != "ended" else usage.ru_utime + usage.ru_stime
        status_reply = self.monitor.status()
        self._kill_orphans()
        seconds = time.monotonic() - self.started
        reply = self.monitor.output_sizes() | {"reason": reason, "seconds": seconds, "cpu": cpu}
        if reason == "ended":
            reply |= status_reply or {"status": status if not self.nested else signal.SIGKILL}
        return reply, self.monitor.close()

    def kill(self) -> None:
        """Kill the program without a report."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Kill processes that the program started: without a process namespace they outlive it."""
        if self.nested:
            return
        for _ in range(1000):
            for pid in self.monitor.processes():
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

    def _run_as_init(self, fds: dict[str, int]) -> None:
        """Be process 1 of the program's namespaces: signals from inside do not reach it, and its end ends them all."""
        libc = self.server.libc
        status = fds.pop("status")
        try:
            libc.prctl(confine.SET_DEATH_SIGNAL, confine.KILL_SIGNAL, 0, 0, 0)
            if self.nested:
                confine.mount_private_dirs(libc, self.request["limits"]["tmp_mb"])
            pid = os.fork()
            if pid == 0:
                self._run_program(fds, status)
            confine.keep_only_fds({3: status})
            while True:
                ended, wait_status = os.wait()
                if ended == pid:
                    os.write(3, pack_frame({"status": wait_status}))
                    os._exit(0)
        except BaseException as error:  # noqa: BLE001 - reported to the server, which reports it to us
            os.write(status, pack_frame({"failed": f"{type(error).__name__}: {error}"}))
        finally:
            os._exit(1)

    def _run_program(self, fds: dict[str, int], status: int) -> None:
        """Drop all privileges, then become the model's program."""
        try:
            self._confine(fds)
        except BaseException as error:  # noqa: BLE001 - reported to the server, which reports it to us
            os.write(status, pack_frame({"failed": f"{type(error).__name__}: {error}"}))
            os._exit(1)
        os._exit(self._execute())

    def _confine(self, fds: dict[str, int]) -> None:
        server, limits = self.server, self.request["limits"]
        server.libc.prctl(confine.SET_DUMPABLE, 1, 0, 0, 0)  # from here on it owns its files in /proc/self
        if not self.nested:  # otherwise it ends with its namespace
            server.libc.prctl(confine.SET_DEATH_SIGNAL, confine.KILL_SIGNAL, 0, 0, 0)
        os.setsid()
        os.umask(0o022)
        with open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123 - pathlib costs an import in every jail
            score.write("1000")
        if self.nested:
            confine.make_proc_read_only(server.libc)
        self._write_files()
        kept_fds = {0: fds["stdin"], 1: fds["stdout"], 2: fds["stderr"]}
        if self.request["kind"] in ("call", "execute"):
            kept_fds |= {program.ANSWERS_FD: fds["answers"], program.REQUESTS_FD: fds["requests"]}
        confine.keep_only_fds(kept_fds)
        if self.request["kind"] == "execute":
            limits = limits | {"cpu_s": 0}  # the monitor limits each step
        if self.request["kind"] == "command" and self.request["has_cgroup"]:
            limits = limits | {"memory_mb": 0}  # other languages' runtimes reserve far more address space than memory
        confine.set_limits(limits, server.own_processes)
        confine.drop_privileges(server.libc, server.filter)
        if self.request["kind"] == "command":  # Python ignores these signals
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        else:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _write_files(self) -> None:
        work_dir = self.request.get("work_dir") or confine.WORK_DIR
        os.makedirs(work_dir, exist_ok=True)  # noqa: PTH103 - as above
        os.chdir(work_dir)
        at = self.request.get("stdin", 0)
        for name, size in self.request.get("files", ()):
            folder = os.path.dirname(name)  # noqa: PTH120 - as above
            if folder:
                os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - as above
            with open(name, "wb") as file:  # noqa: PTH123 - as above
                file.write(self.blob[at : at + size])
            at += size

    def _execute(self) -> int:
        request = self.request
        if request["kind"] == "command":
            return program.run_command(request["command"], self.server.environment | request["environment"])
        if request["kind"] == "execute":
            return program.run_interpreter()
        source = self.blob[request.get("stdin", 0) :][: request["files"][0][1]]
        if request["kind"] == "call":
            return program.run_calls(source, request["function"])
        return program.run_main(source)
