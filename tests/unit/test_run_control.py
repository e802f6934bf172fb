"""The control socket of a run: what its end leaves behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gymnast.errors import NotFoundError
from gymnast.rollouts.control import ControlServer, send_request


def test_the_end_leaves_no_socket_and_no_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With Python 3.13, a run could end with 'Unable to clean up listening UNIX socket'."""

    async def echo(request: dict[str, Any]) -> Any:
        return request

    async def run() -> None:
        async with ControlServer(tmp_path / "x.sock", echo):
            assert await send_request(tmp_path / "x.sock", {"pause": True}) == {"pause": True}

    asyncio.run(run())
    assert list(tmp_path.iterdir()) == []
    assert caplog.records == []


def test_a_run_that_has_ended_is_not_running_and_no_more_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        asyncio.run(send_request(tmp_path / "x.sock", {"command": "drain"}))
    assert caught.value.what == "the run is not running on this host"
