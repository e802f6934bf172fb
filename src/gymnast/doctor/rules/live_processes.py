"""Rules about the processes of a running collection: stopped, waiting for a disk, with a blocked event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding
from gymnast.doctor.rules.rule import rule
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts, ProcessFacts

_MAX_SHOWN: Final = 5
_STOPPED: Final = frozenset({"T", "t"})
_WAITS_FOR_DISK: Final = "D"
_MIN_LAG_S: Final = 1.0


@rule(Layer.INFRA, 1, "Continue it: fg in its terminal, or kill -CONT PID.")
def process_stopped(facts: Facts) -> Finding | None:
    """The collector, or a process that it started, is stopped or debugged."""
    stopped = [process for process in facts.processes if process.state in _STOPPED]
    if not stopped:
        return None
    first = min(stopped, key=lambda process: not process.is_collector)
    name = "the collecting process" if first.is_collector else "a process of the collection"
    verb = "is stopped" if first.state == "T" else "is held by a debugger"
    pids = " ".join(str(process.pid) for process in stopped)
    action = f"continue it: fg in its terminal, or kill -CONT {pids}" if first.state == "T" else "detach the debugger"
    return Finding(
        "process_stopped",
        Layer.INFRA,
        f"{name} (pid {first.pid}) {verb}: nothing happens until it continues",
        "Ctrl-Z, a SIGSTOP, or a background process that read from its terminal",
        f"{action}; scored rollouts are safe",
        tuple(
            Evidence(f"pid {process.pid} has state {process.state}: {process.command}")
            for process in stopped[:_MAX_SHOWN]
        ),
        weight=95,
        explains=frozenset({"stuck", "loop_blocked"}),
    )


@rule(Layer.THROUGHPUT, 1, "See what it does: py-spy dump --pid PID.")
def loop_blocked(facts: Facts) -> Finding | None:
    """The collector runs, but does not answer its control socket."""
    collector = _unresponsive_collector(facts)
    if collector is None or collector.state == _WAITS_FOR_DISK:
        return None
    return Finding(
        "loop_blocked",
        Layer.THROUGHPUT,
        f"the collecting process (pid {collector.pid}) runs, but does not respond",
        "code of an environment, agent or model server blocks its event loop, or the host is overloaded",
        f"see what it does: py-spy dump --pid {collector.pid}",
        (Evidence(f"{facts.unresponsive}; its state is {collector.state}"),),
        Confidence.MEDIUM,
        weight=57,
        explains=frozenset({"stuck"}),
    )


@rule(Layer.INFRA, 1, "Check the file systems: dmesg, df, ls.")
def disk_wait(facts: Facts) -> Finding | None:
    """The collector does not respond because it waits for a disk or file system."""
    collector = _unresponsive_collector(facts)
    if collector is None or collector.state != _WAITS_FOR_DISK:
        return None
    return Finding(
        "disk_wait",
        Layer.INFRA,
        f"the collecting process (pid {collector.pid}) waits for a disk or a network file system",
        "a read or write does not return: the file server is down, or far too slow",
        "check the file systems of the run, its input and its environment: dmesg, df, ls",
        (Evidence(f"{facts.unresponsive}; its state is {collector.state}"),),
        Confidence.MEDIUM,
        weight=90,
        explains=frozenset({"stuck", "loop_blocked"}),
    )


def _unresponsive_collector(facts: Facts) -> ProcessFacts | None:
    collector = next((process for process in facts.processes if process.is_collector), None)
    is_stopped = collector is not None and collector.state in _STOPPED
    return collector if facts.unresponsive and not is_stopped else None


@rule(Layer.THROUGHPUT, 1, "Move blocking code off the loop.", name="loop_blocked")
def loop_lags(facts: Facts) -> Finding | None:
    """The event loop of a running collection is late again and again."""
    live = facts.live
    if live is None or min(live["loop_lag_s"], live.get("loop_lag_before_s", 0.0)) < _MIN_LAG_S:
        return None
    return Finding(
        "loop_blocked",
        Layer.THROUGHPUT,
        f"the event loop of the collection is {live['loop_lag_s']:.1f} s late",
        "code of an environment, agent or model server blocks it for seconds at a time, or the host is overloaded",
        "find the code: py-spy dump --pid PID; move it to await asyncio.to_thread(…), or set runs_in: child",
        (Evidence(f"late by {live['loop_lag_before_s']:.1f} s, then by {live['loop_lag_s']:.1f} s"),),
        Confidence.MEDIUM,
        weight=56,
    )


RULES: Final = (process_stopped, disk_wait, loop_blocked, loop_lags)
