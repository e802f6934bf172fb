"""Adds what was observed of a rollout to its row: captured model calls, joined observations, the trajectory.

An observation that cannot be used never costs the row.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.compat.nemo_gym.capture import CaptureStore, capture_dir
from gymnast.compat.nemo_gym.capture_merge import OBSERVATIONS, merge_model_call_capture_into_record
from gymnast.compat.nemo_gym.trajectories import TRAJECTORY, attach_trajectory
from gymnast.types.task import IDENTITY_KEYS, correlation_id
from gymnast.types.usage import CALL_CAPTURE, make_capture
from gymnast.wire.asgi import ClientDisconnected, read_body

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from pathlib import Path

    from gymnast.wire.asgi import AsgiApp, AsgiScope, Receive, Send
    from gymnast.wire.progress import AttemptProgress

_REDACTED: Final = "multimodal_history_redacted"
_log = logging.getLogger(__name__)


class ObservedRuns:
    """The observed rollouts of one agent. `folder` has the captures of model servers, if they write them."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def begin(self, row: Any) -> None:
        """Forget what an earlier run captured under the id of this rollout."""
        rollout_id = correlation_id(row) if isinstance(row, dict) else None
        if self._folder is None or rollout_id is None:
            return
        store = CaptureStore(self._folder)
        for path in (store.path_for(rollout_id), store.incomplete_path_for(rollout_id)):
            path.unlink(missing_ok=True)

    def finish(self, row: dict[str, Any], result: dict[str, Any], progress: AttemptProgress | None = None) -> None:
        """Add to the agent's reply to /run what was observed while it ran."""
        try:
            observed = self._observe(row, result, progress)
        except Exception:  # noqa: BLE001 - the boundary: captures and observations are other servers' data
            _log.warning("cannot add what was observed of rollout %s", correlation_id(row), exc_info=True)
            return
        result.update({key: observed[key] for key in (CALL_CAPTURE, OBSERVATIONS, TRAJECTORY) if key in observed})

    async def serve(self, app: AsgiApp, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a /run that came through a port: an agent in a separate process is called that way."""
        try:
            body = await read_body(receive)
        except ClientDisconnected:
            return
        pending = [body]
        messages: list[MutableMapping[str, Any]] = []

        async def replay_body() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": pending.pop(), "more_body": False} if pending else await receive()

        async def hold_message(message: MutableMapping[str, Any]) -> None:
            messages.append(message)

        row = _json_object(body)
        self.begin(row)
        await app(scope, replay_body, hold_message)
        start, *rest = messages
        payload = b"".join(message.get("body", b"") for message in rest)
        result = _json_object(payload) if start["status"] == 200 else None
        if row is not None and result is not None:
            self.finish(row, result)
            payload = orjson.dumps(result)
            kept = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
            start["headers"] = [*kept, (b"content-length", str(len(payload)).encode())]
        await send(start)
        await send({"type": "http.response.body", "body": payload})

    def _observe(self, row: dict[str, Any], result: dict[str, Any], progress: AttemptProgress | None) -> dict[str, Any]:
        identity: dict[str, Any] = {key: row[key] for key in IDENTITY_KEYS if key in row}
        observed: dict[str, Any] = {**result, **identity}
        if self._has_captures(row):
            assert self._folder is not None
            merge_model_call_capture_into_record(observed, [self._folder], include_payloads=not _is_redacted(result))
        elif progress is not None and progress.usage_counter is not None and progress.usage_counter.captured:
            observed[CALL_CAPTURE] = make_capture(progress.usage_counter, correlation_id(row))
        if any(key in observed for key in (CALL_CAPTURE, OBSERVATIONS, TRAJECTORY)):
            attach_trajectory(row, observed)
        return observed

    def _has_captures(self, row: dict[str, Any]) -> bool:
        rollout_id = correlation_id(row)
        if self._folder is None or rollout_id is None:
            return False
        store = CaptureStore(self._folder)
        return store.path_for(rollout_id).exists() or store.is_incomplete(rollout_id)


def observed_runs(server_client: Any) -> ObservedRuns | None:
    """The observed rollouts of an agent, or None if its run is not observed."""
    config = getattr(server_client, "global_config_dict", None)
    if not hasattr(config, "keys") or config is None or not config.get("observability_enabled"):
        return None
    return ObservedRuns(capture_dir(server_client))


def _is_redacted(result: dict[str, Any]) -> bool:
    """Whether the agent removed images from its history: then payloads, which have them, stay out of the row too."""
    parts = (result.get(key) for key in (TRAJECTORY, OBSERVATIONS))
    gaps = [gap for part in parts if isinstance(part, dict) for gap in part.get("gaps") or ()]
    return any(isinstance(gap, dict) and gap.get("code") == _REDACTED for gap in gaps)


def _json_object(data: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
