"""The columns of exported rows: as features of a dataset card and of Parquet metadata, and as Arrow types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Kind: TypeAlias = "str | list[Kind] | dict[str, Kind]"
"""A scalar (`string`, `int64`, `float64`, `bool`, `json`), a list of one kind, or an object with fields."""

_CALL: Final[Kind] = {"id": "string", "type": "string", "function": {"name": "string", "arguments": "json"}}
_SOURCE: Final[dict[str, Kind]] = {"run": "string", "task": "int64", "rollout": "int64"}
_REPEATING: Final = frozenset({"run", "agent", "model", "label", "role", "type", "name", "tools"})
"""Fields of text with few different values."""
_NUMBERS: Final = frozenset({"int64", "float64", "bool"})


def columns_of(shape: str, *, has_parts: bool) -> dict[str, Kind]:
    """The columns of a shape of rows. `has_parts`: some message's content is a list of parts."""
    message: dict[str, Kind] = {
        "role": "string",
        "content": "json" if has_parts else "string",
        "reasoning_content": "string",
        "tool_calls": [_CALL],
        "tool_call_id": "string",
        "name": "string",
    }
    chat: list[Kind] = [message]
    tools: dict[str, Kind] = {"tools": ["json"]}
    match shape:
        case "sft":
            return {"messages": chat, **tools, "reward": "float64", **_SOURCE}
        case "kto":
            return {"prompt": chat, "completion": chat, "label": "bool", **tools, "reward": "float64", **_SOURCE}
        case "dpo":
            rewards: dict[str, Kind] = {"chosen_reward": "float64", "rejected_reward": "float64"}
            places: dict[str, Kind] = {"chosen_rollout": "int64", "rejected_rollout": "int64"}
            source = {"run": _SOURCE["run"], "task": _SOURCE["task"]}
            return {"prompt": chat, "chosen": chat, "rejected": chat, **tools, **rewards, **source, **places}
        case _:
            facts: dict[str, Kind] = {"agent": "string", "model": "string", "reward": "float64", "truncated": "bool"}
            given: dict[str, Kind] = {"label": "string", "note": "string", "prompt_messages": "int64"}
            return {**_SOURCE, **facts, **given, "messages": chat, **tools, "fields": "json"}


def card_features(columns: Mapping[str, Kind]) -> list[dict[str, Any]]:
    """The columns as `dataset_info.features` of a card."""
    return [{"name": name, **_card_kind(kind)} for name, kind in columns.items()]


def _card_kind(kind: Kind) -> dict[str, Any]:
    if isinstance(kind, str):
        return {"dtype": kind}
    if isinstance(kind, dict):
        return {"struct": card_features(kind)}
    (inner,) = kind
    if isinstance(inner, dict):
        return {"list": card_features(inner)}
    return {"list": inner if isinstance(inner, str) else _card_kind(inner)}


def library_features(columns: Mapping[str, Kind]) -> dict[str, Any]:
    """The columns as the `datasets` library stores them in the metadata of Parquet files."""
    return {name: _library_kind(kind) for name, kind in columns.items()}


def _library_kind(kind: Kind) -> Any:
    if kind == "json":
        return {"_type": "Json"}
    if isinstance(kind, str):
        return {"dtype": kind, "_type": "Value"}
    if isinstance(kind, dict):
        return library_features(kind)
    return {"feature": _library_kind(kind[0]), "_type": "List"}


def arrow_schema(arrow: Any, columns: Mapping[str, Kind]) -> Any:
    """The columns as an Arrow schema; JSON is text."""
    return arrow.schema([(name, _arrow_kind(arrow, kind)) for name, kind in columns.items()])


def _arrow_kind(arrow: Any, kind: Kind) -> Any:
    if isinstance(kind, dict):
        return arrow.struct([(name, _arrow_kind(arrow, inner)) for name, inner in kind.items()])
    if isinstance(kind, list):
        return arrow.list_(_arrow_kind(arrow, kind[0]))
    scalars = {"int64": arrow.int64, "float64": arrow.float64, "bool": arrow.bool_}
    return scalars.get(kind, arrow.string)()


def parquet_encoding(columns: Mapping[str, Kind]) -> dict[str, Any]:
    """Which columns a Parquet writer gives a dictionary (few different values) and statistics (numbers).

    For texts, both cost a tenth of the writer's time; files are no smaller, and nothing can be skipped by them.
    """
    leaves = list(_leaves(columns))
    return {
        "use_dictionary": [path for path, name, kind in leaves if name in _REPEATING],
        "write_statistics": [path for path, _, kind in leaves if kind in _NUMBERS],
    }


def _leaves(kind: Kind | Mapping[str, Kind], path: str = "", name: str = "") -> Iterator[tuple[str, str, str]]:
    """The leaf columns: path in a Parquet file, name of the field, kind."""
    if isinstance(kind, str):
        yield path, name, kind
    elif isinstance(kind, list):
        yield from _leaves(kind[0], f"{path}.list.element", name)
    else:
        for key, inner in kind.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key, key)
