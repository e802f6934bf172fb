"""A serve in a thread of the test's process: real sockets and real children, without the start of a command."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any, Final

from gymnast.config import Config, compose, read_environ
from gymnast.runtime.listener import loop_factory
from gymnast.runtime.server_group import ServeOptions, ServerGroup

WAIT_S: Final = 120.0


class LocalServe:
    """A serve of this process. Ready when made."""

    def __init__(self, config: Config, options: ServeOptions) -> None:
        self.messages: list[str] = []
        """What the command would print on standard error."""
        self._config, self._options = config, options
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._started: Future[ServerGroup] = Future()
        self._thread = threading.Thread(target=self._run, name="serve")
        self._thread.start()
        serving = self._started.result(WAIT_S)
        self.head, self.token, self.instances = serving.head_url, serving.token, serving.state.instances()

    def url(self, name: str) -> str:
        return str(self._row(name)["url"])

    def pid(self, name: str) -> int:
        return int(self._row(name)["pid"])

    def close(self) -> None:
        """Stop it; once more does nothing."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def _row(self, name: str) -> dict[str, Any]:
        return next(row for row in self.instances if row["process_name"] == name)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            async with ServerGroup(self._config, read_environ(), self._options, self.messages.append) as serving:
                self._started.set_result(serving)
                await self._stop.wait()
        except Exception as error:
            if self._started.done():
                raise
            self._started.set_exception(error)


@contextmanager
def serving_here(
    folder: Path,
    *overrides: str,
    environments: Sequence[str] = (),
    config_paths: Sequence[str] = (),
    host: str | None = None,
) -> Iterator[LocalServe]:
    """A configuration as it would be served in a folder, on free ports."""
    with chdir(folder):
        config = compose(read_environ(), overrides=overrides, environments=environments, config_paths=config_paths)
        serve = LocalServe(config.require_valid(), ServeOptions(host=host, head_port=0, log_dir=folder / "logs"))
    try:
        yield serve
    finally:
        serve.close()
