"""`nemo_gym.rollout_correlation`: the path prefix `/ng-rollout/<id>`, which tells the rollout of a call."""

import re
from typing import Any, Final

from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.wire.asgi import AsgiScope, Receive, Send

__all__ = [
    "ROLLOUT_ID_PATTERN",
    "ROLLOUT_PATH_PREFIX",
    "TOKEN_CAPTURE_PATH",
    "RolloutContextMiddleware",
    "apply_rollout_prefix",
    "rollout_path_prefix",
]

ROLLOUT_PATH_PREFIX: Final = "ng-rollout"
TOKEN_CAPTURE_PATH: Final = "training-token-capture"
ROLLOUT_ID_PATTERN: Final = "[A-Za-z0-9][A-Za-z0-9._-]*"


def rollout_path_prefix(rollout_id: str | None, *, token_capture: bool = False) -> str:
    """The path prefix of a rollout's calls; empty without an id."""
    if rollout_id is None:
        return ""
    return f"/{ROLLOUT_PATH_PREFIX}/{rollout_id}" + (f"/{TOKEN_CAPTURE_PATH}" if token_capture else "")


def apply_rollout_prefix(base_url: str, rollout_id: str | None, *, token_capture: bool = False) -> str:
    """A base URL whose calls belong to a rollout; a trailing `/v1` stays at the end."""
    prefix = rollout_path_prefix(rollout_id, token_capture=token_capture)
    base = base_url.rstrip("/")
    if base.endswith("/v1"):
        return f"{base.removesuffix('/v1')}{prefix}/v1"
    return base + prefix


class RolloutContextMiddleware:
    """Strips the prefix from paths before routing, and puts the id into the request's state and path parameters."""

    _PREFIX = re.compile(
        f"^/{ROLLOUT_PATH_PREFIX}/(?P<rollout_id>{ROLLOUT_ID_PATTERN})(?:/{TOKEN_CAPTURE_PATH})?(?=/|$)"
    )

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        match = self._PREFIX.match(scope.get("path", "")) if scope["type"] == "http" else None
        if match is not None:
            path = scope["path"][match.end() :] or "/"
            state = {**scope.get("state", {}), "rollout_id": match["rollout_id"]}
            parameters = {**scope.get("path_params", {}), "rollout_id": match["rollout_id"]}
            scope = {**scope, "path": path, "raw_path": path.encode(), "state": state, "path_params": parameters}
        await self.app(scope, receive, send)


__getattr__ = missing_from("nemo_gym.rollout_correlation")
