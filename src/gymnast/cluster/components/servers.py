"""Policy servers of a job as components: vLLM, SGLang, or any command that serves an OpenAI-compatible API. Pure.

Three layouts. Replicas: each a server of its own on its own GPUs, as many on each node as fit. One server over several
nodes, where the model needs more GPUs than a node has. And vLLM's own data-parallel mode: one address, one server.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, get_args

from gymnast.cluster.components.spec import Component, ReadyCheck
from gymnast.errors import NotFoundError, UserError, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.cluster.components.spec import Container

ServerKind = Literal["vllm", "sglang", "command"]
KINDS: Final = get_args(ServerKind)
POLICY: Final = "policy"
"""The name of the component."""
_ALIASES: Final = {"openai-compatible": "command", "openai": "command", "generic": "command"}
_TRUST: Final = "--trust-remote-code"
_VLLM_SIZES: Final = ("--tensor-parallel-size", "--pipeline-parallel-size")


@dataclass(frozen=True, slots=True)
class ServerWanted:
    """A policy server, as options describe it."""

    kind: ServerKind
    model: str
    gpus: int = 0
    """On each node; 0 for a server on CPUs."""
    nodes: int = 1
    tensor_parallel: int | None = None
    """GPUs that one layer is split over; without it: all GPUs of a node go to one server."""
    pipeline_parallel: int = 1
    replicas: int | None = None
    """Servers on each node; without it: as many as fit."""
    data_parallel: int | None = None
    """vLLM's and SGLang's own mode, over all nodes: one server, one address."""
    trust_remote_code: bool = False
    arguments: tuple[str, ...] = ()
    """For the server alone."""
    command: tuple[str, ...] = ()
    """For kind `command`; its own entrypoint for the others."""
    ready_path: str | None = None
    ready_deadline_s: float = 3600.0
    restarts: int = 3
    container: Container | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    het_group: int | None = None
    cpus_per_task: int | None = None
    memory_mb: int | None = None

    @property
    def tensor(self) -> int:
        """GPUs that a layer is split over: as asked, or what a node's GPUs leave for each part."""
        if self.tensor_parallel is not None:
            return self.tensor_parallel
        if self.data_parallel is not None:
            return max(1, self.gpus * self.nodes // self.data_parallel // self.pipeline_parallel)
        return max(1, self.gpus // (self.replicas or 1) // self.pipeline_parallel)

    @property
    def gpus_per_server(self) -> int:
        """GPUs of one replica, or of one data-parallel part."""
        return self.tensor * self.pipeline_parallel


def kind_named(name: str) -> ServerKind:
    """The kind of that name. Raises NotFoundError with suggestions."""
    name = _ALIASES.get(name, name)
    for kind in KINDS:
        if kind == name:
            found: ServerKind = kind
            return found
    raise NotFoundError(f"there is no server type '{name}'", next=suggest(name, KINDS))


def server_component(wanted: ServerWanted) -> Component:
    """The component that serves the policy. Raises UserError for a layout that cannot be."""
    _check(wanted)
    if wanted.kind != "command" and wanted.data_parallel is not None:
        return _data_parallel(wanted)
    if wanted.kind != "command" and wanted.gpus and wanted.gpus_per_server > wanted.gpus:
        return _spread(wanted, _parallel(wanted))
    fits = wanted.gpus // wanted.gpus_per_server if wanted.gpus else 1
    return _component(
        wanted,
        _words(wanted, *_parallel(wanted)),
        tasks_per_node=wanted.replicas or fits,
        gpus_per_task=wanted.gpus_per_server if wanted.gpus else 0,
        restarts=wanted.restarts,
    )


def _data_parallel(wanted: ServerWanted) -> Component:
    """One server with the engine's own load balancing; over nodes, the first answers and the others only compute."""
    assert wanted.data_parallel is not None
    parallel = _parallel(wanted)
    here = wanted.data_parallel // wanted.nodes
    if wanted.kind == "sglang":
        size = ("--dp-size", str(wanted.data_parallel))
        return _spread(wanted, (*parallel, *size)) if wanted.nodes > 1 else _whole(wanted, (*parallel, *size))
    size = ("--data-parallel-size", str(wanted.data_parallel))
    if wanted.nodes == 1:
        return _whole(wanted, (*parallel, *size))
    local = ("--data-parallel-size-local", str(here), "--data-parallel-address", "{head}")
    shared = (*parallel, *size, *local, "--data-parallel-rpc-port", "{head_port}")
    rest = (*shared, "--headless", "--data-parallel-start-rank", f"{{task*{here}}}")
    return _whole(wanted, shared, rest=_words(wanted, *rest))


def _spread(wanted: ServerWanted, parallel: Sequence[str]) -> Component:
    """One server whose model is split over the GPUs of several nodes: the first answers, the others compute."""
    ranks = ("--nnodes", str(wanted.nodes), "--node-rank", "{task}")
    if wanted.kind == "sglang":
        words = _words(wanted, *parallel, *ranks, "--dist-init-addr", "{head}:{head_port}")
        return _whole(wanted, (), words=words, rest=words)
    shared = (*parallel, *ranks, "--master-addr", "{head}", "--master-port", "{head_port}")
    return _whole(wanted, shared, rest=_words(wanted, *shared, "--headless"))


def _whole(
    wanted: ServerWanted, parallel: Sequence[str], *, words: tuple[str, ...] = (), rest: tuple[str, ...] = ()
) -> Component:
    """A server with all GPUs of its nodes. One over several nodes cannot be started again in part."""
    return _component(
        wanted,
        words or _words(wanted, *parallel),
        rest_command=rest,
        tasks_per_node=1,
        gpus_per_task=wanted.gpus,
        restarts=0 if rest else wanted.restarts,
    )


def _component(
    wanted: ServerWanted,
    words: tuple[str, ...],
    *,
    rest_command: tuple[str, ...] = (),
    tasks_per_node: int,
    gpus_per_task: int,
    restarts: int,
) -> Component:
    default = "/v1/models" if wanted.kind == "command" else "/health"
    return Component(
        POLICY,
        words,
        rest_command=rest_command,
        nodes=wanted.nodes,
        tasks_per_node=tasks_per_node,
        gpus_per_task=gpus_per_task,
        cpus_per_task=wanted.cpus_per_task,
        memory_mb=wanted.memory_mb,
        container=wanted.container,
        environment=wanted.environment,
        het_group=wanted.het_group,
        ready=ReadyCheck(wanted.ready_path or default, deadline_s=wanted.ready_deadline_s),
        restarts=restarts,
    )


def _words(wanted: ServerWanted, *parallel: str) -> tuple[str, ...]:
    trust = (_TRUST,) if wanted.trust_remote_code and _TRUST not in wanted.arguments else ()
    place = ("--host", "{host}", "--port", "{port}")
    if wanted.kind == "vllm":
        begin = wanted.command or ("vllm", "serve")
        return (*begin, wanted.model, *_served_name(wanted), *place, *parallel, *trust, *wanted.arguments)
    if wanted.kind == "sglang":
        begin = wanted.command or ("python3", "-m", "sglang.launch_server")
        named = ("--model-path", wanted.model, *_served_name(wanted))
        return (*begin, *named, *place, *parallel, *trust, *wanted.arguments)
    return (*(word.replace("{model}", wanted.model) for word in wanted.command), *wanted.arguments)


def _served_name(wanted: ServerWanted) -> tuple[str, ...]:
    """Requests name the model as the option did, also where that is a folder."""
    given = any(word.split("=")[0] == "--served-model-name" for word in wanted.arguments)
    return () if given else ("--served-model-name", wanted.model)


def served_name(wanted: ServerWanted) -> str:
    """What requests have to call the model."""
    words = iter(wanted.arguments)
    for word in words:
        if word.startswith("--served-model-name="):
            return word.split("=", 1)[1]
        if word == "--served-model-name":
            return next(words, wanted.model)
    return wanted.model


def _parallel(wanted: ServerWanted) -> tuple[str, ...]:
    if wanted.kind == "command":
        return ()
    tensor, pipeline = ("--tp-size", "--pp-size") if wanted.kind == "sglang" else _VLLM_SIZES
    size = wanted.tensor * wanted.data_parallel if wanted.kind == "sglang" and wanted.data_parallel else wanted.tensor
    given = {word.split("=")[0] for word in wanted.arguments}
    found: tuple[str, ...] = ()
    if size > 1 and not given & {tensor, "-tp", "--tp"}:
        found += (tensor, str(size))
    if wanted.pipeline_parallel > 1 and not given & {pipeline, "-pp", "--pp"}:
        found += (pipeline, str(wanted.pipeline_parallel))
    return found


def _check(wanted: ServerWanted) -> None:
    if wanted.kind == "command" and not wanted.command:
        raise UserError(
            "a server of type 'command' needs its command",
            next="--server-command 'my-server --host {host} --port {port}'",
        )
    if wanted.nodes < 1 or wanted.gpus < 0:
        raise UserError(f"{wanted.nodes} nodes with {wanted.gpus} GPUs each cannot hold a server")
    if wanted.data_parallel is not None:
        _check_data_parallel(wanted)
    elif wanted.gpus:
        _check_replicas(wanted)


def _check_data_parallel(wanted: ServerWanted) -> None:
    assert wanted.data_parallel is not None
    if wanted.replicas not in {None, 1}:
        raise UserError(
            "several replicas and the engine's own data-parallel mode exclude each other",
            next="leave out --server-replicas or --data-parallel",
        )
    if wanted.data_parallel % wanted.nodes:
        raise UserError(f"--data-parallel {wanted.data_parallel} cannot be split over {wanted.nodes} nodes evenly")
    each, there = wanted.gpus_per_server, wanted.gpus * wanted.nodes
    if there and each * wanted.data_parallel > there:
        raise UserError(
            f"{wanted.data_parallel} data-parallel parts of {each} GPUs need {each * wanted.data_parallel} GPUs, "
            f"and there are {there}",
            next="ask for more with --server-gpus (per node) or --server-nodes",
        )


def _check_replicas(wanted: ServerWanted) -> None:
    each, replicas = wanted.gpus_per_server, wanted.replicas or 1
    if each > wanted.gpus and replicas == 1:
        if each != wanted.gpus * wanted.nodes:
            raise UserError(
                f"a server of {each} GPUs does not fill {wanted.nodes} nodes with {wanted.gpus} GPUs each",
                next="tensor × pipeline parallel must be the GPUs of a node, a part of them, or those of all nodes",
            )
    elif each * replicas > wanted.gpus:
        raise UserError(
            f"{replicas} replicas of {each} GPUs need more than the {wanted.gpus} of a node",
            next="ask for fewer with --server-replicas, or for smaller ones with --tensor-parallel",
        )


def split_arguments(text: str | Sequence[str] | None) -> tuple[str, ...]:
    """Arguments as a shell would split them; a sequence is taken as it is."""
    if text is None:
        return ()
    return tuple(shlex.split(text)) if isinstance(text, str) else tuple(text)
