"""The main program of a child process: receive what to be, bind, serve, and end with the parent."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from dataclasses import replace

from gymnast.config.secrets import Scrubber
from gymnast.errors import UserError
from gymnast.runtime.cell import Cell, CellOptions
from gymnast.runtime.control import (
    CONTROL_FD_FLAG,
    Bound,
    Failed,
    Launch,
    Peers,
    Ready,
    Stop,
    ToParent,
    instance_from,
    line,
    to_child,
)
from gymnast.runtime.listener import loop_factory
from gymnast.runtime.ports import bind


class Control:
    """The child's end of the control socket. A thread reads it, so that even a busy loop notices the parent's end."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._stream = sock.makefile("rb")

    def receive(self) -> Launch | Peers | Stop:
        text = b""
        with contextlib.suppress(ConnectionError):
            text = self._stream.readline()
        if not text:
            _end_with_parent()
        message: Launch | Peers | Stop = to_child.decode(text)
        return message

    def send(self, message: ToParent) -> None:
        try:
            self._sock.sendall(line(message))
        except ConnectionError:
            _end_with_parent()

    def watch(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        """Wait, in a thread, for the parent to say stop or to be gone."""

        def wait() -> None:
            self.receive()  # Stop is the only message left; the end of the stream does not return
            loop.call_soon_threadsafe(stop.set)

        threading.Thread(target=wait, name="control", daemon=True).start()


def main() -> None:
    """Be the server that the parent describes."""
    parser = argparse.ArgumentParser()
    parser.add_argument(CONTROL_FD_FLAG, type=int, required=True)
    control = Control(socket.socket(fileno=parser.parse_args().control_fd))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)  # schedulers signal every process; the parent decides when we end
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    launch = control.receive()
    assert isinstance(launch, Launch)
    try:
        sock = bind(launch.host, launch.port, what=launch.instance["name"], way_on="choose another `port`, or none")
        control.send(Bound(sock.getsockname()[1]))
        peers = control.receive()
        assert isinstance(peers, Peers)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(launch, peers, sock, control))
    except UserError as error:
        control.send(Failed(error.what, error.where, error.next))
        sys.exit(1)


async def _serve(launch: Launch, peers: Peers, sock: socket.socket, control: Control) -> None:
    stop = asyncio.Event()
    own = replace(instance_from(launch.instance), runs_in="process")
    others = {name: url for name, url in peers.urls.items() if name != own.name}
    options = CellOptions(
        token=launch.token,
        request_debug=launch.request_debug,
        strict_settings=launch.strict_settings,
        scrubber=Scrubber(own.block),
        config=launch.config,
    )
    async with Cell([own], options, peers=others, sockets={own.name: sock}):
        control.watch(asyncio.get_running_loop(), stop)
        control.send(Ready())
        await stop.wait()


def _end_with_parent() -> None:
    """The parent is gone: nothing we started may outlive it."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main()
