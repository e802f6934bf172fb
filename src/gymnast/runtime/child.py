"""The main program of a child process: receive the instance, bind, serve, and exit with the parent."""

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
    CHILD_DECODER,
    CONTROL_FD_FLAG,
    Bound,
    ChildSpec,
    Failed,
    Peers,
    Ready,
    Stop,
    ToParent,
    encode_line,
    parse_instance,
)
from gymnast.runtime.listener import loop_factory
from gymnast.runtime.loader import import_entry
from gymnast.runtime.ports import bind_socket


class Control:
    """The child's end of the control socket, read by a thread, so that even a busy loop notices the parent's death."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._stream = sock.makefile("rb")

    def receive(self) -> ChildSpec | Peers | Stop:
        text = b""
        with contextlib.suppress(ConnectionError):
            text = self._stream.readline()
        if not text:
            _kill_own_group()
        message: ChildSpec | Peers | Stop = CHILD_DECODER.decode(text)
        return message

    def send(self, message: ToParent) -> None:
        try:
            self._sock.sendall(encode_line(message))
        except ConnectionError:
            _kill_own_group()

    def watch(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        """Wait in a thread for the parent to send Stop or to die."""

        def wait() -> None:
            self.receive()  # only Stop can follow; at the end of the stream this does not return
            loop.call_soon_threadsafe(stop.set)

        threading.Thread(target=wait, name="control", daemon=True).start()


def main() -> None:
    """Run the instance that the parent sends."""
    parser = argparse.ArgumentParser()
    parser.add_argument(CONTROL_FD_FLAG, type=int, required=True)
    control = Control(socket.socket(fileno=parser.parse_args().control_fd))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)  # schedulers signal every process; the parent decides when we stop
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    spec = control.receive()
    assert isinstance(spec, ChildSpec)
    try:
        sock = bind_socket(
            spec.host, spec.port, what=spec.instance["name"], hint="choose another `port`, or none to use a free one"
        )
        control.send(Bound(sock.getsockname()[1]))
        peers = control.receive()
        assert isinstance(peers, Peers)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(spec, peers, sock, control))
    except UserError as error:
        control.send(Failed(error.what, error.where, error.next))
        sys.exit(1)


async def _serve(spec: ChildSpec, peers: Peers, sock: socket.socket, control: Control) -> None:
    stop = asyncio.Event()
    own = replace(parse_instance(spec.instance), runs_in="process")
    import_entry(own, alone=True)  # what is imported again later is the same module
    others = {name: url for name, url in peers.urls.items() if name != own.name}
    options = CellOptions(
        token=spec.token,
        request_debug=spec.request_debug,
        strict_settings=spec.strict_settings,
        scrubber=Scrubber(own.block),
        config=spec.config,
    )
    async with Cell([own], options, peers=others, sockets={own.name: sock}):
        control.watch(asyncio.get_running_loop(), stop)
        control.send(Ready())
        await stop.wait()


def _kill_own_group() -> None:
    """Kill this process and all it started, because the parent died."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main()
