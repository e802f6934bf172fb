"""Standalone servers: `python app.py`, started by hand or by a launcher.

A launcher passes the configuration and the name of the instance in the environment (NEMO_GYM_CONFIG_DICT,
NEMO_GYM_CONFIG_PATH).
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar, cast

import uvicorn
import yaml
from omegaconf import DictConfig, OmegaConf

from gymnast.compat.nemo_gym.context import PROCESS, close_session
from gymnast.compat.nemo_gym.global_config import (
    HEAD_SERVER_KEY_NAME,
    RAY_HEAD_NODE_ADDRESS_KEY_NAME,
    get_first_server_config_dict,
    get_global_config_dict,
)
from gymnast.compat.nemo_gym.hosting import build_app
from gymnast.compat.nemo_gym.ray_node import start_ray, uses_ray
from gymnast.config import read_environ
from gymnast.config.instances import SERVER_KINDS
from gymnast.config.secrets import mask_secrets
from gymnast.errors import UserError
from gymnast.runtime.ports import bind_socket

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI

    from gymnast.compat.nemo_gym.config_types import BaseRunServerInstanceConfig
    from gymnast.compat.nemo_gym.server_utils import HeadServer, ServerClient, SimpleServer

    ConfigT = TypeVar("ConfigT", bound=BaseRunServerInstanceConfig)

_USAGE_ERROR: Final = 2


def load_own_config(model: type[ConfigT]) -> ConfigT:
    """Load the configuration of the instance that this process runs."""
    config = get_global_config_dict()
    name = read_environ().config_path or _only_instance(config)
    block = cast("dict[str, Any]", OmegaConf.to_container(get_first_server_config_dict(config, name), resolve=True))
    host = block.get("host") or config.get("default_host") or "127.0.0.1"
    return model.model_validate({**block, "name": name, "host": host, "port": block.get("port") or 0})


def _only_instance(config: DictConfig) -> str:
    """The name of the instance whose implementation is the folder of the running program."""
    folder = Path(sys.argv[0]).resolve().parent
    names = [
        str(name)
        for name, block in config.items()
        if isinstance(block, DictConfig)
        and any(folder.name in (block.get(kind) or ()) for kind in SERVER_KINDS if folder.parent.name == kind)
    ]
    if len(names) == 1:
        return names[0]
    problem = f"several instances use this server: {', '.join(names)}" if names else "no instance uses this server"
    raise UserError(
        problem,
        where=str(folder),
        next=f"python app.py '+config_paths=[{folder.parent.name}/{folder.name}/configs/….yaml]', "
        "and set NEMO_GYM_CONFIG_PATH=<instance> if there are several",
    )


def run_webserver(server_class: type[SimpleServer], make_client: Callable[[], ServerClient]) -> FastAPI | None:
    """Serve until a signal arrives. In a worker of a web server, return the application instead."""
    try:
        return _run(server_class, make_client)
    except UserError as error:  # nothing above handles it: this is `python app.py`
        sys.stderr.write(f"{error}\n")
        raise SystemExit(_USAGE_ERROR) from None


def _run(server_class: type[SimpleServer], make_client: Callable[[], ServerClient]) -> FastAPI | None:
    config = server_class.load_config_from_global_config()
    if uses_ray(Path(inspect.getfile(server_class)).parent):
        start_ray(config.name, get_global_config_dict().get(RAY_HEAD_NODE_ADDRESS_KEY_NAME))
    server = server_class(config=config, server_client=make_client())
    app = build_app(server)
    if _is_worker(server_class):
        return app
    server.set_ulimit()
    server.prefix_server_logs()
    with suppress(KeyboardInterrupt):  # Ctrl-C, and how NeMo Gym's launcher ends servers
        asyncio.run(_serve(app, config))
    return None


def _is_worker(server_class: type[SimpleServer]) -> bool:
    entry = read_environ().web_entrypoint
    return entry is not None and Path(entry).resolve() == Path(inspect.getfile(server_class)).resolve()


async def _serve(app: FastAPI, config: BaseRunServerInstanceConfig) -> None:
    sock = bind_socket(config.host, config.port, what=config.name, hint="choose another `port`, or leave it out")
    access_log = PROCESS.config.get("uvicorn_logging_show_200_ok") if PROCESS.config is not None else False
    settings = uvicorn.Config(
        app, access_log=bool(access_log), timeout_keep_alive=30, timeout_graceful_shutdown=1, log_level="info"
    )
    sys.stderr.write(f"serving {config.name} at http://{config.host}:{sock.getsockname()[1]}\n")
    try:
        await uvicorn.Server(settings).serve(sockets=[sock])
    finally:
        await close_session()


def run_head(head_class: type[HeadServer]) -> tuple[uvicorn.Server, threading.Thread, HeadServer]:
    from gymnast.compat.nemo_gym.config_types import BaseServerConfig  # noqa: PLC0415 - it imports this module

    block = OmegaConf.to_container(get_global_config_dict()[HEAD_SERVER_KEY_NAME])
    config = BaseServerConfig.model_validate(block)
    head = head_class(config=config)
    server = uvicorn.Server(uvicorn.Config(head.setup_webserver(), host=config.host, port=config.port, log_config=None))
    thread = threading.Thread(target=server.run, name="head server", daemon=True)
    thread.start()
    return server, thread, head


def masked_yaml(values: dict[str, Any]) -> str:
    """A configuration as YAML, secrets masked."""
    return yaml.safe_dump({key: mask_secrets(value, key) for key, value in values.items()}, sort_keys=False)


class _PrefixedStream:
    """A text stream that prefixes each line with a name."""

    def __init__(self, stream: TextIO, prefix: str) -> None:
        self._stream = stream
        self._prefix = prefix
        self._at_start = True

    def write(self, text: str) -> int:
        for line in text.splitlines(keepends=True):
            self._stream.write(self._prefix + line if self._at_start else line)
            self._at_start = line.endswith("\n")
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def prefix_output(name: str) -> None:
    """Prefix every line that this process prints with the name of its server."""
    sys.stdout = cast("TextIO", _PrefixedStream(sys.stdout, f"({name}) "))
    sys.stderr = cast("TextIO", _PrefixedStream(sys.stderr, f"({name}) "))
