"""What `nemo_gym_rollouts` and `run_cmd` are asked for, under the names of the pipeline they stand in for."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gymnast.cluster.components.servers import ServerWanted, kind_named
from gymnast.cluster.site import parse_mount
from gymnast.errors import UserError, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gymnast.cluster.components.sandbox import SandboxWanted
    from gymnast.cluster.components.spec import Container, Mount
    from gymnast.cluster.seeds import Seed

DUMMY_KEY: Final = "dummy"
_FLAGS_WITHOUT_EFFECT: Final = (
    *("reuse_code", "keep_mounts_for_sandbox", "check_mounted_paths", "skip_hf_home_check", "get_random_port"),
)
_WITHOUT_EFFECT: Final = (*_FLAGS_WITHOUT_EFFECT, "reuse_code_exp", "_reuse_exp", "_task_dependencies")


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of the command line for a call from Python, as `wrap_arguments` makes them."""

    args: list[str]
    obj: None = None


def wrap_arguments(arguments: str = "") -> Arguments:
    """Hydra-style arguments (`+agent_name=A ++b.c=1`) for the `ctx` of a call from Python."""
    return Arguments(shlex.split(arguments))


@dataclass(frozen=True, slots=True)
class Place:
    """Where jobs go and what they may use there."""

    cluster: str | None = None
    config_dir: Path | None = None
    expname: str = "nemo-gym-rollouts"
    run_after: tuple[str, ...] = ()
    resources: dict[str, Any] = field(default_factory=dict)
    """As `cluster.site.Resources` has them; what is None is left to the site."""
    container: str | None = None
    """Of the program that collects, by the site's name for it; None: the site's own choice."""
    mounts: tuple[Mount, ...] = ()
    log_dir: Path | None = None
    setup: tuple[str, ...] = ()
    dry_run: bool = False


def place_of(
    *,
    cluster: str | None,
    expname: str,
    run_after: str | Sequence[str] | None = None,
    container: str | None = None,
    mount_paths: str | Sequence[str] | None = None,
    config_dir: str | None = None,
    log_dir: str | None = None,
    installation_command: str | None = None,
    dry_run: bool = False,
    time_min: str | None = None,
    sbatch_kwargs: str | dict[str, Any] | None = None,
    **resources: Any,
) -> Place:
    """The place that options describe. `resources` are a site's (partition, qos, …); what is None is not said."""
    shortest = (f"--time-min={time_min}",) if time_min else ()
    return Place(
        cluster=cluster,
        config_dir=Path(config_dir) if config_dir else None,
        expname=expname,
        run_after=listed(run_after),
        resources={**resources, "extra_sbatch": (*shortest, *sbatch_of(sbatch_kwargs))},
        container=container,
        mounts=mounts_of(mount_paths),
        log_dir=Path(log_dir).absolute() if log_dir else None,
        setup=(installation_command,) if installation_command else (),
        dry_run=dry_run,
    )


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The policy: a server of the job, or one that is there already."""

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

    def checked(self) -> ServerOptions:
        """Itself. Raises UserError for a combination that cannot be meant."""
        if self.type is not None and self.address is not None:
            raise UserError(
                f"the server is either in the job (server_type={self.type}) or elsewhere ({self.address})",
                next="give server_type with model and server_gpus, or server_address",
            )
        if self.type is not None and self.model is None:
            raise UserError("a server of the job needs a model", next="give --model NAME_OR_FOLDER")
        if self.type is None:
            self._refuse_server_options()
        return self

    def _refuse_server_options(self) -> None:
        given = {
            "server_gpus": self.gpus,
            "server_args": self.arguments,
            "server_container": self.container,
            "server_entrypoint": self.entrypoint,
            "trust_remote_code": self.trust_remote_code,
            "server_replicas": self.replicas,
            "tensor_parallel": self.tensor_parallel,
            "data_parallel": self.data_parallel,
        }
        named = [name for name, value in given.items() if value]
        if named:
            raise UserError(
                f"{', '.join(named)}: for a server of the job, and there is none",
                next="give server_type=vllm, sglang or command",
            )

    def wanted(self, container: Container | None, seed: Seed) -> ServerWanted:
        """The server as a component is made from it. Its engine draws with the run's seed."""
        assert self.type is not None
        assert self.model is not None
        kind = kind_named(self.type)
        is_one = self.nodes > 1 and not any((self.replicas, self.tensor_parallel, self.data_parallel))
        pipeline = self.pipeline_parallel or (self.nodes if is_one and kind != "command" else 1)
        return ServerWanted(
            kind=kind,
            model=self.model,
            gpus=self.gpus or 0,
            nodes=self.nodes,
            tensor_parallel=(self.gpus or 1) if is_one and kind != "command" else self.tensor_parallel,
            pipeline_parallel=pipeline,
            replicas=self.replicas,
            data_parallel=self.data_parallel,
            trust_remote_code=self.trust_remote_code,
            arguments=(*self.arguments, *_seed_argument(kind, self.arguments, seed)),
            command=self.entrypoint,
            ready_path=self.ready_path,
            ready_deadline_s=self.ready_deadline_s,
            restarts=self.restarts,
            container=container,
        )


