"""The one place that reads environment variables. Everything else receives an `Environ`."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from gymnast.config.secrets import is_secret_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


ALLOWED_HOSTS: Final = "GYMNAST_ALLOWED_HOSTS"
_PROXY_VARIABLES: Final = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


@dataclass(frozen=True, slots=True)
class Environ:
    """What Gymnast reads from the process environment."""

    extra_roots: tuple[Path, ...] = ()
    """NEMO_GYM_EXTRA_ROOTS: folders searched before the current one."""
    max_attempts: int = 3
    """NEMO_GYM_MAX_ROLLOUT_ATTEMPTS: attempts at a rollout, for the ng_ commands."""
    token: str | None = None
    """GYMNAST_TOKEN: sent to servers that require one."""
    runtime_dir: Path = Path(tempfile.gettempdir()) / "gymnast"
    """Where running serves register: GYMNAST_RUNTIME_DIR, else XDG_RUNTIME_DIR, else a private temporary folder."""
    state_dir: Path = Path(tempfile.gettempdir()) / "gymnast"
    """Where logs go by default: GYMNAST_STATE_DIR, else XDG_STATE_HOME, else ~/.local/state."""
    cache_dir: Path = Path(tempfile.gettempdir()) / "gymnast"
    """Where built environments are stored: GYMNAST_CACHE_DIR, else XDG_CACHE_HOME, else ~/.cache."""
    global_config: str | None = None
    """NEMO_GYM_CONFIG_DICT: the whole configuration as YAML, from a launcher that starts one server."""
    config_path: str | None = None
    """NEMO_GYM_CONFIG_PATH: the instance of it that this process serves."""
    web_entrypoint: str | None = None
    """IS_NEMO_GYM_FASTAPI_ENTRYPOINT: the file whose `app` a web server's worker imports."""
    keys_file: Path = Path("/nonexistent")
    """API keys by name: GYMNAST_KEYS, else ~/.config/gymnast/keys.yaml."""
    cluster_dirs: tuple[Path, ...] = ()
    """Folders with cluster files: ./cluster_configs, GYMNAST_CLUSTERS, ~/.config/gymnast/clusters."""


def read_environ(source: Mapping[str, str] | None = None) -> Environ:
    """The process environment as Gymnast sees it."""
    env = os.environ if source is None else source
    roots = tuple(Path(part) for part in env.get("NEMO_GYM_EXTRA_ROOTS", "").split(os.pathsep) if part)
    home = Path(env.get("HOME") or tempfile.gettempdir())
    config_home = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    private = Path(tempfile.gettempdir()) / f"gymnast-{os.getuid()}"
    return Environ(
        extra_roots=roots,
        max_attempts=_positive(env.get("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"), 3),
        token=env.get("GYMNAST_TOKEN") or None,
        runtime_dir=_folder(env, "GYMNAST_RUNTIME_DIR", "XDG_RUNTIME_DIR", private),
        state_dir=_folder(env, "GYMNAST_STATE_DIR", "XDG_STATE_HOME", home / ".local" / "state" / "gymnast"),
        cache_dir=_folder(env, "GYMNAST_CACHE_DIR", "XDG_CACHE_HOME", home / ".cache" / "gymnast"),
        global_config=env.get("NEMO_GYM_CONFIG_DICT") or None,
        config_path=env.get("NEMO_GYM_CONFIG_PATH") or None,
        web_entrypoint=env.get("IS_NEMO_GYM_FASTAPI_ENTRYPOINT") or None,
        keys_file=Path(env["GYMNAST_KEYS"]) if env.get("GYMNAST_KEYS") else config_home / "gymnast" / "keys.yaml",
        cluster_dirs=(
            Path("cluster_configs"),
            *(Path(part) for part in env.get("GYMNAST_CLUSTERS", "").split(os.pathsep) if part),
            config_home / "gymnast" / "clusters",
        ),
    )


@dataclass(frozen=True, slots=True)
class Network:
    """How to reach endpoints outside: proxies and certificates."""

    https_proxy: str | None = None
    """HTTPS_PROXY, else ALL_PROXY: for https:// endpoints."""
    http_proxy: str | None = None
    """HTTP_PROXY, else ALL_PROXY: for http:// endpoints."""
    no_proxy: str = ""
    """NO_PROXY: hosts, domains, addresses and networks that are reached directly."""
    cert_file: Path | None = None
    """SSL_CERT_FILE: certificate authorities, read by OpenSSL."""
    cert_dir: Path | None = None
    """SSL_CERT_DIR: a folder of them, read by OpenSSL."""


