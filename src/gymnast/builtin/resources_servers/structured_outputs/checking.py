"""Judges a document by the rules of a scoring. Runs in worker processes; the reply is JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import nemo_gym_rules, strict_rules

Outcome = dict[str, str | None]


def check(schema_text: str, schema_type: str, text: str, options: Mapping[str, Any]) -> Outcome:
    """Judge a document: `{"error_type": …, "error_message": …}`, both null if it is valid, or a `row_error`.

    `text` is the document in the format of `schema_type` or, with `is_arguments`, the arguments of a tool call, where
    `payload_key` may name the one with the document. Other options are settings of the environment.
    """
    judge = strict_rules.check if options["scoring"] == "strict" else nemo_gym_rules.check
    return judge(schema_text, schema_type, text, options)
