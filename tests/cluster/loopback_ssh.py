"""A real sshd on loopback with a key of its own, thrown away afterwards."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.runs import wait_until
from tests.helpers.parts import skip_without

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")


@dataclass(frozen=True)
class LoginNode:
    """A host that ssh reaches as `login`, given its options."""

    folder: Path
    log: Path

    @property
    def options(self) -> tuple[str, ...]:
        return ("-F", str(self.folder / "config"))


@contextmanager
def login_node(folder: Path, environment: dict[str, str]) -> Iterator[LoginNode]:
    """sshd on a free port of loopback; sessions there have `environment` and nothing else of ours."""
    if SSHD is None:
        skip_without("openssh-server")
    folder.mkdir(mode=0o700)
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    port, node = _free_port(), LoginNode(folder, folder / "sshd.log")
    (folder / "authorized_keys").write_text((folder / "user_key.pub").read_text())
    variables = " ".join(f'"{name}={value}"' for name, value in environment.items())
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/authorized_keys\n"
        f"PasswordAuthentication no\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\nSetEnv {variables}\n"
    )
    (folder / "config").write_text(
        f"Host login\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {folder}/user_key\n  IdentitiesOnly yes\n"
        f"  StrictHostKeyChecking accept-new\n  UserKnownHostsFile {folder}/known_hosts\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd wants it for itself
    process = subprocess.Popen([SSHD, "-D", "-f", folder / "sshd_config", "-E", node.log])
    try:
        wait_until(lambda: "Server listening" in _text(node.log) or process.poll() is not None, "sshd listens")
        assert process.poll() is None, _text(node.log)
        yield node
    finally:
        process.terminate()
        process.wait(timeout=300)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:  # sshd cannot say which port it took
        return int(held.getsockname()[1])


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