def read_network(source: Mapping[str, str] | None = None) -> Network:
    """The proxies and certificates of the process environment. Lower-case names come first, as in curl."""
    env = os.environ if source is None else source

    def read(name: str) -> str:
        return (env.get(name.lower()) or env.get(name) or "").strip()

    return Network(
        https_proxy=read("HTTPS_PROXY") or read("ALL_PROXY") or None,
        http_proxy=read("HTTP_PROXY") or read("ALL_PROXY") or None,
        no_proxy=read("NO_PROXY"),
        cert_file=Path(env["SSL_CERT_FILE"]) if env.get("SSL_CERT_FILE") else None,
        cert_dir=Path(env["SSL_CERT_DIR"].split(os.pathsep)[0]) if env.get("SSL_CERT_DIR") else None,
    )


@dataclass(frozen=True, slots=True)
class TelemetryEnviron:
    """What OpenTelemetry's own variables say about exported traces."""

    service_name: str = "gymnast"
    """OTEL_SERVICE_NAME."""
    resource: tuple[tuple[str, str], ...] = ()
    """OTEL_RESOURCE_ATTRIBUTES."""
    headers: tuple[tuple[str, str], ...] = ()
    """OTEL_EXPORTER_OTLP_HEADERS and OTEL_EXPORTER_OTLP_TRACES_HEADERS: e.g. the key of a hosted collector."""


def read_telemetry(source: Mapping[str, str] | None = None) -> TelemetryEnviron:
    """The variables of OpenTelemetry in the process environment."""
    env = os.environ if source is None else source
    headers = (*_pairs(env.get("OTEL_EXPORTER_OTLP_HEADERS")), *_pairs(env.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS")))
    return TelemetryEnviron(
        service_name=env.get("OTEL_SERVICE_NAME") or "gymnast",
        resource=_pairs(env.get("OTEL_RESOURCE_ATTRIBUTES")),
        headers=headers,
    )


def _pairs(text: str | None) -> tuple[tuple[str, str], ...]:
    """`a=1,b=2`, percent-encoded."""
    parts = (part.partition("=") for part in (text or "").split(","))
    return tuple((unquote(name.strip()), unquote(value.strip())) for name, _, value in parts if name.strip())


def job_id() -> str | None:
    """GYMNAST_JOB_ID: the id of the job that this process is part of, if any."""
    return os.environ.get("GYMNAST_JOB_ID") or None


def child_environ(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment for a child process: ours plus `extra`. Its calls to this machine do not go through a proxy."""
    return {**os.environ, **exempt_loopback(os.environ), **extra}


def set_default(name: str, value: str) -> None:
    """Set a variable of this process for a library that reads it, unless it is set."""
    os.environ.setdefault(name, value)


def exempt_loopback(env: Mapping[str, str]) -> dict[str, str]:
    """NO_PROXY with the names of this machine added, if a proxy is set: clients of other libraries need it."""
    if not any(env.get(name) for name in _PROXY_VARIABLES):
        return {}
    before = env.get("no_proxy") or env.get("NO_PROXY") or ""
    missing = [name for name in ("localhost", "127.0.0.1", "::1") if name not in before.replace(",", " ").split()]
    value = ",".join([*([before] if before else []), *missing])
    return {"NO_PROXY": value, "no_proxy": value}


def read_allowed_hosts() -> tuple[str, ...]:
    """Names that servers answer for besides their own, e.g. of a reverse proxy; `*` for any."""
    return tuple(name.strip() for name in os.environ.get(ALLOWED_HOSTS, "").split(",") if name.strip())


def has_display() -> bool:
    """Whether a browser can be opened here: DISPLAY, WAYLAND_DISPLAY or BROWSER is set, or this is macOS."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def inherited_environ(names: Iterable[str]) -> dict[str, str]:
    """Those of these variables that are set in this process."""
    inherited = {name: os.environ[name] for name in names if name in os.environ}
    return {**inherited, **exempt_loopback(inherited)}


def secret_environ() -> dict[str, str]:
    """The variables of this process whose names suggest secrets, which must not leave this machine."""
    return {name: value for name, value in os.environ.items() if is_secret_key(name)}


def _positive(text: str | None, default: int) -> int:
    return int(text) if text and text.isdigit() and int(text) > 0 else default


def _folder(env: Mapping[str, str], own: str, xdg: str, default: Path) -> Path:
    if env.get(own):
        return Path(env[own])
    if env.get(xdg):
        return Path(env[xdg]) / "gymnast"
    return default
