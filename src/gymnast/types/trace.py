"""The trace of a rollout: its model calls as records store them (`ng_model_call_capture`), and its main conversation.

Messages are listed once, in `messages`; calls refer to them. `history_of` reassembles a call's prompt. Pure: times and
ids are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.types.call_tree import CallNode, CallReason, CallTree, Part, join_parts
from gymnast.types.responses import is_model_turn, reasoning_texts, sum_usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.types.items import Usage
    from gymnast.types.json import JsonObject

TOKEN_FIELDS: Final = frozenset({"prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts"})
"""Fields of the response's output items that the trace does not repeat."""
_FINISH: Final = {"max_output_tokens": "length"}


@dataclass(slots=True)
class TracedCall:
    node: CallNode
    model_call_id: str
    dialect: str
    model_requested: str | None
    tools: int | None
    """The index of its list of tools in the trace."""
    started_at: float
    completed_at: float | None = None
    status_code: int | None = None
    error_category: str | None = None
    error: str | None = None
    latency_ms: float = 0.0
    response_id: str | None = None
    model: str | None = None
    response_status: str | None = None
    created_at: float = 0.0
    incomplete: JsonObject | None = None
    usage: Usage | None = None
    tool_calls: list[JsonObject] = field(default_factory=list)
    reasoning: str | None = None
    ignored: list[str] = field(default_factory=list)

    @property
    def has_response(self) -> bool:
        return self.node.output is not None


class Trace:
    """Collects the calls of one rollout."""

    def __init__(self) -> None:
        self.tree = CallTree()
        self.calls: list[TracedCall] = []
        self.usage: Usage | None = None
        self._tools: dict[bytes, int] = {}
        self._tool_lists: list[list[JsonObject]] = []
        self._by_response: dict[str, TracedCall] = {}

    def begin(self, params: Mapping[str, Any], *, dialect: str, model_call_id: str, at: float) -> TracedCall:
        """Start a call with these create params."""
        node = self.tree.begin(_input_items(params["input"]), params.get("instructions"))
        call = TracedCall(node, model_call_id, dialect, params.get("model"), self._tools_index(params.get("tools")), at)
        self.calls.append(call)
        return call

    def finish(self, call: TracedCall, response: Mapping[str, Any], *, at: float, latency_ms: float) -> None:
        """The call returned a response."""
        output = response["output"]
        self.tree.finish(call.node, output)
        call.completed_at, call.latency_ms, call.status_code = at, latency_ms, 200
        call.response_id, call.model = response.get("id"), response.get("model")
        call.response_status, call.incomplete = response.get("status"), response.get("incomplete_details")
        call.created_at, call.usage = response.get("created_at") or at, response.get("usage")
        call.tool_calls = [_call_reference(item) for item in output if item.get("type") == "function_call"]
        thoughts = [text for item in output if item.get("type") == "reasoning" for text in reasoning_texts(item)]
        call.reasoning = "\n".join(thoughts) or None
        self.usage = sum_usage(self.usage, call.usage)
        if call.response_id is not None:
            self._by_response[call.response_id] = call

    def fail(
        self, call: TracedCall, category: str, *, at: float, latency_ms: float, status: int | None, error: str
    ) -> None:
        """The call failed."""
        self.tree.fail(call.node)
        call.completed_at, call.latency_ms, call.status_code = at, latency_ms, status
        call.error_category, call.error = category, error

    def items_after(self, response_id: str) -> list[JsonObject] | None:
        """The conversation up to and including a response, for a client that refers to it by id."""
        call = self._by_response.get(response_id)
        if call is None:
            return None
        indices = self.tree.conversation_of(call.node)
        return self.tree.items(index for index in indices if self.tree.entries[index].role != "system")

    @property
    def main_end(self) -> TracedCall | None:
        """The last call of the main conversation that has a response."""
        finished = (call for call in reversed(self.calls) if call.has_response)
        return next((call for call in finished if self.tree.is_main(call.node)), None)

    def main_output(self) -> list[JsonObject]:
        """What came after the first prompt of the main conversation, in order.

        Includes the model's items as returned, even if the program edited them later, and tool outputs and messages as
        sent.
        """
        end = self.main_end
        produced: list[int] = []
        before: list[int] = []
        for node in self.tree.path_to(end.node) if end is not None else ():
            prompt = join_parts(list(before), node.parts)
            if node.reason is CallReason.BRANCH:
                dropped = set(before[node.shared :]) - set(prompt)
                produced = [entry for entry in produced if entry not in dropped]
            produced += self._new_entries(node, prompt, before)
            before = prompt if node.output is None else [*prompt, node.output]
            produced += before[len(prompt) :]
        return [_with_type(item) for item in self.tree.items(produced)]

    def capture(self, rollout_id: str | None, model_ref: JsonObject) -> JsonObject:
        """The row attachment."""
        usage: Any = self.usage or {}
        return {
            "rollout_id": rollout_id,
            "metrics": {
                "tokens_in": usage.get("input_tokens", 0),
                "tokens_out": usage.get("output_tokens", 0),
                "tokens_reasoning": _detail(usage, "output_tokens_details", "reasoning_tokens"),
                "tokens_total": usage.get("total_tokens", 0),
                "cached_tokens": _detail(usage, "input_tokens_details", "cached_tokens"),
                "latency_total_ms": round(sum(call.latency_ms for call in self.calls), 3),
                "num_calls": len(self.calls),
                "failed_calls": sum(not call.has_response for call in self.calls),
            },
            "calls": [{**_call_object(call), "model_ref": model_ref} for call in self.calls],
            "segments": self._segments(),
            "messages": [[_without_tokens(item) for item in entry.items] for entry in self.tree.entries],
            "tools": self._tool_lists,
        }

    def _segments(self) -> list[JsonObject]:
        segments: dict[int, JsonObject] = {}
        for call in self.calls:
            first = self.tree.calls[call.node.segment]
            segment = segments.setdefault(
                first.index,
                {"reason": first.reason.value, "parent": first.parent, "main": self.tree.is_main(first), "calls": []},
            )
            segment["calls"].append(call.node.index)
        return list(segments.values())

    def _new_entries(self, node: CallNode, prompt: list[int], before: list[int]) -> list[int]:
        """The entries of a prompt that are new in this conversation."""
        entries, old = self.tree.entries, set(before)
        if node.parent is None:
            return []
        if node.reason in {CallReason.EXTENDS, CallReason.BRANCH}:
            return prompt[node.shared :]
        if node.reason is CallReason.HISTORY_EDITED:
            # What comes before something old is an edit of it, and so is another version of a model turn.
            last = max((index for index, entry in enumerate(prompt) if entry in old), default=-1)
            return [entry for entry in prompt[last + 1 :] if entries[entry].role not in {"system", "assistant"}]
        return [entry for entry in prompt if entry not in old and entries[entry].role != "system"]

    def _tools_index(self, tools: Any) -> int | None:
        if not tools:
            return None
        index = self._tools.setdefault(orjson.dumps(tools), len(self._tool_lists))
        if index == len(self._tool_lists):
            self._tool_lists.append(tools)
        return index


