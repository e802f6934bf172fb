"""What is fuzzed: each parser with seeds of its own and the errors that it may raise. Anything else is a finding."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gymnast.config import compose, read_environ
from gymnast.errors import UserError
from gymnast.profile.reading import read_rollouts
from gymnast.rollouts.plan import Planner, PlanOptions
from gymnast.store.keys import key_of_line
from gymnast.store.manifest import read_manifest
from gymnast.store.repair import repair_file
from gymnast.store.scored_records import parse_scored
from gymnast.wire.dialects.chat_chunks import parse_completion_stream
from gymnast.wire.dialects.chat_replies import BadCompletion, completion_to_response
from gymnast.wire.dialects.messages_upstream import BadMessage, message_to_response
from tests.helpers.jsonl import example_rows


@dataclass(frozen=True)
class FuzzTarget:
    """A parser, inputs to start from, and the errors with which it may refuse an input."""

    parse: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    refusals: tuple[type[Exception], ...]


def _in_file(name: str, use: Callable[[Path], object]) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
            path = Path(folder) / name
            path.write_bytes(data)
            return use(path)

    return parse


def _plan(path: Path) -> object:
    return list(Planner(path, PlanOptions(agent="a"), None).chunks())


def _json_object(data: bytes) -> dict[str, Any]:
    value = orjson.loads(data)
    if not isinstance(value, dict):
        raise BadCompletion("not an object")
    return value


def _completion(data: bytes) -> object:
    return completion_to_response(
        _json_object(data), {"input": "q"}, model="m", new_id=lambda prefix: f"{prefix}1", parse_thinking=True
    )


def _message(data: bytes) -> object:
    return message_to_response(
        _json_object(data), {"input": "q"}, model="m", created_at=0.0, new_id=lambda prefix: f"{prefix}1"
    )


def _config(path: Path) -> object:
    return compose(read_environ({}), config_paths=[str(path)])


def _repair(path: Path) -> object:
    return repair_file(path, lambda *_: None, unique_keys=True)


def _record(number: int) -> bytes:
    usage = {"input_tokens": 3, "output_tokens": 4}
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]}
    record = {"reward": 1.0, "response": {"output": [message], "usage": usage}, "extracted_answer": "4"}
    identity = {"_ng_task_index": number, "_ng_rollout_index": 0, "agent_ref": {"name": "a"}}
    return orjson.dumps({**record, **identity}) + b"\n"


_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
_COMPLETION = {
    "id": "1",
    "created": 1,
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": "<think>x</think>y", "tool_calls": [_CALL]},
            "logprobs": {"content": [{"token": "a", "logprob": -0.1, "top_logprobs": []}]},
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}},
}
_MESSAGE = {
    "id": "1",
    "stop_reason": "tool_use",
    "content": [
        {"type": "thinking", "thinking": "x", "signature": "s"},
        {"type": "text", "text": "y"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
    ],
    "usage": {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3},
}
_DELTA = {"role": "assistant", "content": "a", "tool_calls": [{**_CALL, "index": 0}]}
_CHUNKS: list[dict[str, Any]] = [
    {"id": "1", "choices": [{"index": 0, "delta": _DELTA}]},
    {"id": "1", "choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "stop"}]},
    {"id": "1", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
]
_STREAM = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in _CHUNKS) + "data: [DONE]\n\n"
_YAML = b"""policy_model:
  responses_api_models:
    vllm_model:
      entrypoint: app.py
      base_url: ${oc.env:URL,http://127.0.0.1:1/v1}
      api_key: x
      model: m
a: {b: [1, 2.5, null, true], c: ${a.b}}
"""
_MANIFEST = b'{"run_id": "1", "state": "complete", "output": "x.jsonl"}'
_RECORDS = b"".join(map(_record, range(3)))

TARGETS = {
    "rows": FuzzTarget(
        _in_file("in.jsonl", _plan), tuple(orjson.dumps(row) + b"\n" for row in example_rows("mcqa")), (UserError,)
    ),
    "completions": FuzzTarget(_completion, (orjson.dumps(_COMPLETION),), (BadCompletion, orjson.JSONDecodeError)),
    "messages": FuzzTarget(_message, (orjson.dumps(_MESSAGE),), (BadMessage, BadCompletion, orjson.JSONDecodeError)),
    "streams": FuzzTarget(parse_completion_stream, (_STREAM.encode(),), (ValueError,)),
    "configurations": FuzzTarget(_in_file("c.yaml", _config), (_YAML,), (UserError,)),
    "scored records": FuzzTarget(lambda data: (parse_scored(data), key_of_line(data)), (_record(0),), ()),
    "run files": FuzzTarget(_in_file("x.jsonl", _repair), (_RECORDS,), ()),
    "profiles": FuzzTarget(_in_file("x.jsonl", lambda path: read_rollouts((path,))), (_RECORDS,), (UserError,)),
    "manifests": FuzzTarget(_in_file("x_run.json", read_manifest), (_MANIFEST,), (UserError,)),
}
