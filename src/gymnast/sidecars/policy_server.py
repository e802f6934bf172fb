"""Policy servers as components of a job: vLLM, SGLang, or any command that serves an OpenAI-compatible API. Pure.

Three layouts. Replicas: independent servers, as many on each node as its GPUs allow. Multi-node: one server over
several nodes, for a model that needs more GPUs than a node has. Data parallel: the inference server's own mode, with
one address.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, cast, get_args

from gymnast.errors import NotFoundError, UserError, suggest
from gymnast.sidecars.component import Component, Container, ReadyCheck

if TYPE_CHECKING:
    from collections.abc import Sequence

ServerKind = Literal["vllm", "sglang", "command"]
KINDS: Final = get_args(ServerKind)
POLICY: Final = "policy"
"""The name of the component."""
_ALIASES: Final = {"openai-compatible": "command", "openai": "command", "generic": "command"}
_TRUST: Final = "--trust-remote-code"
_VLLM_SIZES: Final = ("--tensor-parallel-size", "--pipeline-parallel-size")


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """A policy server and its layout."""

    kind: ServerKind
    model: str
    gpus: int = 0
    """On each node; 0 for a server on CPUs."""
    nodes: int = 1
    tensor_parallel: int | None = None
    """GPUs that one layer is split over. Default: all GPUs of a node for one server."""
    pipeline_parallel: int = 1
    replicas: int | None = None
    """Servers on each node. Default: as many as fit."""
    data_parallel: int | None = None
    """Ranks of vLLM's or SGLang's own mode, over all nodes: one server, one address."""
    trust_remote_code: bool = False
    arguments: tuple[str, ...] = ()
    """Further arguments of the server."""
    command: tuple[str, ...] = ()
    """For kind `command`; for the others, an entrypoint."""
    ready_path: str | None = None
    ready_deadline_s: float = 3600.0
    restarts: int = 3
    container: Container | None = None

    @property
    def tensor(self) -> int:
        """GPUs that a layer is split over: as configured, or a server's share of the node."""
        if self.tensor_parallel is not None:
            return self.tensor_parallel
        if self.data_parallel is not None:
            return max(1, self.gpus * self.nodes // self.data_parallel // self.pipeline_parallel)
        return max(1, self.gpus // (self.replicas or 1) // self.pipeline_parallel)

    @property
    def gpus_per_server(self) -> int:
        """GPUs of one replica, or of one data-parallel rank."""
        return self.tensor * self.pipeline_parallel


def parse_server_kind(name: str) -> ServerKind:
    """Parse a server kind or an alias. Raises NotFoundError with suggestions."""
    name = _ALIASES.get(name, name)
    if name in KINDS:
        return cast("ServerKind", name)
    raise NotFoundError(f"there is no server type '{name}'", next=suggest(name, KINDS))


def make_server_component(spec: ServerSpec) -> Component:
    """Make the component that serves the policy. Raises UserError for an impossible layout."""
    _check_layout(spec)
    if spec.kind != "command" and spec.data_parallel is not None:
        return _data_parallel(spec)
    if spec.kind != "command" and spec.gpus and spec.gpus_per_server > spec.gpus:
        return _multi_node(spec, _parallel_arguments(spec))
    capacity = spec.gpus // spec.gpus_per_server if spec.gpus else 1
    return _make_component(
        spec,
        _command(spec, *_parallel_arguments(spec)),
        tasks_per_node=spec.replicas or capacity,
        gpus_per_task=spec.gpus_per_server if spec.gpus else 0,
        restarts=spec.restarts,
    )


def _data_parallel(spec: ServerSpec) -> Component:
    """One server that balances its own load. Over several nodes, only the first serves requests."""
    assert spec.data_parallel is not None
    parallel = _parallel_arguments(spec)
    ranks_per_node = spec.data_parallel // spec.nodes
    if spec.kind == "sglang":
        size = ("--dp-size", str(spec.data_parallel))
        return _multi_node(spec, (*parallel, *size)) if spec.nodes > 1 else _one_server(spec, (*parallel, *size))
    size = ("--data-parallel-size", str(spec.data_parallel))
    if spec.nodes == 1:
        return _one_server(spec, (*parallel, *size))
    local = ("--data-parallel-size-local", str(ranks_per_node), "--data-parallel-address", "{head}")
    shared = (*parallel, *size, *local, "--data-parallel-rpc-port", "{head_port}")
    rest = (*shared, "--headless", "--data-parallel-start-rank", f"{{task*{ranks_per_node}}}")
    return _one_server(spec, shared, rest=_command(spec, *rest))


def _multi_node(spec: ServerSpec, parallel: Sequence[str]) -> Component:
    """One server with its model split over several nodes: the first serves requests, the others compute."""
    ranks = ("--nnodes", str(spec.nodes), "--node-rank", "{task}")
    if spec.kind == "sglang":
        command = _command(spec, *parallel, *ranks, "--dist-init-addr", "{head}:{head_port}")
        return _one_server(spec, (), command=command, rest=command)
    shared = (*parallel, *ranks, "--master-addr", "{head}", "--master-port", "{head_port}")
    return _one_server(spec, shared, rest=_command(spec, *shared, "--headless"))


def _one_server(
    spec: ServerSpec, parallel: Sequence[str], *, command: tuple[str, ...] = (), rest: tuple[str, ...] = ()
) -> Component:
    """A server with all GPUs of its nodes. Parts of a multi-node server cannot be restarted."""
    return _make_component(
        spec,
        command or _command(spec, *parallel),
        rest_command=rest,
        tasks_per_node=1,
        gpus_per_task=spec.gpus,
        restarts=0 if rest else spec.restarts,
    )


def _make_component(
    spec: ServerSpec,
    command: tuple[str, ...],
    *,
    rest_command: tuple[str, ...] = (),
    tasks_per_node: int,
    gpus_per_task: int,
    restarts: int,
) -> Component:
    default_path = "/v1/models" if spec.kind == "command" else "/health"
    return Component(
        POLICY,
        command,
        rest_command=rest_command,
        nodes=spec.nodes,
        tasks_per_node=tasks_per_node,
        gpus_per_task=gpus_per_task,
        container=spec.container,
        ready=ReadyCheck(spec.ready_path or default_path, deadline_s=spec.ready_deadline_s),
        restarts=restarts,
    )


def _command(spec: ServerSpec, *parallel: str) -> tuple[str, ...]:
    trust = (_TRUST,) if spec.trust_remote_code and _TRUST not in spec.arguments else ()
    address = ("--host", "{host}", "--port", "{port}")
    if spec.kind == "vllm":
        entrypoint = spec.command or ("vllm", "serve")
        return (*entrypoint, spec.model, *_name_arguments(spec), *address, *parallel, *trust, *spec.arguments)
    if spec.kind == "sglang":
        entrypoint = spec.command or ("python3", "-m", "sglang.launch_server")
        model = ("--model-path", spec.model, *_name_arguments(spec))
        return (*entrypoint, *model, *address, *parallel, *trust, *spec.arguments)
    return (*(word.replace("{model}", spec.model) for word in spec.command), *spec.arguments)


def _name_arguments(spec: ServerSpec) -> tuple[str, ...]:
    """Requests use the name that was configured, even if it is a folder."""
    is_set = any(word.split("=")[0] == "--served-model-name" for word in spec.arguments)
    return () if is_set else ("--served-model-name", spec.model)


def served_model_name(spec: ServerSpec) -> str:
    """The model name that requests must use."""
    words = iter(spec.arguments)
    for word in words:
        if word.startswith("--served-model-name="):
            return word.split("=", 1)[1]
        if word == "--served-model-name":
            return next(words, spec.model)
    return spec.model


def _parallel_arguments(spec: ServerSpec) -> tuple[str, ...]:
    if spec.kind == "command":
        return ()
    tensor, pipeline = ("--tp-size", "--pp-size") if spec.kind == "sglang" else _VLLM_SIZES
    size = spec.tensor * spec.data_parallel if spec.kind == "sglang" and spec.data_parallel else spec.tensor
    explicit = {word.split("=")[0] for word in spec.arguments}
    arguments: tuple[str, ...] = ()
    if size > 1 and not explicit & {tensor, "-tp", "--tp"}:
        arguments += (tensor, str(size))
    if spec.pipeline_parallel > 1 and not explicit & {pipeline, "-pp", "--pp"}:
        arguments += (pipeline, str(spec.pipeline_parallel))
    return arguments


def _check_layout(spec: ServerSpec) -> None:
    if spec.kind == "command" and not spec.command:
        raise UserError(
            "a server of type 'command' needs a command",
            next="--server-command 'my-server --host {host} --port {port}'",
        )
    if spec.nodes < 1 or spec.gpus < 0:
        raise UserError(f"{spec.nodes} nodes with {spec.gpus} GPUs each cannot hold a server")
    if spec.data_parallel is not None:
        _check_data_parallel(spec)
    elif spec.gpus:
        _check_replicas(spec)


def _check_data_parallel(spec: ServerSpec) -> None:
    assert spec.data_parallel is not None
    if spec.replicas not in {None, 1}:
        raise UserError("--server-replicas and --data-parallel exclude each other", next="leave one of them out")
    if spec.data_parallel % spec.nodes:
        raise UserError(f"--data-parallel {spec.data_parallel} cannot be split evenly over {spec.nodes} nodes")
    each, available = spec.gpus_per_server, spec.gpus * spec.nodes
    if available and each * spec.data_parallel > available:
        raise UserError(
            f"{spec.data_parallel} data-parallel ranks of {each} GPUs need {each * spec.data_parallel} GPUs, "
            f"but there are {available}",
            next="request more with --server-gpus (per node) or --server-nodes",
        )


def _check_replicas(spec: ServerSpec) -> None:
    each, replicas = spec.gpus_per_server, spec.replicas or 1
    if each > spec.gpus and replicas == 1:
        if each != spec.gpus * spec.nodes:
            raise UserError(
                f"a server of {each} GPUs does not fill {spec.nodes} nodes with {spec.gpus} GPUs each",
                next="tensor × pipeline parallel must equal the GPUs of a node, a part of them, or those of all nodes",
            )
    elif each * replicas > spec.gpus:
        raise UserError(
            f"{replicas} replicas of {each} GPUs need more than the {spec.gpus} of a node",
            next="request fewer with --server-replicas, or smaller ones with --tensor-parallel",
        )


def split_arguments(text: str | Sequence[str] | None) -> tuple[str, ...]:
    """Split arguments as a shell does. A sequence is used unchanged."""
    if text is None:
        return ()
    return tuple(shlex.split(text)) if isinstance(text, str) else tuple(text)
