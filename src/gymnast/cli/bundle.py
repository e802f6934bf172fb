"""`gymnast bundle`: a redacted archive of a run, for a bug report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.store.bundle import Bundle
    from gymnast.store.paths import RunPaths
    from gymnast.store.redact import Redactor


def command(
    run: shared.Run,
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Archive to write. [default: RUN_bundle.tar.gz]")
    ] = None,
    with_rollouts: Annotated[
        int, typer.Option("--with-rollouts", min=0, help="Include this many rollouts, with prompts and responses.")
    ] = 0,
    config_files: Annotated[
        list[Path] | None,
        typer.Option("--config", "-c", help="Config file to include, secrets masked. Repeatable."),
    ] = None,
    logs: Annotated[
        list[Path] | None, typer.Option("--logs", help="More logs, e.g. of vLLM: a file or a folder. Repeatable.")
    ] = None,
    max_mb: Annotated[int, typer.Option("--max-mb", min=1, help="Maximum megabytes of content.")] = 20,
    as_json: shared.JsonOutput = False,
) -> int:
    """Pack a redacted archive of a run for a bug report.

    Contains the manifest, settings, a sample of failures, heads and tails of logs, versions, status and doctor's
    findings. Secrets from the environment, env.yaml and the config files are blanked out, and anything that looks like
    one. Prompts and responses are left out unless you pass --with-rollouts. Look through the archive before sending it.
    """
    from gymnast.errors import NotFoundError
    from gymnast.store.bundle import BundleRequest, make_bundle, write_bundle
    from gymnast.store.paths import RunPaths

    paths = RunPaths(run)
    if not paths.existing_files() and not paths.logs.is_dir():
        raise NotFoundError(f"no run at '{run}'", where=str(paths.output), next="pass the run's output file")
    configs = {path.name: _read_yaml(path) for path in config_files or ()}
    # These are computed rather than copied. A failure of one must not prevent the bundle.
    documents = {"versions": _versions(), "status": _status(paths), "doctor": _doctor(paths)}
    if configs:
        documents["config"] = configs
    request = BundleRequest(paths, documents, logs or (), with_rollouts, max_mb << 20)
    bundle = make_bundle(request, _redactor(configs))
    archive = output or paths.output.with_name(f"{paths.output.stem}_bundle.tar.gz")
    write_bundle(archive, bundle, archive.name.split(".")[0])
    _show(archive, bundle, as_json=as_json)
    return 0


def _status(paths: RunPaths) -> Any:
    import asyncio

    import msgspec

    from gymnast.errors import UserError
    from gymnast.rollouts.inspect_run import inspect_run

    try:
        return msgspec.to_builtins(asyncio.run(inspect_run(paths.output)))
    except (UserError, OSError, msgspec.MsgspecError) as error:
        return {"unknown": str(error)}


def _doctor(paths: RunPaths) -> Any:
    """Doctor's findings, from a separate process: whatever a broken run does to it must not prevent the bundle."""
    import subprocess
    import sys

    import orjson

    shell = [sys.executable, "-P", "-m", "gymnast.cli.main", "doctor", str(paths.output), "--json"]
    try:
        process = subprocess.run(shell, capture_output=True, timeout=120, check=False)  # noqa: S603 - our own command
        return orjson.loads(process.stdout)
    except (OSError, subprocess.SubprocessError, orjson.JSONDecodeError) as error:
        return {"unknown": f"doctor failed: {error}"}


def _versions() -> dict[str, Any]:
    import platform
    import sys
    from importlib import metadata

    from gymnast import __version__

    names = (
        *("orjson", "msgspec", "pydantic", "uvloop", "uvicorn", "httptools", "omegaconf", "hydra-core", "numpy"),
        *("typer", "fastapi", "aiohttp", "ray", "vllm", "torch", "transformers", "tokenizers", "xgrammar", "nemo-gym"),
    )
    packages = {}
    for name in names:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"gymnast": __version__, "python": sys.version, "platform": platform.platform(), "packages": packages}


def _redactor(configs: dict[str, Any]) -> Redactor:
    """A redactor for the secrets of the environment, of ./env.yaml, of the keys file and of the config files."""
    from gymnast.config.known_secrets import known_secrets
    from gymnast.config.secrets import Scrubber
    from gymnast.store.redact import Redactor, header_values

    private = Path("env.yaml")
    if private.is_file():
        configs = {**configs, "env.yaml": _read_yaml(private)}
    known = known_secrets(configs)
    known["secret"] += header_values(known)
    home = str(Path.home())
    return Redactor(Scrubber(known), replacements={home: "~"} if len(home) > 1 else {})


def _read_yaml(path: Path) -> Any:
    import yaml

    from gymnast.errors import DataError

    try:
        return yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(f"cannot read the config file: {error}", where=str(path)) from error


def _show(archive: Path, bundle: Bundle, *, as_json: bool) -> None:
    size = archive.stat().st_size
    if as_json:
        entries = {name: len(data) for name, data in bundle.entries.items()}
        shared.print_json(
            {"archive": str(archive), "size_bytes": size, "entries": entries, "left_out": bundle.left_out}
        )
        return
    for name, data in bundle.entries.items():
        print(f"{len(data):>10}  {name}")
    for text in bundle.left_out:
        print(f"{'left out':>10}  {text}")
    print(f"{archive}  ({size} bytes)")
    shared.say("known secrets are blanked out: look through the archive before you send it")
