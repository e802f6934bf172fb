"""Captured model calls: one file per rollout with every exchange, and the records read from it.

Exported by `nemo_gym.base_responses_api_model`. The contract defines the lines; a truncated last line is skipped.
"""

import fcntl
import os
import re
import time
import uuid
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final

import orjson
from pydantic import BaseModel, Field

from gymnast.compat.nemo_gym.config_types import ModelServerRef
from gymnast.compat.nemo_gym.reply_parts import parse_reply
from gymnast.compat.nemo_gym.rollout_correlation import ROLLOUT_ID_PATTERN, RolloutContextMiddleware
from gymnast.types.usage import parse_tokens
from gymnast.wire.asgi import ROLLOUT_HEADER, AsgiApp, AsgiScope, ClientDisconnected, Receive, Send, read_body

_DIALECTS: Final = {"/v1/responses": "responses", "/v1/chat/completions": "chat", "/v1/messages": "messages"}
_CATEGORIES: Final = {401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 429: "rate_limit"}
_ID: Final = re.compile(ROLLOUT_ID_PATTERN)


def _validate_id(rollout_id: str) -> str:
    if not _ID.fullmatch(rollout_id):
        raise ValueError(
            f"invalid rollout id {rollout_id!r}: expected letters and digits, and after the first also . _ -"
        )
    return rollout_id


class CaptureStore:
    def __init__(self, root: Path | str) -> None:
        self._root = Path(root)

    @property
    def root(self) -> Path:
        return self._root

    def path_for(self, rollout_id: str) -> Path:
        return self._root / f"{_validate_id(rollout_id)}.capture.jsonl"

    def incomplete_path_for(self, rollout_id: str) -> Path:
        return self._root / f"{_validate_id(rollout_id)}.capture.incomplete"

    def mark_incomplete(self, rollout_id: str) -> None:
        """Record that calls are missing."""
        self._root.mkdir(parents=True, exist_ok=True)
        self.incomplete_path_for(rollout_id).touch()

    def is_incomplete(self, rollout_id: str) -> bool:
        return self.incomplete_path_for(rollout_id).exists()

    def record(self, rollout_id: str, exchange: dict[str, Any]) -> None:
        """Append an exchange; it is on disk when this returns."""
        self._root.mkdir(parents=True, exist_ok=True)
        with self.path_for(rollout_id).open("ab") as out:
            fcntl.flock(out, fcntl.LOCK_EX)
            out.write(orjson.dumps(exchange) + b"\n")
            out.flush()
            os.fsync(out.fileno())

    def read(self, rollout_id: str) -> list[dict[str, Any]]:
        """All readable exchanges."""
        return [exchange for _, exchange in self.read_available(rollout_id)[0]]

    def read_available(self, rollout_id: str) -> tuple[list[tuple[int, dict[str, Any]]], int]:
        """The readable exchanges with their line numbers, and the number of unreadable lines."""
        path = self.path_for(rollout_id)
        lines = path.read_bytes().splitlines() if path.exists() else []
        exchanges: list[tuple[int, dict[str, Any]]] = []
        unreadable = 0
        for number, line in enumerate(lines):
            try:
                exchanges.append((number, orjson.loads(line)))
            except orjson.JSONDecodeError:
                unreadable += 1
        return exchanges, unreadable


class ModelCallRecord(BaseModel):
    """A model call, read from its exchange."""

    model_call_id: str | None = None
    response_id: str | None = None
    call_index: int
    model_ref: ModelServerRef | None = None
    model: str | None = None
    dialect: str | None = None
    status_code: int | None = None
    response_status: str | None = None
    finish_reason: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_reasoning: int | None = None
    tokens_total: int | None = None
    request: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    request_raw: str | None = None
    response_raw: str | None = None
    tool_calls: list[dict[str, Any]] = Field(default_factory=list)
    reasoning_content: str | None = None
    cache_hit: bool | None = None
    cached_tokens: int | None = None
    cache_creation_tokens: int | None = None
    error_category: str | None = None
    latency_total_ms: float | None = None
    latency_ttft_ms: float | None = None


def read_model_call_records(store: CaptureStore, rollout_id: str) -> list[ModelCallRecord]:
    """The calls of a rollout, in order."""
    return read_available_records(store, rollout_id)[0]


def read_available_records(store: CaptureStore, rollout_id: str) -> tuple[list[ModelCallRecord], int]:
    """The calls of a rollout, in order, and the number of unreadable lines."""
    lines, unreadable = store.read_available(rollout_id)
    exchanges = sorted((exchange for _, exchange in lines), key=lambda exchange: exchange.get("started_at") or 0.0)
    return [_record(index, exchange) for index, exchange in enumerate(exchanges)], unreadable


