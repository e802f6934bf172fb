"""The sandbox service of a job as a component, for environments that ask one over HTTP as NeMo Skills does. Pure.

Environments that ship with Gymnast need none: they run programs within walls of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.cluster.components.spec import Component, ReadyCheck
from gymnast.errors import UserError

if TYPE_CHECKING:
    from gymnast.cluster.components.spec import Container

SANDBOX: Final = "sandbox"
"""The name of the component."""
ITS_ADDRESS: Final = {
    "NEMO_SKILLS_SANDBOX_HOST": f"{{host:{SANDBOX}}}",
    "NEMO_SKILLS_SANDBOX_PORT": f"{{port:{SANDBOX}}}",
}
"""What a component that uses it has in its environment."""
_COMMAND: Final = ("/start-with-nginx.sh",)
"""What starts the service in the sandbox container of NeMo Skills."""


@dataclass(frozen=True, slots=True)
class SandboxWanted:
    """A sandbox service, as options describe it."""

    container: str = SANDBOX
    """By the site's name for it."""
    command: tuple[str, ...] = ()
    """Empty: what that container starts it with."""


def sandbox_component(wanted: SandboxWanted, container: Container | None, where: str | None = None) -> Component:
    """The component. Raises UserError where there is neither a container nor a command."""
    if container is None and not wanted.command:
        raise UserError(
            "with_sandbox needs a container or a command for the sandbox service",
            where=where or "without a cluster's file",
            next=f"name the container '{wanted.container}' in the cluster's file, give --sandbox-command, or "
            "leave with_sandbox out: environments that ship with Gymnast run programs in a sandbox of their own",
        )
    return Component(
        SANDBOX,
        wanted.command or _COMMAND,
        container=container,
        environment={"NGINX_PORT": "{port}", "LISTEN_PORT": "{port}", "NEMO_SKILLS_SANDBOX_PORT": "{port}"},
        ready=ReadyCheck("/health", deadline_s=600.0),
        restarts=3,
    )
