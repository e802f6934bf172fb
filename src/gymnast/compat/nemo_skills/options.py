"""Options of `nemo_gym_rollouts` and `run_cmd`, under the names of the pipeline they replace."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import UserError, suggest
from gymnast.executors.site import parse_mount
from gymnast.sidecars.server_options import ServerOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gymnast.compat.nemo_skills.seeds import Seed
    from gymnast.sidecars.component import Mount
    from gymnast.sidecars.sandbox import SandboxOptions

_IGNORED_FLAGS: Final = (
    *("reuse_code", "keep_mounts_for_sandbox", "check_mounted_paths", "skip_hf_home_check", "get_random_port"),
)
_IGNORED: Final = (*_IGNORED_FLAGS, "reuse_code_exp", "_reuse_exp", "_task_dependencies")
"""They matter only where code is packed and mounted for each job."""
_RESOURCES: Final = ("partition", "account", "qos", "time", "exclusive")


@dataclass(frozen=True, slots=True)
class Arguments:
    """Command line arguments of a call from Python, as `wrap_arguments` makes them."""

    args: list[str]
    obj: None = None


def wrap_arguments(arguments: str = "") -> Arguments:
    """Hydra-style arguments (`+agent_name=A ++b.c=1`) for the `ctx` of a call from Python."""
    return Arguments(shlex.split(arguments))


@dataclass(frozen=True, slots=True)
class JobPlacement:
    """Where jobs go and what they may use there."""

    cluster: str | None = None
    config_dir: Path | None = None
    expname: str = "nemo-gym-rollouts"
    run_after: tuple[str, ...] = ()
    resources: dict[str, Any] = field(default_factory=dict)
    """As in `executors.site.Resources`; None leaves a value to the site."""
    container: str | None = None
    """Of the program that collects, by the site's name for it; None: the site's default."""
    mounts: tuple[Mount, ...] = ()
    log_dir: Path | None = None
    setup: tuple[str, ...] = ()
    dry_run: bool = False


def make_placement(options: Mapping[str, Any]) -> JobPlacement:
    """Make a placement from the options of a call, which may have others as well."""
    min_time = (f"--time-min={options['time_min']}",) if options["time_min"] else ()
    extra_sbatch = (*min_time, *parse_sbatch_options(options["sbatch_kwargs"]))
    setup = options["installation_command"]
    return JobPlacement(
        cluster=options["cluster"],
        config_dir=Path(options["config_dir"]) if options["config_dir"] else None,
        expname=options["expname"],
        run_after=split_list(options["run_after"]),
        resources={**{name: options[name] for name in _RESOURCES}, "extra_sbatch": extra_sbatch},
        container=options["container"],
        mounts=parse_mounts(options["mount_paths"]),
        log_dir=Path(options["log_dir"]).absolute() if options["log_dir"] else None,
        setup=(setup,) if setup else (),
        dry_run=options["dry_run"],
    )


@dataclass(frozen=True, slots=True)
class RolloutsRequest:
    """Rollouts of one dataset, with one job per seed."""

    config_paths: tuple[str, ...]
    input_file: str
    output_dir: Path
    seeds: tuple[Seed, ...] = (None,)
    rerun_done: bool = False
    server: ServerOptions = field(default_factory=ServerOptions)
    placement: JobPlacement = field(default_factory=JobPlacement)
    gym_path: str | None = None
    """A further folder with configs and data."""
    sandbox: SandboxOptions | None = None
    serve_args: tuple[str, ...] = ()
    collect_args: tuple[str, ...] = ()
    before: tuple[tuple[str, ...], ...] = ()
    """Commands of ours (`data download …`) that run first, in a separate job."""

    @property
    def job_folder(self) -> Path:
        return self.placement.log_dir or self.output_dir / "jobs"

    def check_required(self) -> None:
        """Raise UserError if a required option is missing."""
        is_given = {
            "config_paths": bool(self.config_paths),
            "input_file": bool(self.input_file),
            "output_dir": self.output_dir != Path(),
        }
        missing = [name for name, given in is_given.items() if not given]
        if missing:
            raise UserError(f"{', '.join(missing)} must be given", next="see gymnast nemo-gym-rollouts --help")


def reject_unknown_options(options: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Note options that are ignored here. Raises TypeError for unknown ones."""
    for name in options:
        if name not in _IGNORED:
            hint = suggest(name, _IGNORED)
            raise TypeError(f"there is no option '{name}'" + (f"; {hint}" if hint and "mean" in hint else ""))
        say(f"note: {name} has no effect here")


def split_ignored_options(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Split a command line into the words that matter and the options that are ignored here."""
    rest: list[str] = []
    ignored: dict[str, Any] = {}
    remaining = iter(words)
    for word in remaining:
        name, equals, value = word.removeprefix("--").replace("-", "_").partition("=")
        name = name if name in _IGNORED else name.removeprefix("no_")
        if not word.startswith("--") or name not in _IGNORED:
            rest.append(word)
        elif name in _IGNORED_FLAGS:
            ignored[name] = True
        else:
            ignored[name] = value if equals else next(remaining, "")
    return rest, ignored


def split_list(text: str | Sequence[str] | None) -> tuple[str, ...]:
    """Split `a,b`, or take a list, without empty parts."""
    if text is None:
        return ()
    parts = text.split(",") if isinstance(text, str) else text
    return tuple(part.strip() for part in parts if part.strip())


def parse_mounts(text: str | Sequence[str] | None) -> tuple[Mount, ...]:
    """Parse `/a:/b,/c`."""
    try:
        return tuple(parse_mount(mount) for mount in split_list(text))
    except ValueError as error:
        raise UserError(str(error), where="mount_paths") from error


def parse_sbatch_options(value: str | dict[str, Any] | None) -> tuple[str, ...]:
    """Parse further sbatch options: a mapping, or text such as `comment=x,constraint=h100` or `--constraint=h100`."""
    if not value:
        return ()
    if isinstance(value, dict):
        return tuple(f"--{name.replace('_', '-')}={option}" for name, option in value.items())
    if value.lstrip().startswith("-"):
        return tuple(shlex.split(value))
    pairs = [part.partition("=") for part in split_list(value)]
    return tuple(f"--{name.strip().replace('_', '-')}{equals}{option}" for name, equals, option in pairs)