def _record(index: int, exchange: dict[str, Any]) -> ModelCallRecord:
    response, request = (_object(exchange.get(name)) for name in ("response", "request"))
    tokens, parts = parse_tokens(response.get("usage")), parse_reply(response)
    return ModelCallRecord(
        call_index=index,
        response_id=response.get("id"),
        model=response.get("model") or request.get("model"),
        response_status=response.get("status"),
        finish_reason=parts.finish_reason,
        tokens_in=tokens.input if tokens else None,
        tokens_out=tokens.output if tokens else None,
        tokens_reasoning=tokens.reasoning if tokens else None,
        tokens_total=tokens.input + tokens.output if tokens else None,
        cached_tokens=tokens.cached if tokens else None,
        cache_hit=None if tokens is None or tokens.cached is None else tokens.cached > 0,
        tool_calls=parts.tool_calls,
        reasoning_content=parts.reasoning,
        latency_total_ms=exchange.get("latency_ms"),
        **{name: exchange.get(name) for name in _COPIED_FIELDS},
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_COPIED_FIELDS: Final = (
    "model_call_id", "model_ref", "dialect", "status_code", "started_at", "completed_at", "request", "response",
    "request_raw", "response_raw", "error_category", "latency_ttft_ms",
)  # fmt: skip


def aggregate_model_call_metrics(store: CaptureStore, rollout_id: str) -> dict[str, Any]:
    """The total usage of a rollout's calls; None for a number that one of them does not report."""
    return call_metrics(read_model_call_records(store, rollout_id))


def call_metrics(records: list[ModelCallRecord]) -> dict[str, Any]:
    """The total usage of calls; None for a number that one of them does not report."""

    def total(name: str) -> Any:
        values = [getattr(record, name) for record in records]
        return None if any(value is None for value in values) else sum(values)

    names = ("tokens_in", "tokens_out", "tokens_reasoning", "tokens_total", "cached_tokens", "latency_total_ms")
    return {**{name: total(name) for name in names}, "num_calls": len(records)}


def capture_dir(server_client: Any) -> Path | None:
    """The folder in which a model server captures its calls, or None if it does not."""
    config = getattr(server_client, "global_config_dict", None)
    if not hasattr(config, "keys") or config is None or not config.get("observability_enabled"):
        return None
    folder = config.get("model_call_capture_dir")
    return Path(str(folder)) if folder else None


class _CaptureMiddleware(RolloutContextMiddleware):
    """Strips the rollout prefix from paths, and captures the exchange of each model call under the rollout's id."""

    def __init__(self, app: AsgiApp, store: CaptureStore, model_ref: ModelServerRef | None = None) -> None:
        super().__init__(app)
        self._store = store
        self._ref = model_ref.model_dump() if model_ref is not None else None

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        rollout_id, dialect = self._call(scope) if scope["type"] == "http" else (None, None)
        if rollout_id is None or dialect is None:
            return await super().__call__(scope, receive, send)
        try:
            body = await read_body(receive)
        except ClientDisconnected:
            return None
        exchange = _Exchange(dialect, self._ref, body)

        async def replay_body() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def record_message(message: MutableMapping[str, Any]) -> None:
            exchange.take(message)
            await send(message)

        try:
            await super().__call__(scope, replay_body, record_message)
        except Exception:
            exchange.error = "exception"
            raise
        finally:
            self._store.record(rollout_id, exchange.line())

    def _call(self, scope: AsgiScope) -> tuple[str | None, str | None]:
        """The rollout of a call, from the path prefix or from the header of calls inside a cell, and its dialect."""
        match = self._PREFIX.match(scope["path"])
        if match is not None:
            return match["rollout_id"], _DIALECTS.get(scope["path"][match.end() :])
        rollout_id = dict(scope["headers"]).get(ROLLOUT_HEADER.encode(), b"").decode("latin-1")
        return (rollout_id if _ID.fullmatch(rollout_id) else None), _DIALECTS.get(scope["path"])


class _Exchange:
    """A call in progress."""

    def __init__(self, dialect: str, ref: dict[str, Any] | None, body: bytes) -> None:
        self.error: str | None = None
        self._head = {"model_call_id": uuid.uuid4().hex, "dialect": dialect, "model_ref": ref}
        self._started, self._body = time.time(), body
        self._status: int | None = None
        self._first_at: float | None = None
        self._chunks: list[bytes] = []

    def take(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
        elif message["type"] == "http.response.body":
            chunk = message.get("body", b"")
            if chunk and self._first_at is None:
                self._first_at = time.time()
            self._chunks.append(chunk)

    def line(self) -> dict[str, Any]:
        ended, status = time.time(), self._status
        bodies = {"request": self._body, "response": b"".join(self._chunks)}
        exchange: dict[str, Any] = {
            **self._head,
            "started_at": self._started,
            "completed_at": ended,
            "latency_ms": round((ended - self._started) * 1000, 2),
            "latency_ttft_ms": None if self._first_at is None else round((self._first_at - self._started) * 1000, 2),
            "status_code": status,
            "error_category": self.error or _category(status),
        }
        for name, raw in bodies.items():
            try:
                exchange[name] = orjson.loads(raw) if raw else None
            except orjson.JSONDecodeError:
                exchange[name], exchange[f"{name}_raw"] = None, raw.decode("utf-8", errors="replace")
        return exchange


def _category(status: int | None) -> str | None:
    if status is None:
        return "incomplete"
    if status < 400:
        return None
    return _CATEGORIES.get(status, "client_error" if status < 500 else "upstream_error")
