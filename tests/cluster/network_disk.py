"""A real network file system on this machine: GlusterFS with a server and several clients, each with caches of its own.

What one client writes the others see up to a second later, a file that was replaced elsewhere is stale, and without the
server every operation hangs or fails: what runs on many hosts meets on NFS and the like.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gymnast.executors.executor import Submission, WorkerRequest, ignore_intent
from gymnast.executors.local import LocalExecutor
from tests.cluster.runs import wait_until
from tests.helpers.parts import skip_without

SERVER = """\
volume files
  type storage/posix
  option directory {files}
end-volume
volume locks
  type features/locks
  subvolumes files
end-volume
volume server
  type protocol/server
  option transport-type tcp
  option transport.socket.bind-address 127.0.0.1
  option transport.socket.listen-port {port}
  option auth.addr.locks.allow 127.0.0.1
  subvolumes locks
end-volume
"""
CLIENT = """\
volume remote
  type protocol/client
  option transport-type tcp
  option remote-host 127.0.0.1
  option remote-port {port}
  option remote-subvolume locks
end-volume
volume behind
  type performance/write-behind
  subvolumes remote
end-volume
volume metadata
  type performance/md-cache
  subvolumes behind
end-volume
"""


@dataclass(frozen=True)
class NetworkDisk:
    """One file system, mounted once for each client."""

    folder: Path
    clients: tuple[Path, ...]

    def start_server(self) -> None:
        """Clients find it again by themselves, after some seconds."""
        self._start("glusterfsd", "server")

    def kill_server(self) -> None:
        """Whatever the clients ask for fails until it is back."""
        self.signal_server(signal.SIGKILL)

    def signal_server(self, number: signal.Signals) -> None:
        """With SIGSTOP whatever the clients ask for hangs until SIGCONT."""
        os.kill(int((self.folder / "server.pid").read_text()), number)

    def mount(self) -> None:
        for client in self.clients:
            client.mkdir()
            self._start("glusterfs", client.name, str(client))
        for client in self.clients:
            wait_until(client.is_mount, f"{client} mounted")

    def unmount(self) -> None:
        for client in self.clients:
            subprocess.run(["umount", "--lazy", client], check=False, capture_output=True, timeout=30)
        for record in self.folder.glob("*.pid"):
            pid = int(record.read_text())
            with_it = Path(f"/proc/{pid}")
            if with_it.exists():
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda gone=with_it: not gone.exists(), f"the end of {record.stem}")  # type: ignore[misc]

    def _start(self, program: str, name: str, *more: str) -> None:
        volume = self.folder / ("server.vol" if name == "server" else "client.vol")
        log, record = self.folder / f"{name}.log", self.folder / f"{name}.pid"
        words = [program, "-f", str(volume), f"--log-file={log}", "-p", str(record), *more]
        subprocess.run(words, check=True, capture_output=True, timeout=30)


@contextmanager
def network_disk(folder: Path, clients: int) -> Iterator[NetworkDisk]:
    """The file system, for the time of the block."""
    if os.geteuid() != 0:
        skip_without("root")
    if not Path("/dev/fuse").exists() or not shutil.which("glusterfsd"):
        skip_without("glusterfs-server")
    files = folder / "files"
    files.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]  # the server cannot take a free one by itself
    (folder / "server.vol").write_text(SERVER.format(files=files, port=port))
    (folder / "client.vol").write_text(CLIENT.format(port=port))
    disk = NetworkDisk(folder, tuple(folder / f"host{number}" for number in range(clients)))
    try:
        disk.start_server()
        disk.mount()
        yield disk
    finally:
        disk.unmount()


class OnClients(LocalExecutor):
    """Workers as on several hosts: each submission works through one client, the next through another."""

    def __init__(self, disk: NetworkDisk) -> None:
        super().__init__(grace_s=20)
        self._clients = disk.clients

    def submit(
        self, wanted: WorkerRequest, number: int, note: Callable[[Submission], None] = ignore_intent
    ) -> Submission:
        name = wanted.run.relative_to(self._clients[0])
        return super().submit(replace(wanted, run=self._clients[number % len(self._clients)] / name), number, note)
