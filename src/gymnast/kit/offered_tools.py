"""The tools that an agent offers to the model: those of the row, or else those that the environment declares.

An environment built with the kit lists its tools at `GET /tools`; any other one has none to list and is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from gymnast.errors import CallError
from gymnast.kit.tools import TOOLS_PATH
from gymnast.types.failure import Stage
from gymnast.wire.classify import kind_of_reply, reply_failure

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Calls

OfferTools = Literal["auto", "row"]
"""`auto`: the environment's tools if a row has no `tools`; `row`: only what the row declares."""
_NO_SUCH_ROUTE: Final = frozenset({404, 405, 501})


async def list_tools(calls: Calls, environment: str, timeout_s: float) -> list[JsonObject]:
    """The declarations of an environment's tools; empty if it does not list them. Raises CallError."""
    reply = await calls.call(environment, TOOLS_PATH, method="GET", stage=Stage.SEED, timeout_s=timeout_s)
    if reply.status in _NO_SUCH_ROUTE:
        return []
    if not reply.ok:
        kind = kind_of_reply(Stage.SEED, reply.status)
        raise CallError(reply_failure(reply, kind, Stage.SEED, environment, TOOLS_PATH, calls.address(environment)))
    listed: Any = reply.body.get("tools") if isinstance(reply.body, dict) else None
    tools = listed if isinstance(listed, list) else []
    return [tool for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