def history_of(capture: JsonObject, call_index: int) -> list[JsonObject]:
    """The items of a call's prompt, from the row attachment."""
    path = [capture["calls"][call_index]]
    while path[-1]["parent"] is not None:
        path.append(capture["calls"][path[-1]["parent"]])
    entries: list[int] = []
    for call in reversed(path):
        entries = join_parts(entries, [Part(kind == "parent", start, stop) for kind, start, stop in call["prompt"]])
        if call is not path[0] and call["output"] is not None:
            entries.append(call["output"])
    return [item for index in entries for item in capture["messages"][index]]


def _call_object(call: TracedCall) -> JsonObject:
    usage: Any = call.usage or {}
    cached = _detail(usage, "input_tokens_details", "cached_tokens")
    data: JsonObject = {
        "model_call_id": call.model_call_id,
        "response_id": call.response_id,
        "call_index": call.node.index,
        "model": call.model,
        "model_requested": call.model_requested,
        "dialect": call.dialect,
        "status_code": call.status_code,
        "response_status": call.response_status,
        "finish_reason": _finish_reason(call),
        "started_at": call.started_at,
        "completed_at": call.completed_at,
        "tokens_in": usage.get("input_tokens"),
        "tokens_out": usage.get("output_tokens"),
        "tokens_reasoning": _detail(usage, "output_tokens_details", "reasoning_tokens"),
        "tokens_total": usage.get("total_tokens"),
        "tool_calls": call.tool_calls,
        "reasoning_content": call.reasoning,
        "cache_hit": None if cached is None else cached > 0,
        "cached_tokens": cached,
        "cache_creation_tokens": None,
        "error_category": call.error_category,
        "latency_total_ms": round(call.latency_ms, 3),
        "latency_ttft_ms": None,
        "reason": call.node.reason.value,
        "parent": call.node.parent,
        "segment": call.node.segment,
        "prompt": [["parent" if part.of_parent else "messages", part.start, part.stop] for part in call.node.parts],
        "output": call.node.output,
        "tools": call.tools,
    }
    if call.error is not None:
        data["error"] = call.error
    if call.ignored:
        data["ignored"] = call.ignored
    return data


def _finish_reason(call: TracedCall) -> str | None:
    if not call.has_response:
        return None
    reason = (call.incomplete or {}).get("reason")
    if reason is not None:
        return _FINISH.get(reason, str(reason))
    return "tool_calls" if call.tool_calls else "stop"


def _input_items(value: Any) -> list[JsonObject]:
    return [{"type": "message", "role": "user", "content": value}] if isinstance(value, str) else list(value)


def _call_reference(item: JsonObject) -> JsonObject:
    return {"call_id": item.get("call_id"), "name": item.get("name")}


def _with_type(item: JsonObject) -> JsonObject:
    return item if "type" in item else {"type": "message", **item}


def _without_tokens(item: JsonObject) -> JsonObject:
    if not is_model_turn(item) or item.keys().isdisjoint(TOKEN_FIELDS):
        return item
    return {name: value for name, value in item.items() if name not in TOKEN_FIELDS}


def _detail(usage: Any, group: str, name: str) -> int | None:
    details = usage.get(group)
    return details.get(name) if isinstance(details, dict) else None
