"""The inference servers of a model server: started and stopped together, with the reasons why some died."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from gymnast.kit import (
    CallError,
    FailureDetail,
    FailureKind,
    HttpClient,
    ManagedServer,
    ManagedServerSpec,
    Stage,
    StartError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


class ServerGroup:
    """Several identical inference servers."""

    def __init__(
        self,
        name: str,
        specs: Sequence[ManagedServerSpec],
        log_dir: Path,
        client: HttpClient,
        say: Callable[[str], None],
    ) -> None:
        self._name = name
        self.servers = [
            ManagedServer(f"server {number} of {name}", spec, log_dir / f"{name}.server{number}.log", client, say)
            for number, spec in enumerate(specs)
        ]

    @property
    def base_urls(self) -> list[str]:
        return [f"{server.url}/v1" for server in self.servers]

    async def start(self) -> None:
        """Start all and wait until all are ready; if one fails, stop all and raise StartError."""
        try:
            async with asyncio.TaskGroup() as group:
                for server in self.servers:
                    group.create_task(server.start())
        except BaseException as error:
            await self.stop()
            if isinstance(error, BaseExceptionGroup):
                first = next((candidate for candidate in error.exceptions if isinstance(candidate, StartError)), None)
                raise (first or error) from None
            raise

    async def stop(self) -> None:
        await asyncio.gather(*(server.stop() for server in self.servers))

    async def wait_until_any_is_up(self) -> None:
        """Wait while all servers are down and one is restarting. Raises CallError if none will come up."""
        while not any(server.state == "up" for server in self.servers):
            starting = [server for server in self.servers if server.state in {"starting", "restarting"}]
            if not starting:
                raise CallError(self._make_failure())
            waiters = [asyncio.create_task(server.changed.wait()) for server in starting]
            try:
                await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waiters:
                    wait.cancel()

    def explain(self, detail: FailureDetail) -> FailureDetail:
        """Replace an unreachable failure by the death of its server, e.g. an out-of-memory kill."""
        if detail.kind != FailureKind.MODEL_UNREACHABLE:
            return detail
        server = next(
            (candidate for candidate in self.servers if (detail.endpoint or "").startswith(candidate.url)), None
        )
        if server is None or server.last_death is None:
            return detail
        return msgspec.structs.replace(
            detail, kind=_kind(server), message=f"{server.last_death}; {detail.message}", instance=self._name
        )

    def _make_failure(self) -> FailureDetail:
        last = self.servers[-1]
        reasons = "; ".join(f"{server.last_death or server.name + ' is not running'}" for server in self.servers)
        text = f"{self._name} has no inference server left: {reasons}"
        return FailureDetail(_kind(last), Stage.MODEL, text, instance=self._name, endpoint=last.url)


def _kind(server: ManagedServer) -> FailureKind:
    return FailureKind.OUT_OF_MEMORY if server.was_oom_killed else FailureKind.INSTANCE_DIED
