"""The engines of one model server: started together, stopped together, and what is known of those that died."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from gymnast.errors import CallError, StartError
from gymnast.runtime.engines import Engine
from gymnast.types.failure import FailureDetail, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gymnast.runtime.engines import EngineOrder
    from gymnast.wire.http_client import HttpClient


class Fleet:
    """Several engines alike."""

    def __init__(
        self, name: str, orders: Sequence[EngineOrder], log_dir: Path, client: HttpClient, say: Callable[[str], None]
    ) -> None:
        self._name = name
        self.engines = [
            Engine(f"engine {number} of {name}", order, log_dir / f"{name}.engine{number}.log", client, say)
            for number, order in enumerate(orders)
        ]

    @property
    def base_urls(self) -> list[str]:
        return [f"{engine.url}/v1" for engine in self.engines]

    async def start(self) -> None:
        """Start all and wait until all are ready; if one cannot, none is left running. Raises StartError."""
        try:
            async with asyncio.TaskGroup() as group:
                for engine in self.engines:
                    group.create_task(engine.start())
        except BaseException as error:
            await self.stop()
            if isinstance(error, BaseExceptionGroup):
                first = next((found for found in error.exceptions if isinstance(found, StartError)), None)
                raise (first or error) from None
            raise

    async def stop(self) -> None:
        """End all."""
        await asyncio.gather(*(engine.stop() for engine in self.engines))

    async def until_one_is_up(self) -> None:
        """Wait while every engine is down and one is being started again. Raises CallError when none will come."""
        while not any(engine.state == "up" for engine in self.engines):
            coming = [engine for engine in self.engines if engine.state in {"starting", "restarting"}]
            if not coming:
                raise CallError(self._all_gone())
            waits = [asyncio.create_task(engine.changed.wait()) for engine in coming]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    def explain(self, detail: FailureDetail) -> FailureDetail:
        """A failure to reach an engine that died is that death, and an out-of-memory kill is one by name."""
        if detail.kind != "model_unreachable":
            return detail
        engine = next((found for found in self.engines if (detail.endpoint or "").startswith(found.url)), None)
        if engine is None or engine.last_death is None:
            return detail
        return msgspec.structs.replace(
            detail, kind=_kind(engine), message=f"{engine.last_death}; {detail.message}", instance=self._name
        )

    def _all_gone(self) -> FailureDetail:
        last = self.engines[-1]
        said = "; ".join(f"{engine.last_death or engine.name + ' is not running'}" for engine in self.engines)
        text = f"{self._name} has no engine left: {said}"
        return FailureDetail(_kind(last), Stage.MODEL, text, instance=self._name, endpoint=last.url)


def _kind(engine: Engine) -> str:
    return "out_of_memory" if engine.died_of_memory else "instance_died"
