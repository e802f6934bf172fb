"""Datasets for trainers that read prompts: each prompt carries its complete row, so that nothing of a task is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import orjson

from gymnast.errors import UserError
from gymnast.store.atomic import atomic_output
from gymnast.train.arguments import require_row
from gymnast.types.responses import message_text
from gymnast.types.task import PARAMS, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gymnast.types.json import JsonObject

ROW: Final = "gymnast_row"
"""The column with the complete row as JSON text."""
PromptReader = Literal["skyrl", "slime"]
_LIMITS: Final = ("max_generate_length", "max_new_tokens", "max_tokens")
"""Names of the output limit in trainers' sampling parameters."""


def write_prompts(path: Path, rows: Iterable[Mapping[str, Any]], trainer: PromptReader) -> int:
    """Write a JSONL file of prompts in the form that the trainer reads; returns their number.

    slime reads it with `--input-key prompt --metadata-key metadata --apply-chat-template`.
    Raises UserError for rows that are no tasks, or none at all.
    """
    if trainer not in get_args(PromptReader):
        raise UserError(
            f"no prompts for the trainer {trainer!r}", next=f"choose one of: {', '.join(get_args(PromptReader))}"
        )
    number = 0
    with atomic_output(path) as out:
        for index, row in enumerate(rows):
            require_row(row, index)
            params = row.get(PARAMS)
            if not isinstance(params, dict) or "input" not in params:
                raise UserError(f"task {index} has no {PARAMS} with an input", where=str(path))
            packed = {ROW: orjson.dumps({TASK_INDEX: index, **row}).decode()}
            line: JsonObject = {"prompt": prompt_messages(params["input"])}
            line |= {"env_class": "gymnast", **packed} if trainer == "skyrl" else {"metadata": packed}
            out.write(orjson.dumps(line) + b"\n")
            number += 1
        if not number:
            raise UserError("there are no rows to write", where=str(path), next="check the dataset")
    return number


def row_of(columns: Mapping[str, Any] | None, where: str) -> JsonObject:
    """The row that a prompt carries. Raises UserError if it carries none."""
    text = (columns or {}).get(ROW)
    if not isinstance(text, str):
        raise UserError(f"a prompt has no '{ROW}'", where=where, next="write the dataset with write_prompts")
    row: JsonObject = orjson.loads(text)
    return row


def with_sampling(row: JsonObject, sampling: Mapping[str, Any] | None) -> JsonObject:
    """A row with a trainer's temperature and top_p, and at most its number of output tokens."""
    given = sampling or {}
    own: JsonObject = row[PARAMS]
    params = {name: given[name] for name in ("temperature", "top_p") if given.get(name) is not None}
    limits = [given[name] for name in _LIMITS if given.get(name)]
    if limits:
        own_limit = own.get("max_output_tokens")
        params["max_output_tokens"] = min([*limits, own_limit] if own_limit else limits)
    return {**row, PARAMS: {**own, **params}}


def prompt_messages(prompt: Any) -> list[JsonObject]:
    """Messages for a trainer's length filter and logs, at least one. Rollouts use the row, not these."""
    items = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if not items:  # the environment makes the prompt, and trainers do not accept none
        return [{"role": "user", "content": ""}]
    return [{"role": str(item.get("role") or "user"), "content": message_text(item)} for item in items]
