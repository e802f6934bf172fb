"""`nemo_gym.cli`: start servers from a program, as trainers do. Gymnast serves them in a thread."""

import asyncio
import logging
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from gymnast.compat.nemo_gym.context import PROCESS
from gymnast.compat.nemo_gym.global_config import HEAD_SERVER_KEY_NAME, as_dict_config
from gymnast.compat.nemo_gym.global_config import GlobalConfigDictParser as GlobalConfigDictParser
from gymnast.compat.nemo_gym.global_config import GlobalConfigDictParserConfig as GlobalConfigDictParserConfig
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.config import Config, read_environ
from gymnast.rollouts.tool_modes import offer_row_tools
from gymnast.runtime.hosted_servers import with_addresses
from gymnast.runtime.listener import loop_factory
from gymnast.runtime.server_group import ServeOptions, ServerGroup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.runtime.children import Child

STOP_TIMEOUT_S: Final = 30.0
_log = logging.getLogger(__name__)


class RunHelper:
    """Serves a configuration until `shutdown`: the head server, the instances and their processes."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._children: Mapping[str, Child] = {}

    def start(self, global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None) -> None:
        """Start everything; returns once it is ready, raises if it cannot start."""
        self.serve(GlobalConfigDictParser().load(global_config_dict_parser_config or GlobalConfigDictParserConfig()))

    def serve(self, config: Config) -> None:
        """Start everything of a loaded configuration."""
        config = offer_row_tools(config)
        ready: Future[dict[str, Any]] = Future()
        self._thread = threading.Thread(target=self._run, args=(config, ready), name="gymnast serve", daemon=True)
        self._thread.start()
        PROCESS.config = as_dict_config(ready.result())

    def _run(self, config: Config, ready: "Future[dict[str, Any]]") -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._serve(config, ready))
        except BaseException as error:  # noqa: BLE001 - nothing else handles errors of a thread
            if not ready.done():
                ready.set_exception(error)
            else:
                _log.exception("serving ended")

    async def _serve(self, config: Config, ready: "Future[dict[str, Any]]") -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with ServerGroup(config, read_environ(), ServeOptions(), _log.info) as serving:
            addresses = {name: address.url for name, address in serving.cell.addresses.items()}
            host, _, port = serving.head_url.removeprefix("http://").rpartition(":")
            values = with_addresses(config.values, addresses)
            self._children = serving.cell.children
            ready.set_result({**values, HEAD_SERVER_KEY_NAME: {"host": host, "port": int(port)}})
            await self._stop.wait()

    def poll(self) -> None:
        """Raise if the servers have stopped on their own, or one of their processes died and was not restarted."""
        if self._thread is None or not self._thread.is_alive():
            raise RuntimeError("the servers are not running: see the log for the reason")
        lost = [child for child in self._children.values() if child.is_lost]
        if lost:
            raise RuntimeError("; ".join(f"{child.instance.name} is down: {child.last_death}" for child in lost))

    def wait_for_spinup(self) -> None:
        """Does nothing: `start` returns once everything is ready."""

    def run_forever(self) -> None:
        """Serve until interrupted."""
        with suppress(KeyboardInterrupt):
            while self._thread is not None and self._thread.is_alive():
                self._thread.join(1.0)
        self.shutdown()

    def shutdown(self) -> None:
        """Stop everything that `start` started."""
        if self._loop is not None and self._stop is not None and self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(STOP_TIMEOUT_S)
        self._thread = None
        PROCESS.config = None


__getattr__ = missing_from("nemo_gym.cli")
