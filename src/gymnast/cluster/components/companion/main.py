"""`python3 companion.pyz --spec FILE --folder JOB [--task N]`: run one task of one component of a job."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gymnast.cluster.components.companion import surroundings
from gymnast.cluster.components.companion.board import Board
from gymnast.cluster.components.companion.leasing import lease_port
from gymnast.cluster.components.companion.order import read_order
from gymnast.cluster.components.companion.stopping import Stopping
from gymnast.cluster.components.companion.supervise import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gymnast.cluster.components.companion.order import Order

_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.25
_LONGEST_LOOK_S = 5.0
BLAMED = 70
"""The exit code of a component that never started because another one died or was not ready in time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a component; returns its exit code."""
    parser = argparse.ArgumentParser(description="Runs one task of one component of a job.")
    parser.add_argument("--spec", type=Path, required=True, help="the component's file")
    parser.add_argument("--folder", type=Path, help="the job's folder (default: the folder of --spec)")
    parser.add_argument("--task", type=int, help="which task of the component (default: SLURM_PROCID, or 0)")
    told = parser.parse_args(arguments)
    order = read_order(told.spec)
    board = Board((told.folder or told.spec.parent).resolve(), order.name, surroundings.task_number(told.task))
    say = speaker(order.name, board.task)
    stopping = Stopping()
    stopping.listen()
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what a killed guard leaves behind is ours to end
    board.clear()
    problem = missing(order, board, stopping)
    if problem is not None:
        say(problem)
        return 0 if stopping.asked else BLAMED
    try:
        places = known_places(order, board, stopping)
        return Supervisor(order, board, places, stopping, say).run()
    except (OSError, ValueError) as error:
        what = f"{order.name} cannot be started: {error}"
        note = {"component": order.name, "task": board.task, "what": what, "exit_code": 1, "log_tail": ""}
        board.note_death({**note, "log": str(board.log), "at": time.time()})
        say(what)
        return 1


def missing(order: Order, board: Board, stopping: Stopping) -> str | None:
    """Wait for the components that this one needs, in their order; what is wrong if one of them does not come."""
    deadline, pause_s = time.monotonic() + order.needs_deadline_s, _LOOK_S
    for name, number in order.needs.items():
        while len(board.addresses_of(name)) < number:
            dead = [note for note in board.deaths() if note["component"] in order.needs]
            if dead:
                return f"{order.name} is not started: {dead[0]['what']}"
            if stopping.asked:
                return f"{order.name} was stopped while it waited for {name}"
            if time.monotonic() > deadline:
                there = len(board.addresses_of(name))
                return f"{order.name} waited {order.needs_deadline_s:g} s for {name}: {there} of {number} are ready"
            stopping.wait(pause_s)
            pause_s = min(1.5 * pause_s, _LONGEST_LOOK_S)
    return None


def known_places(order: Order, board: Board, stopping: Stopping) -> dict[str, str]:
    """What is known before the component starts, its own port excepted."""
    places = {"host": order.bind, "task": str(board.task), "folder": str(board.folder), "gpus": ""}
    if order.gpus_per_task:
        place = surroundings.local_place(board.task, order.tasks_per_node)
        share = surroundings.gpu_share(
            surroundings.visible_gpus(),
            place,
            order.gpus_per_task,
            order.tasks_per_node,
            bound=surroundings.is_bound_by_slurm(),
        )
        places["gpus"] = ",".join(share)
    for name in order.needs:
        places[f"addresses:{name}"] = f"addresses://{board.folder}/addresses/{name}"
        for address in board.addresses_of(name)[:1]:
            places.update({f"{what}:{name}": str(address[what]) for what in ("host", "port", "url")})
    if order.is_spread:
        head = _head(order, board, stopping)
        places.update(head=str(head["host"]), head_port=str(head["port"]))
    return places


def _head(order: Order, board: Board, stopping: Stopping) -> dict[str, object]:
    """Where the first task of a program over several nodes is, as it says itself."""
    if board.task == 0:
        lease = lease_port("0.0.0.0")  # noqa: S104 - the other nodes have to reach it
        lease.let_bind()
        names = surroundings.host_names() if order.bind != "127.0.0.1" else ["127.0.0.1"]
        board.take_place({"host": names[0], "port": lease.port})
    deadline = time.monotonic() + order.needs_deadline_s
    while time.monotonic() < deadline and not stopping.asked:
        found = board.place_of(order.name, 0)
        if found is not None:
            return found
        stopping.wait(_LOOK_S)
    raise ValueError(f"the first task of {order.name} did not say where it is")


def speaker(name: str, task: int) -> Callable[[str], None]:
    """Talk goes to standard error, with the name of the component before each line."""

    def say(text: str) -> None:
        with contextlib.suppress(OSError):  # a job's log that cannot be written is no reason to end what runs
            for line in text.splitlines():
                sys.stderr.write(f"[{name}.{task}] {line}\n")
            sys.stderr.flush()

    return say


if __name__ == "__main__":
    sys.exit(main())
