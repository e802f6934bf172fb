"""Command lines for container programs (Docker, Podman, Apptainer), as argument lists. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def env_options(environment: Mapping[str, str]) -> list[str]:
    """One `--env NAME=VALUE` for each variable."""
    return [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]


def docker_run(
    program: str,
    image: str,
    command: Sequence[str],
    *,
    name: str,
    mode: Sequence[str],
    options: Sequence[str] = (),
    pull: str = "missing",
    network: str | None = None,
    workdir: str | None = None,
    cpus: float | None = None,
    memory_mb: int | None = None,
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """`docker run` or `podman run`: a container that runs `command` instead of the image's entry point.

    `mode` comes before the container's name (`--detach`, `--rm` …), `options` before the image.
    """
    argv = [program, "run", *mode, "--name", name, "--pull", pull]
    argv += ["--network", network] if network else []
    argv += ["--workdir", workdir] if workdir else []
    argv += ["--cpus", str(cpus)] if cpus else []
    argv += ["--memory", f"{memory_mb}m"] if memory_mb else []
    argv += env_options(env or {})
    return [*argv, *options, "--entrypoint", command[0], image, *command[1:]]


def docker_exec(
    program: str,
    container: str,
    command: Sequence[str],
    *,
    options: Sequence[str] = (),
    workdir: str | None = None,
    user: str | None = None,
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """`docker exec` or `podman exec` in a running container."""
    argv = [program, "exec", *options]
    argv += ["--workdir", workdir] if workdir else []
    argv += ["--user", user] if user is not None else []
    return [*argv, *env_options(env or {}), container, *command]


def docker_remove(program: str, container: str) -> tuple[str, ...]:
    """Kill and delete a container, running or not."""
    return (program, "rm", "--force", container)


def apptainer_exec(
    program: str,
    image: str,
    command: Sequence[str],
    *,
    silent: bool = False,
    options: Sequence[str] = (),
    workdir: str | None = None,
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """`apptainer exec` in an image, or in a running instance (`instance://NAME`)."""
    argv = [program, *(("--silent",) if silent else ()), "exec", *options, *(("--pwd", workdir) if workdir else ())]
    return [*argv, *env_options(env or {}), image, *command]
