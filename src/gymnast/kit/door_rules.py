"""What a rollout may use and how its requests are passed on: limits, sampling, refusals. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.wire.message import Reply

if TYPE_CHECKING:
    from gymnast.types.items import CreateParams, Response
    from gymnast.types.json import JsonObject

SIGNATURE: Final = "Z3ltbmFzdA=="
"""On thoughts for clients of Messages: many send back only what is signed, and the rest as text, if at all."""
_SAMPLING: Final = ("temperature", "top_p", "max_output_tokens", "metadata")


@dataclass(frozen=True, slots=True)
class Places:
    """The instances behind a door, and how long they may take."""

    model: str
    environment: str
    model_timeout_s: float = 1800.0
    tool_timeout_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What one rollout may use."""

    max_model_calls: int | None = None
    max_output_tokens: int | None = None


def sampling_of(params: CreateParams) -> JsonObject:
    """What a task says about sampling."""
    return {name: value for name in _SAMPLING if (value := params.get(name)) is not None}


def outbound(asked: JsonObject, given: JsonObject, tokens_left: int | None) -> JsonObject:
    """The request as the policy gets it: what the task says about sampling lies on top of what the program says.

    A model name means nothing here; of several bounds on the output the smallest holds.
    """
    params = {name: value for name, value in asked.items() if name != "model"} | given
    metadata = _merged(asked.get("metadata") or {}, given.get("metadata") or {})
    if metadata:
        params["metadata"] = metadata
    bounds = (asked.get("max_output_tokens"), given.get("max_output_tokens"), tokens_left)
    known = [bound for bound in bounds if bound is not None]
    if known:
        params["max_output_tokens"] = min(known)
    return params


def signed(response: Response) -> Response:
    """The response with a signature on its thoughts."""
    output: list[Any] = [_with_signature(item, None, SIGNATURE) for item in response["output"]]
    return {**response, "output": output}


def unsigned(asked: JsonObject) -> JsonObject:
    """The request without the signatures we gave."""
    given = asked["input"]
    if isinstance(given, str):
        return asked
    return {**asked, "input": [_with_signature(item, SIGNATURE, None) for item in given]}


def _with_signature(item: Any, old: str | None, new: str | None) -> Any:
    if item.get("type") != "reasoning" or item.get("encrypted_content") != old:
        return item
    return {**item, "encrypted_content": new}


def refusal(status: int, code: str, text: str) -> Reply:
    """An error in a form that clients of all dialects show, and none tries again."""
    kind = "authentication_error" if status == 401 else "invalid_request_error"
    error = {"message": text, "type": kind, "code": code, "param": None}
    return Reply(status, {"type": "error", "error": error, "detail": text}, headers={"x-should-retry": "false"})


def model_entry(name: str, owner: str) -> JsonObject:
    """A model as clients of both families list it."""
    openai = {"id": name, "object": "model", "created": 0, "owned_by": owner}
    return {**openai, "type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z"}


def _merged(under: JsonObject, over: JsonObject) -> JsonObject:
    """Metadata of a program below that of the task; their extra parameters are merged one by one."""
    metadata = {**under, **over}
    if "extra_body" in under and "extra_body" in over:
        try:
            both = {**orjson.loads(under["extra_body"]), **orjson.loads(over["extra_body"])}
        except (orjson.JSONDecodeError, TypeError):  # the model server says what is wrong with the task's
            return metadata
        metadata["extra_body"] = orjson.dumps(both).decode()
    return metadata
