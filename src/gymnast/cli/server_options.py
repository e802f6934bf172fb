"""Options of a policy server and a sandbox service that run in each job."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def option(name: str, text: str, *short: str, **more: Any) -> Any:
    """An option that may be spelled with hyphens or underscores."""
    spelt = {f"--{name}", f"--{name.replace('-', '_')}"}
    return typer.Option(*short, *sorted(spelt), help=text, **more)


ServerAddress = Annotated[str | None, option("server-address", "A policy server that runs already: its base URL.")]
ServerType = Annotated[
    str | None, option("server-type", "A policy server in each job: vllm, sglang or command.", "--server")
]
ServerGpus = Annotated[int | None, option("server-gpus", "GPUs of each node for the server.")]
ServerNodes = Annotated[int, option("server-nodes", "Nodes for the server.", min=1)]
ServerArgs = Annotated[str, option("server-args", "Arguments for the server alone.")]
ServerEntrypoint = Annotated[
    str | None,
    option(
        "server-entrypoint",
        "What starts the server; for `command` all of it, with {host}, {port}, {model}.",
        "--server-command",
    ),
]
ServerContainer = Annotated[
    str | None, option("server-container", "The cluster's container for it. [default: its type's name]")
]
ServerReplicas = Annotated[int | None, option("server-replicas", "Servers on each node.", min=1)]
TensorParallel = Annotated[int | None, option("tensor-parallel", "GPUs that share a layer.", min=1)]
PipelineParallel = Annotated[int | None, option("pipeline-parallel", "Stages of layers.", min=1)]
DataParallel = Annotated[
    int | None, option("data-parallel", "The engine's own data-parallel mode: one server, one address.", min=1)
]
ServerRestarts = Annotated[int, option("server-restarts", "How often a server that dies is started again.", min=0)]
ServerReadyPath = Annotated[str | None, option("server-ready-path", "Path that answers 200 when it is ready.")]
ServerReadyTimeout = Annotated[float, option("server-ready-timeout", "Seconds it may take to be ready.", min=0)]
TrustRemoteCode = Annotated[bool, option("trust-remote-code", "Let the server run code that comes with the model.")]
WithSandbox = Annotated[bool, option("with-sandbox", "A sandbox service in each job.")]
SandboxContainer = Annotated[str, option("sandbox-container", "The cluster's container for it.")]
SandboxCommand = Annotated[str | None, option("sandbox-command", "What starts it.")]
