"""One rollout as JSON: its transcript, tokens, verdict, failed attempts and timing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import NotFoundError
from gymnast.report.payload import snippet
from gymnast.report.run_setup import total_seconds
from gymnast.report.safe_text import to_one_line
from gymnast.report.token_view import view_tokens
from gymnast.report.transcript_items import (
    Limits,
    as_text,
    content_text,
    decode_record,
    explain_incomplete,
    extract_facts,
    prompt_items,
    reply_items,
    tool_items,
    truncate,
)
from gymnast.studio.line_columns import MAX_TEXT
from gymnast.studio.run_table import STATES, Texts, number_or_none
from gymnast.types.encoding import printable
from gymnast.types.failure import kind_named
from gymnast.types.task import AGENT_REF, ATTEMPT_INDEX, FAILURE_TERMINAL, PARAMS
from gymnast.types.usage import CALL_CAPTURE, MODEL_USAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.report.token_text import TokenTexts
    from gymnast.studio.run_table import RunTable
    from gymnast.types.json import JsonObject

MAX_RAW: Final = 32 << 20
_FULL: Final = Limits(text=1 << 20, items=10_000, total=16 << 20, fact=1 << 18, image=8 << 20)
_FULL_IDS: Final = 20_000
_IDS: Final = 400
_MAX_SNIPPET: Final = 200
_MAX_ATTEMPTS: Final = 50
_MAX_LISTED: Final = 1000
_NOT_PARAMETERS: Final = frozenset({"input", "tools", "instructions", "metadata"})
_NUMBERS: Final = (
    *("reward", "attempts", "turns", "tool_calls", "input_tokens", "output_tokens", "seconds", "calls", "cost"),
    "bytes",
)
_TEXTS: Final = ("agent", "truncated", "finish", "failure", "label")


def read_line(table: RunTable, line: int) -> bytes:
    """A line of a run's files. Raises NotFoundError if the file is gone or shorter."""
    path, offset, size = table.position(line)
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(file, size, offset)
        finally:
            os.close(file)
    except OSError as error:
        raise NotFoundError("the run's file is gone", where=path) from error
    if len(data) < size:
        raise NotFoundError("the run's file became shorter", where=path)
    return data


def row_values(table: RunTable, rows: Sequence[int]) -> list[JsonObject]:
    """The built-in columns of some rows."""
    some = table.select(rows)
    columns: dict[str, list[Any]] = {}
    for name in _NUMBERS:
        values = some.column(name)
        assert values is not None
        assert not isinstance(values, Texts)
        columns[name] = [number_or_none(value) for value in values.tolist()]
    for name in _TEXTS:
        texts = some.column(name)
        columns[name] = [None] * len(rows)
        if isinstance(texts, Texts):
            columns[name] = [texts.names[code] if code >= 0 else None for code in texts.codes.tolist()]
    states = some.states.tolist()
    return [
        {
            "task": key >> 32,
            "rollout": key & 0xFFFFFFFF,
            "state": STATES[states[number]],
            **{name: values[number] for name, values in columns.items()},
        }
        for number, key in enumerate(some.keys.tolist())
    ]


def describe_rows(table: RunTable, rows: Sequence[int]) -> list[JsonObject]:
    """Rows as pages show them: columns, the start of prompt and answer, and the record's own short fields."""
    described = row_values(table, rows)
    for row, values in zip(rows, described, strict=True):
        record = decode_record(read_line(table, int(table.lines[row]))) or {}
        params = record.get(PARAMS)
        values["prompt"] = snippet(params.get("input") if isinstance(params, dict) else None)
        values["answer"] = answer_of(record)
        values["values"] = own_values(record, table.own_columns)
    return described


def own_values(record: JsonObject, names: Sequence[str]) -> JsonObject:
    """The record's own numbers and short texts."""
    values = {name: _short(record.get(name)) for name in names if name in record}
    return {name: value for name, value in values.items() if value is not None}


