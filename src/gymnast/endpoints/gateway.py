"""The gateway: gives each rollout a URL and a key at which any program can call the policy, in its own dialect.

`Gateway` routes each request to its rollout and refuses all others. A `RolloutEndpoint` is what one rollout sees: the
model in all dialects, its environment's tools, its limits and its trace. The gateway has no sockets: `runtime.listener`
serves it over HTTP.

Invariants: a rollout's path exists from `open` to `close`. The path has a secret, and every request needs the rollout's
key as well, so that a program reaches no other rollout.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from gymnast.endpoints.rollout_endpoint import RolloutEndpoint
from gymnast.endpoints.rollout_endpoint_rules import EndpointTargets, RolloutLimits, refusal_reply
from gymnast.wire.message import Reply, Request
from gymnast.wire.server import Server, ServerContext

if TYPE_CHECKING:
    from gymnast.config.instances import ServerKind
    from gymnast.types.items import CreateParams
    from gymnast.wire.calls import Scope

KEY_HEADER: Final = "x-gymnast-key"
"""For clients that cannot set the Authorization header per rollout; takes precedence over the others."""
_PATH: Final = re.compile(r"^/ng-rollout/([A-Za-z0-9][A-Za-z0-9._-]*)/([0-9a-f]{32})(?=/|$)")
_VERSION_PREFIX: Final = re.compile(r"^(?:/v1)*(?=/(?:responses|chat/completions|messages|models)(?:/|$))")


@dataclass(frozen=True, slots=True)
class RolloutAddress:
    """How a program reaches the policy during one rollout."""

    url: str
    """For clients that append `/v1/…` themselves, as Anthropic's do."""
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
class _OpenRollout:
    endpoint: RolloutEndpoint
    key: str
    rollout_id: str


class Gateway(Server):
    """The endpoints of all rollouts in flight."""

    kind: ClassVar[ServerKind] = "responses_api_models"
    has_sessions: ClassVar[bool] = False

    def __init__(self, name: str, context: ServerContext) -> None:
        super().__init__(name, context)
        self._open: dict[str, _OpenRollout] = {}

    def open(
        self, base_url: str, targets: EndpointTargets, limits: RolloutLimits, params: CreateParams, scope: Scope
    ) -> tuple[RolloutEndpoint, RolloutAddress]:
        """Open an endpoint for one rollout. The caller must `close` it."""
        if scope.rollout_id is None:  # its calls belong together all the same
            scope.rollout_id = f"u{secrets.token_hex(8)}"
        secret, key = secrets.token_hex(16), f"sk-gymnast-{secrets.token_hex(20)}"
        endpoint = RolloutEndpoint(self.name, self.context, targets, limits, params, scope)
        self._open[secret] = _OpenRollout(endpoint, key, scope.rollout_id)
        return endpoint, RolloutAddress(f"{base_url}/ng-rollout/{scope.rollout_id}/{secret}", key)

    async def close(self, endpoint: RolloutEndpoint) -> None:
        """End a rollout: cancel its calls in flight and refuse later ones."""
        self._open = {secret: rollout for secret, rollout in self._open.items() if rollout.endpoint is not endpoint}
        await endpoint.close()

    async def handle(self, request: Request) -> Reply:
        match = _PATH.match(request.path)
        if match is None:
            return await super().handle(request)
        rollout = self._open.get(match[2])
        if rollout is None or rollout.rollout_id != match[1]:
            text = "no rollout is running at this URL: it has ended, or the URL is wrong"
            return refusal_reply(404, "rollout_ended", text)
        if not hmac.compare_digest(_read_key(request).encode(), rollout.key.encode()):
            return refusal_reply(
                401, "invalid_api_key", "this rollout requires its API key: Authorization: Bearer … or x-api-key"
            )
        request.rollout_id, request.progress = rollout.rollout_id, None  # the endpoint's scope records usage
        request.path = _VERSION_PREFIX.sub("/v1", request.path[match.end() :] or "/")
        return await rollout.endpoint.handle(request)


def _read_key(request: Request) -> str:
    if KEY_HEADER in request.headers:
        return request.headers[KEY_HEADER]
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key:
        return key.strip()
    return request.headers.get("x-api-key") or request.headers.get("api-key") or ""
