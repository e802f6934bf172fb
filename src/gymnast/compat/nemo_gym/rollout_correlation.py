"""`nemo_gym.rollout_correlation`: the path prefix `/ng-rollout/<id>`, which tells the rollout of a call."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pydantic import BaseModel

from gymnast.compat.nemo_gym.context import CURRENT_REQUEST, RequestContext
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.types.task import ATTEMPT_INDEX, ROLLOUT_ID, ROLLOUT_INDEX, TASK_INDEX, correlation_id
from gymnast.wire.asgi import AsgiScope, Receive, Send

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


def maybe_rollout_id_from_run_body(body: BaseModel | Mapping[str, Any] | None) -> str | None:
    """The id of the rollout that a `/run` request belongs to, or None. A malformed one is a ValueError."""
    if not isinstance(body, (BaseModel, Mapping)):
        return None
    fields = (ROLLOUT_ID, TASK_INDEX, ROLLOUT_INDEX, ATTEMPT_INDEX)
    get = body.get if isinstance(body, Mapping) else lambda name: getattr(body, name, None)
    row = {name: get(name) for name in fields if get(name) is not None}
    rollout_id = correlation_id(row)
    if rollout_id is None and ROLLOUT_ID in row:
        raise ValueError(f"{ROLLOUT_ID} must match {ROLLOUT_ID_PATTERN}, got {row[ROLLOUT_ID]!r}")
    return rollout_id


def current_rollout_id() -> str | None:
    """The rollout of the request that the running code handles."""
    return CURRENT_REQUEST.get().rollout_id


@contextmanager
def rollout_context(rollout_id: str | None) -> Iterator[None]:
    """Run code on behalf of a rollout: calls that it makes carry the id."""
    current = CURRENT_REQUEST.get()
    token = CURRENT_REQUEST.set(RequestContext(current.cell, rollout_id, current.progress))
    try:
        yield
    finally:
        CURRENT_REQUEST.reset(token)


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
