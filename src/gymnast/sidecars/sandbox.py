"""A sandbox service as a component of a job, for environments that use one over HTTP as NeMo Skills does. Pure.

Environments that ship with Gymnast do not need it: they have their own sandbox.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gymnast.errors import UserError
from gymnast.sidecars.component import Component, Container, ReadyCheck

SANDBOX: Final = "sandbox"
"""The name of the component."""
SANDBOX_ENVIRONMENT: Final = {
    "NEMO_SKILLS_SANDBOX_HOST": f"{{host:{SANDBOX}}}",
    "NEMO_SKILLS_SANDBOX_PORT": f"{{port:{SANDBOX}}}",
}
"""The environment of a component that uses it."""
_COMMAND: Final = ("/start-with-nginx.sh",)
"""Starts the service in the sandbox container of NeMo Skills."""


@dataclass(frozen=True, slots=True)
class SandboxOptions:
    container: str = SANDBOX
    """The site's name for it."""
    command: tuple[str, ...] = ()
    """Empty: the container's default."""


def make_sandbox_component(options: SandboxOptions, container: Container | None, where: str | None = None) -> Component:
    """Make the component. Raises UserError without a container and a command."""
    if container is None and not options.command:
        raise UserError(
            "with_sandbox needs a container or a command for the sandbox service",
            where=where or "without a cluster file",
            next=f"add the container '{options.container}' to the cluster file, give --sandbox-command, or leave "
            "with_sandbox out: environments that ship with Gymnast have their own sandbox",
        )
    return Component(
        SANDBOX,
        options.command or _COMMAND,
        container=container,
        environment={"NGINX_PORT": "{port}", "LISTEN_PORT": "{port}", "NEMO_SKILLS_SANDBOX_PORT": "{port}"},
        ready=ReadyCheck("/health", deadline_s=600.0),
        restarts=3,
    )
