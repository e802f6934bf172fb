"""Limits of a rollout, and how its requests are passed on: sampling, signatures, refusals. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.wire.message import Reply

if TYPE_CHECKING:
    from gymnast.types.items import CreateParams, Response
    from gymnast.types.json import JsonObject

SIGNATURE: Final = "Z3ltbmFzdA=="
"""Put on reasoning for clients of Messages: many send back only signed reasoning."""
_SAMPLING: Final = ("temperature", "top_p", "max_output_tokens", "metadata")


@dataclass(frozen=True, slots=True)
class EndpointTargets:
    """The instances behind a rollout's endpoint, and their timeouts."""

    model: str
    environment: str
    model_timeout_s: float = 1800.0
    tool_timeout_s: float = 300.0


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """Limits of one rollout."""

    max_model_calls: int | None = None
    max_output_tokens: int | None = None


def select_sampling(params: CreateParams) -> JsonObject:
    """The sampling parameters of a task."""
    return {name: value for name in _SAMPLING if (value := params.get(name)) is not None}


def build_policy_request(request: JsonObject, sampling: JsonObject, tokens_left: int | None) -> JsonObject:
    """The request to the policy: the task's sampling parameters override those of the program.

    The model name is dropped. Of several output limits the smallest applies.
    """
    params = {name: value for name, value in request.items() if name != "model"} | sampling
    metadata = _merge_metadata(request.get("metadata") or {}, sampling.get("metadata") or {})
    if metadata:
        params["metadata"] = metadata
    limits = (request.get("max_output_tokens"), sampling.get("max_output_tokens"), tokens_left)
    known = [limit for limit in limits if limit is not None]
    if known:
        params["max_output_tokens"] = min(known)
    return params


def add_signatures(response: Response) -> Response:
    """The response with a signature on its reasoning."""
    output: list[Any] = [_with_signature(item, None, SIGNATURE) for item in response["output"]]
    return {**response, "output": output}


def strip_signatures(request: JsonObject) -> JsonObject:
    """The request without our signatures."""
    items = request["input"]
    if isinstance(items, str):
        return request
    return {**request, "input": [_with_signature(item, SIGNATURE, None) for item in items]}


def _with_signature(item: Any, old: str | None, new: str | None) -> Any:
    if item.get("type") != "reasoning" or item.get("encrypted_content") != old:
        return item
    return {**item, "encrypted_content": new}


def complete_usage(response: Response) -> Response:
    """The response with numbers for the counts that the policy did not report: clients parse them as integers."""
    usage: Any = response.get("usage")
    if usage is None:
        return response
    details = {
        key: {name: 0 if count is None else count for name, count in (usage.get(key) or {default: 0}).items()}
        for key, default in (("input_tokens_details", "cached_tokens"), ("output_tokens_details", "reasoning_tokens"))
    }
    completed: Any = {**response, "usage": {**usage, **details}}
    return completed  # type: ignore[no-any-return]


def refusal_reply(status: int, code: str, text: str) -> Reply:
    """An error that clients of all dialects display, and none retries."""
    kind = "authentication_error" if status == 401 else "invalid_request_error"
    error = {"message": text, "type": kind, "code": code, "param": None}
    return Reply(status, {"type": "error", "error": error, "detail": text}, headers={"x-should-retry": "false"})


def make_model_entry(name: str, owner: str) -> JsonObject:
    """A model, as OpenAI's and Anthropic's clients list it."""
    openai = {"id": name, "object": "model", "created": 0, "owned_by": owner}
    return {**openai, "type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z"}


def _merge_metadata(program: JsonObject, task: JsonObject) -> JsonObject:
    """The task's metadata overrides the program's; their extra parameters are merged one by one."""
    metadata = {**program, **task}
    if "extra_body" in program and "extra_body" in task:
        try:
            merged = {**orjson.loads(program["extra_body"]), **orjson.loads(task["extra_body"])}
        except (orjson.JSONDecodeError, TypeError):  # the model server reports what is wrong with the task's
            return metadata
        metadata["extra_body"] = orjson.dumps(merged).decode()
    return metadata