_SEED_FLAGS: Final = {"vllm": "--seed", "sglang": "--random-seed"}


def _seed_argument(kind: str, arguments: tuple[str, ...], seed: Seed) -> tuple[str, ...]:
    """Engines start with one and the same seed unless told otherwise: two seeds would then begin alike."""
    flag = _SEED_FLAGS.get(kind)
    if seed is None or flag is None or any(word.split("=")[0] == flag for word in arguments):
        return ()
    return (flag, str(seed))


@dataclass(frozen=True, slots=True)
class RolloutsWanted:
    """Rollouts of one dataset, a job for each seed."""

    config_paths: tuple[str, ...]
    input_file: str
    output_dir: Path
    seeds: tuple[Seed, ...] = (None,)
    rerun_done: bool = False
    server: ServerOptions = field(default_factory=ServerOptions)
    place: Place = field(default_factory=Place)
    gym_path: str | None = None
    """A further folder to look up configs and data in, where there is one."""
    sandbox: SandboxWanted | None = None
    serve_args: tuple[str, ...] = ()
    collect_args: tuple[str, ...] = ()
    before: tuple[tuple[str, ...], ...] = ()
    """Commands of ours (`data download …`) that run first, in a job of their own."""

    def refuse_gaps(self) -> None:
        """Raises UserError if something is missing without which there is nothing to collect."""
        given = {
            "config_paths": bool(self.config_paths),
            "input_file": bool(self.input_file),
            "output_dir": self.output_dir != Path(),
        }
        missing = [name for name, is_given in given.items() if not is_given]
        if missing:
            raise UserError(f"{', '.join(missing)} must be given", next="see gymnast nemo-gym-rollouts --help")


def refuse_unknown(given: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Options that mean something only where code is packed and mounted for each job are noted; others are refused."""
    for name in given:
        if name not in _WITHOUT_EFFECT:
            hint = suggest(name, _WITHOUT_EFFECT)
            raise TypeError(f"there is no option '{name}'" + (f"; {hint}" if hint and "mean" in hint else ""))
        say(f"note: {name} has no effect here")


def take_without_effect(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Words of a command line without the options that mean nothing here, and those."""
    rest: list[str] = []
    found: dict[str, Any] = {}
    ahead = iter(words)
    for word in ahead:
        name, equals, value = word.removeprefix("--").replace("-", "_").partition("=")
        name = name if name in _WITHOUT_EFFECT else name.removeprefix("no_")
        if not word.startswith("--") or name not in _WITHOUT_EFFECT:
            rest.append(word)
        elif name in _FLAGS_WITHOUT_EFFECT:
            found[name] = True
        else:
            found[name] = value if equals else next(ahead, "")
    return rest, found


def listed(text: str | Sequence[str] | None) -> tuple[str, ...]:
    """`a,b` or a list, without empty parts."""
    if text is None:
        return ()
    parts = text.split(",") if isinstance(text, str) else text
    return tuple(part.strip() for part in parts if part.strip())


def mounts_of(text: str | Sequence[str] | None) -> tuple[Mount, ...]:
    """`/a:/b,/c` as mounts."""
    try:
        return tuple(parse_mount(one) for one in listed(text))
    except ValueError as error:
        raise UserError(str(error), where="mount_paths") from error


def sbatch_of(given: str | dict[str, Any] | None) -> tuple[str, ...]:
    """Further options of sbatch: a mapping, or text such as `comment=x,constraint=h100` or `--constraint=h100`."""
    if not given:
        return ()
    if isinstance(given, dict):
        return tuple(f"--{name.replace('_', '-')}={value}" for name, value in given.items())
    if given.lstrip().startswith("-"):
        return tuple(shlex.split(given))
    pairs = [part.partition("=") for part in listed(given)]
    return tuple(f"--{name.strip().replace('_', '-')}{equals}{value}" for name, equals, value in pairs)
