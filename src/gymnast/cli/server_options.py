"""Options for a policy server and a sandbox service that run inside each job."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def option(name: str, text: str, *short: str, **more: Any) -> Any:
    return typer.Option(*short, f"--{name}", help=text, **more)


ServerAddress = Annotated[str | None, option("server-address", "Base URL of a policy server that is already running.")]
ServerType = Annotated[
    str | None, option("server-type", "Start a policy server in each job: vllm, sglang or command.", "--server")
]
ServerGpus = Annotated[int | None, option("server-gpus", "GPUs per node for the server.", min=0)]
ServerNodes = Annotated[int, option("server-nodes", "Nodes for the server.", min=1)]
ServerArgs = Annotated[str, option("server-args", "Extra arguments for the server.")]
ServerEntrypoint = Annotated[
    str | None,
    option(
        "server-entrypoint",
        "Command that starts the server; for type `command` the full line, with {host}, {port}, {model}.",
        "--server-command",
    ),
]
ServerContainer = Annotated[
    str | None, option("server-container", "Container of the server, as named in the cluster file. [default: its type]")
]
ServerReplicas = Annotated[int | None, option("server-replicas", "Servers per node.", min=1)]
TensorParallel = Annotated[int | None, option("tensor-parallel", "GPUs that share each layer.", min=1)]
PipelineParallel = Annotated[int | None, option("pipeline-parallel", "Pipeline stages.", min=1)]
DataParallel = Annotated[
    int | None, option("data-parallel", "The server's own data-parallel mode: one process, one address.", min=1)
]
ServerRestarts = Annotated[int, option("server-restarts", "How often to restart a server that dies.", min=0)]
ServerReadyPath = Annotated[str | None, option("server-ready-path", "Path that returns 200 once the server is ready.")]
ServerReadyTimeout = Annotated[
    float, option("server-ready-timeout", "Seconds to wait for the server to be ready.", min=0)
]
TrustRemoteCode = Annotated[bool, option("trust-remote-code", "Let the server run code that ships with the model.")]
WithSandbox = Annotated[bool, option("with-sandbox", "Start a sandbox service in each job.")]
SandboxContainer = Annotated[
    str, option("sandbox-container", "Container of the sandbox, as named in the cluster file.")
]
SandboxCommand = Annotated[str | None, option("sandbox-command", "Command that starts the sandbox.")]
