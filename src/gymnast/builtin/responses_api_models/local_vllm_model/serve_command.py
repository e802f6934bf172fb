"""The argument list and environment of `vllm serve`, or of a custom command, from the settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RESERVED: Final = frozenset({"host", "port", "model", "model_tag", "api_key", "uds", "api_server_count"})
"""Arguments of `vllm serve` that the model server sets, or does not support."""
RAY_VARIABLE: Final = "VLLM_RAY_DP_PACK_STRATEGY"
"""Used by other launchers to place vLLM in Ray; not used here."""


def vllm_command(executable: str, model: str, host: str, port: int, kwargs: Mapping[str, Any]) -> list[str]:
    """`vllm serve MODEL` with `kwargs` as its options."""
    options = [word for name, value in kwargs.items() for word in option(name, value)]
    return [executable, "serve", model, "--host", host, "--port", str(port), *options]


def option(name: str, value: Any) -> list[str]:
    """An option as words: flags for true and false, JSON for objects, several words for a list, nothing for null."""
    flag = name.replace("_", "-")
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    if isinstance(value, list):
        return [f"--{flag}", *(_word(entry) for entry in value)]
    return [f"--{flag}", _word(value)]


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def custom_command(words: Sequence[str], model: str, host: str, port: int) -> list[str]:
    """A custom command. Only these three names are placeholders; other braces stay."""
    placeholders = {"{host}": host, "{port}": str(port), "{model}": model}
    return [_fill(word, placeholders) for word in words]


def _fill(word: str, placeholders: Mapping[str, str]) -> str:
    for placeholder, value in placeholders.items():
        word = word.replace(placeholder, value)
    return word


def environment(variables: Mapping[str, Any], replica: Mapping[str, Any]) -> dict[str, str]:
    """Environment variables as text; those of the replica take precedence."""
    merged = {name: value for name, value in {**variables, **replica}.items() if name != RAY_VARIABLE}
    return {name: _text(value) for name, value in merged.items()}


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def served_name(model: str, kwargs: Mapping[str, Any]) -> str:
    """The name under which vLLM serves the model."""
    served = kwargs.get("served_model_name")
    names = served if isinstance(served, list) else [served] if served else []
    return model if model in names or not names else str(names[0])
