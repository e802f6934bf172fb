"""`gymnast bundle`: one redacted archive of a run, to attach to a bug report."""

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
    run: Annotated[Path, typer.Argument(help="The run: its output file.", show_default=False)],
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The archive; RUN_bundle.tar.gz beside the run if not given.")
    ] = None,
    with_rollouts: Annotated[
        int, typer.Option("--with-rollouts", min=0, help="Put this many rollouts in, with prompts and answers.")
    ] = 0,
    config_files: Annotated[
        list[Path] | None,
        typer.Option("--config", "-c", help="Config files to put in, secrets masked. Repeatable."),
    ] = None,
    logs: Annotated[
        list[Path] | None, typer.Option("--log", help="Further log files or folders, e.g. of vLLM. Repeatable.")
    ] = None,
    max_mb: Annotated[int, typer.Option("--max-mb", min=1, help="Most megabytes of content.")] = 20,
    as_json: shared.JsonOutput = False,
) -> int:
    """Make one redacted archive of a run to attach to a bug report.

    Manifest, settings, bounded failures, heads and tails of logs, versions, status and doctor's answer. Secrets of the
    environment, of env.yaml and of the config files are blanked out, and whatever looks like one. Prompts and answers
    stay out unless --with-rollouts asks for them. Look through it before you send it.
    """
    from gymnast.errors import NotFoundError
    from gymnast.rollouts.inspect_run import run_paths
    from gymnast.store.bundle import BundleRequest, make_bundle, write_bundle

    paths = run_paths(run)
    if not paths.existing() and not paths.logs.is_dir():
        raise NotFoundError(f"there is no run '{run}'", where=str(paths.output), next="name its output file")
    configs = {path.name: _read_yaml(path) for path in config_files or ()}
    documents = {**_documents(paths), **({"config": configs} if configs else {})}
    request = BundleRequest(paths, documents, logs or (), with_rollouts, max_mb << 20)
    bundle = make_bundle(request, _redactor(configs))
    archive = output or paths.output.with_name(f"{paths.output.stem}_bundle.tar.gz")
    write_bundle(archive, bundle, archive.name.split(".")[0])
    _show(archive, bundle, as_json=as_json)
    return 0


def _documents(paths: RunPaths) -> dict[str, Any]:
    """What is computed rather than copied. None of it may keep a bundle from being made."""
    return {"versions": _versions(), "status": _status(paths), "doctor": _doctor(paths)}


def _status(paths: RunPaths) -> Any:
    import asyncio

    import msgspec

    from gymnast.errors import UserError
    from gymnast.rollouts.inspect_run import look_at

    try:
        return msgspec.to_builtins(asyncio.run(look_at(paths.output)))
    except (UserError, OSError, msgspec.MsgspecError) as error:
        return {"unknown": str(error)}


def _doctor(paths: RunPaths) -> Any:
    """Doctor's answer, from a process of its own: whatever it meets in a broken run must not keep a bundle from
    being made."""
    import subprocess
    import sys

    import orjson

    shell = [sys.executable, "-m", "gymnast.cli.main", "doctor", str(paths.output), "--json"]
    try:
        done = subprocess.run(shell, capture_output=True, timeout=120, check=False)  # noqa: S603 - our own command
        return orjson.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, orjson.JSONDecodeError) as error:
        return {"unknown": f"doctor gave no answer: {error}"}


def _versions() -> dict[str, Any]:
    import platform
    import sys
    from importlib import metadata

    from gymnast import __version__

    names = (
        *("orjson", "msgspec", "pydantic", "uvloop", "uvicorn", "httptools", "omegaconf", "hydra-core", "numpy"),
        *("typer", "fastapi", "aiohttp", "ray", "vllm", "torch", "transformers", "tokenizers", "xgrammar", "nemo-gym"),
    )
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "gymnast": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "packages": found,
    }


def _redactor(configs: dict[str, Any]) -> Redactor:
    """Knows the secrets of the environment, of env.yaml here and of the given config files."""
    from gymnast.config.environ import secret_environ
    from gymnast.config.secrets import Scrubber
    from gymnast.store.redact import Redactor, header_values

    private = Path("env.yaml")
    known: dict[str, Any] = {"environment": secret_environ(), "configs": configs}
    if private.is_file():
        known["private"] = _read_yaml(private)
    known["secret"] = header_values(known)
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
        import orjson

        entries = {name: len(data) for name, data in bundle.entries.items()}
        body = {"archive": str(archive), "size_bytes": size, "entries": entries, "left_out": bundle.left_out}
        print(orjson.dumps(body, option=orjson.OPT_INDENT_2).decode())
        return
    for name, data in bundle.entries.items():
        print(f"{len(data):>10}  {name}")
    for text in bundle.left_out:
        print(f"{'left out':>10}  {text}")
    print(f"{archive}  ({size} bytes)")
    shared.say("secrets are blanked out as far as they can be known: look through it before you send it")
