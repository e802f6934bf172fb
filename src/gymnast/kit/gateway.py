"""The gateway: for each rollout a URL and a key at which any program finds the policy, in the dialect it speaks.

`Gateway` finds the rollout a request belongs to and refuses everything else; a `Door` is what one rollout sees: the
model's endpoints in all dialects, its environment's tools, its limits, its trace. Knows no sockets: `runtime.listener`
puts a gateway on HTTP. What has ended cannot be written to.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from gymnast.kit.door import Door
from gymnast.kit.door_rules import Limits, Places, refusal
from gymnast.wire.message import Reply, Request
from gymnast.wire.server import Server, Surroundings

if TYPE_CHECKING:
    from gymnast.config.instances import ServerKind
    from gymnast.types.items import CreateParams
    from gymnast.wire.calls import Scope

KEY_HEADER: Final = "x-gymnast-key"
"""For clients whose Authorization header cannot be chosen for each rollout; it wins over the others."""
_PATH: Final = re.compile(r"^/ng-rollout/([A-Za-z0-9][A-Za-z0-9._-]*)/([0-9a-f]{32})(?=/|$)")
_OFTEN_WRITTEN: Final = re.compile(r"^(?:/v1)*(?=/(?:responses|chat/completions|messages|models)(?:/|$))")


@dataclass(frozen=True, slots=True)
class Address:
    """How a program reaches the policy during one rollout."""

    url: str
    """For clients that add `/v1/…` themselves, as Anthropic's do."""
    key: str

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def tools_url(self) -> str:
        return f"{self.url}/tools"

    @property
    def mcp_url(self) -> str:
        return f"{self.url}/mcp"


@dataclass(slots=True)
class _Opened:
    door: Door
    key: str
    rollout_id: str


class Gateway(Server):
    """The doors of all rollouts in flight."""

    kind: ClassVar[ServerKind] = "responses_api_models"
    has_sessions: ClassVar[bool] = False

    def __init__(self, name: str, surroundings: Surroundings) -> None:
        super().__init__(name, surroundings)
        self._open: dict[str, _Opened] = {}

    def open(
        self, base_url: str, places: Places, limits: Limits, params: CreateParams, scope: Scope
    ) -> tuple[Door, Address]:
        """A door for one rollout. `close` must follow."""
        if scope.rollout_id is None:  # nobody named it: its calls still belong together
            scope.rollout_id = f"u{secrets.token_hex(8)}"
        secret, key = secrets.token_hex(16), f"sk-gymnast-{secrets.token_hex(20)}"
        door = Door(self.name, self.surroundings, places, limits, params, scope)
        self._open[secret] = _Opened(door, key, scope.rollout_id)
        return door, Address(f"{base_url}/ng-rollout/{scope.rollout_id}/{secret}", key)

    async def close(self, door: Door) -> None:
        """End a rollout: calls in flight are cut off, later ones refused."""
        self._open = {secret: opened for secret, opened in self._open.items() if opened.door is not door}
        await door.close()

    async def handle(self, request: Request) -> Reply:
        found = _PATH.match(request.path)
        if found is None:
            return await super().handle(request)
        opened = self._open.get(found[2])
        if opened is None or opened.rollout_id != found[1]:
            return refusal(404, "rollout_ended", "no rollout is running at this URL: it has ended, or the URL is wrong")
        if not hmac.compare_digest(_given_key(request).encode(), opened.key.encode()):
            return refusal(
                401, "invalid_api_key", "this rollout requires its API key: Authorization: Bearer … or x-api-key"
            )
        request.rollout_id, request.trail = opened.rollout_id, None  # the door's own calls are accounted on its scope
        request.path = _OFTEN_WRITTEN.sub("/v1", request.path[found.end() :] or "/")
        return await opened.door.handle(request)


def _given_key(request: Request) -> str:
    if KEY_HEADER in request.headers:
        return request.headers[KEY_HEADER]
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and given:
        return given.strip()
    return request.headers.get("x-api-key") or request.headers.get("api-key") or ""