def _short(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        try:
            return number_or_none(value)
        except OverflowError:
            return str(value)[:MAX_TEXT]
    if not isinstance(value, str):
        return None
    return printable(value if len(value) <= MAX_TEXT else f"{value[: MAX_TEXT - 1]}…")


def answer_of(record: JsonObject) -> str:
    """The end of a rollout in one line: its last message, else its last item."""
    response = record.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    messages = [item for item in items if item.get("type", "message") == "message"]
    if messages:
        return to_one_line(content_text(messages[-1].get("content")), _MAX_SNIPPET)
    last = items[-1] if items else {}
    content = last.get("output") or last.get("arguments") or last.get("content")
    return to_one_line(f"{last.get('name') or ''} {content_text(content)}", _MAX_SNIPPET) if items else ""


def record_text(line: bytes) -> str:
    """What a reader sees of a record: prompt and trajectory, without the JSON around it."""
    record = decode_record(line) or {}
    texts: list[str] = []
    for item in (*prompt_items(record, _FULL), *reply_items(record, _FULL)):
        result = _object(item.get("result"))
        texts += [str(part) for part in (item.get("name"), item.get("text"), item.get("rest")) if part]
        texts += [str(part) for part in (result.get("text"), result.get("rest")) if part]
    return "\n".join(texts)


def make_rollout(table: RunTable, row: int, texts: TokenTexts, *, full: bool) -> JsonObject:
    """Everything about one rollout."""
    line = read_line(table, int(table.lines[row]))
    key = int(table.keys[row])
    limits = _FULL if full else Limits()
    record = decode_record(line)
    page: JsonObject = {
        "task": key >> 32,
        "rollout": key & 0xFFFFFFFF,
        "state": STATES[int(table.states[row])],
        "row": describe_rows(table, [row])[0],
        "neighbours": _neighbours(table, row),
        "attempts": _attempts(table, row),
        "bytes": len(line),
        "note": None if record is not None else "this record cannot be decoded",
    }
    record = record or {}
    response, params = (_object(record.get(name)) for name in ("response", PARAMS))
    agent, failure = _object(record.get(AGENT_REF)), record.get("failure")
    tokens = view_tokens(record, texts, _FULL_IDS if full else _IDS, with_choices=True)
    if tokens is not None:
        tokens["texts"] = {str(token): printable(text) for token, text in texts.take().items()}
    usage = record.get(MODEL_USAGE) or _object(record.get(CALL_CAPTURE)).get("metrics") or response.get("usage")
    return page | {
        "prompt": prompt_items(record, limits),
        "tools": tool_items(record, limits),
        "items": reply_items(record, limits),
        "facts": extract_facts(record, limits),
        "agent": to_one_line(as_text(agent["name"]), 120) if agent.get("name") else None,
        "model": to_one_line(as_text(response["model"]), 120) if response.get("model") else None,
        "ending": explain_incomplete(record),
        "seconds": page["row"]["seconds"] if failure else total_seconds(record, table.seconds_source),
        "params": {
            name: value
            for name, value in params.items()
            if value is not None and name not in _NOT_PARAMETERS and isinstance(value, int | float | str | dict)
        },
        "usage": usage if isinstance(usage, dict) else None,
        "failure": {name: _cut(value, limits) for name, value in failure.items() if value is not None}
        if isinstance(failure, dict)
        else None,
        "timing": timing(record),
        "tokens": tokens,
    }


def _cut(value: Any, limits: Limits) -> str:
    shown = truncate(as_text(value), limits)
    return f"{shown['text']} … {shown['rest']}" if "rest" in shown else str(shown["text"])


def _neighbours(table: RunTable, row: int) -> JsonObject:
    def key_at(index: int) -> list[int] | None:
        if not 0 <= index < len(table):
            return None
        key = int(table.keys[index])
        return [key >> 32, key & 0xFFFFFFFF]

    task = int(table.keys[row]) >> 32
    rows = table.rows_of_task(task)
    before, after = key_at(rows.start - 1), key_at(rows.stop)
    own = row_values(table, rows[:_MAX_LISTED])
    return {
        "previous": key_at(row - 1),
        "next": key_at(row + 1),
        "previous_task": before[0] if before else None,
        "next_task": after[0] if after else None,
        "rollouts": [{name: values[name] for name in ("rollout", "state", "reward")} for values in own],
    }


def _attempts(table: RunTable, row: int) -> list[JsonObject]:
    """The failed attempts of a rollout, oldest first; of one that failed for good, the last is the rollout itself."""
    attempts = []
    for number, line in enumerate(table.attempt_lines(int(table.keys[row]))[-_MAX_ATTEMPTS:]):
        record = decode_record(read_line(table, line)) or {}
        failure = _object(record.get("failure"))
        kind = as_text(failure.get("kind") or "unknown")
        index = record.get(ATTEMPT_INDEX)
        attempts.append(
            {
                "index": index if isinstance(index, int) else number,
                "kind": kind,
                "stage": as_text(failure["stage"]) if failure.get("stage") else None,
                "message": as_text(failure.get("message") or "")[:4000],
                "started_at": _number(failure.get("started_at")),
                "seconds": _number(failure.get("seconds")),
                "final": record.get(FAILURE_TERMINAL) is True,
                "hint": kind_named(kind).hint,
            }
        )
    return attempts


def timing(record: JsonObject) -> list[JsonObject]:
    """The parts of a rollout in time, as far as its record says: its model calls, one after the other."""
    calls = _object(record.get(CALL_CAPTURE)).get("calls")
    parts: list[JsonObject] = []
    elapsed = 0.0
    for number, call in enumerate(calls if isinstance(calls, list) else (), 1):
        latency = _number(_object(call).get("latency_ms"))
        if latency is not None:
            seconds = latency / 1000
            parts.append({"name": "model", "start_s": elapsed, "seconds": seconds, "detail": f"call {number}"})
            elapsed += seconds
    if parts:
        return parts
    usage = _object(record.get(MODEL_USAGE))
    latency, count = _number(usage.get("latency_ms")), usage.get("calls")
    if latency is not None:
        detail = f"{count} calls" if count != 1 else "1 call"
        parts.append({"name": "model", "start_s": 0.0, "seconds": latency / 1000, "detail": detail})
    failure = _object(record.get("failure"))
    if (seconds_or_none := _number(failure.get("seconds"))) is not None:
        stage = as_text(failure.get("stage") or "attempt")
        parts.append({"name": "attempt", "start_s": 0.0, "seconds": seconds_or_none, "detail": f"failed in {stage}"})
    return parts


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return number_or_none(float(value))
    except OverflowError:
        return None


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}
