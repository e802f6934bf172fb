"""Options of the policy: a server in each job, or one that is already running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.config.urls import BadUrl, parse_base_url
from gymnast.errors import UserError
from gymnast.sidecars.policy_server import ServerSpec, parse_server_kind

if TYPE_CHECKING:
    from gymnast.sidecars.component import Container

DUMMY_KEY: Final = "dummy"
_SEED_FLAGS: Final = {"vllm": "--seed", "sglang": "--random-seed"}


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The policy server, as the command line describes it."""

    model: str | None = None
    address: str | None = None
    type: str | None = None
    gpus: int | None = None
    nodes: int = 1
    arguments: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    container: str | None = None
    trust_remote_code: bool = False
    replicas: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    restarts: int = 3
    ready_path: str | None = None
    ready_deadline_s: float = 3600.0
    policy_model_name: str | None = None
    policy_api_key: str = DUMMY_KEY

    @property
    def is_self_hosted(self) -> bool:
        return self.type is not None

    def require_valid(self) -> ServerOptions:
        """Return the options. Raises UserError for a contradictory combination."""
        if self.type is not None and self.address is not None:
            raise UserError(
                f"the server is either in the job (server_type={self.type}) or elsewhere ({self.address})",
                next="give server_type with model and server_gpus, or server_address",
            )
        if self.type is not None and self.model is None:
            raise UserError("a server in the job needs a model", next="give --model NAME_OR_FOLDER")
        if self.type is None:
            self._check_no_server_options()
        return self

    def _check_no_server_options(self) -> None:
        options = {
            "server_gpus": self.gpus,
            "server_args": self.arguments,
            "server_container": self.container,
            "server_entrypoint": self.entrypoint,
            "trust_remote_code": self.trust_remote_code,
            "server_replicas": self.replicas,
            "tensor_parallel": self.tensor_parallel,
            "data_parallel": self.data_parallel,
        }
        names = [name for name, value in options.items() if value]
        if names:
            raise UserError(
                f"{', '.join(names)}: only for a server in the job, but none is configured",
                next="give server_type=vllm, sglang or command",
            )

    def to_spec(self, container: Container | None, seed: int | None) -> ServerSpec:
        """The spec of the server. The inference server samples with the run's seed."""
        assert self.type is not None
        assert self.model is not None
        kind = parse_server_kind(self.type)
        is_one_server = self.nodes > 1 and not any((self.replicas, self.tensor_parallel, self.data_parallel))
        is_split = is_one_server and kind != "command"
        return ServerSpec(
            kind=kind,
            model=self.model,
            gpus=self.gpus or 0,
            nodes=self.nodes,
            tensor_parallel=(self.gpus or 1) if is_split else self.tensor_parallel,
            pipeline_parallel=self.pipeline_parallel or (self.nodes if is_split else 1),
            replicas=self.replicas,
            data_parallel=self.data_parallel,
            trust_remote_code=self.trust_remote_code,
            arguments=(*self.arguments, *_seed_arguments(kind, self.arguments, seed)),
            command=self.entrypoint,
            ready_path=self.ready_path,
            ready_deadline_s=self.ready_deadline_s,
            restarts=self.restarts,
            container=container,
        )


def _seed_arguments(kind: str, arguments: tuple[str, ...], seed: int | None) -> tuple[str, ...]:
    """Inference servers have a fixed default seed: without this, the runs of two seeds would start alike."""
    flag = _SEED_FLAGS.get(kind)
    if seed is None or flag is None or any(word.split("=")[0] == flag for word in arguments):
        return ()
    return (flag, str(seed))


def base_url(address: str) -> str:
    """The URL of an OpenAI-compatible server: `host:port` and URLs without a path get `/v1`. Raises UserError."""
    try:
        url = parse_base_url(address)
    except BadUrl as error:
        raise UserError(f"--server-address: {error}", next="pass a base URL such as http://HOST:8000/v1") from error
    return url if "/" in url.split("://", 1)[1] else f"{url}/v1"
