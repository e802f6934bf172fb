"""Tasks, models and engines that several trainer tests share."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel

from gymnast.builtin.graded_tasks import rows
from gymnast.builtin.resources_servers.arithmetic.tasks import GENERATOR as ARITHMETIC
from gymnast.builtin.resources_servers.shop_lookup.tasks import GENERATOR as SHOP_LOOKUP
from gymnast.builtin.responses_api_models.embedded_model.app import load_policy
from gymnast.builtin.responses_api_models.embedded_model.backend import EmbeddedBackend
from gymnast.tokens.backend import ContextOverflow, Sampling

ENVIRONMENTS = ["shop_lookup", "arithmetic"]
TOKENS = "++policy_model.responses_api_models.embedded_model.return_token_id_information=true"


def shop_tasks(count: int, seed: int = 7, levels: tuple[int, ...] = (3, 4, 5)) -> list[dict[str, Any]]:
    """Questions that need tools: several turns."""
    found = rows(SHOP_LOOKUP, count=count, seed=seed, levels=levels)
    return [{**row, "agent_ref": {"name": "shop_lookup_simple_agent"}} for row in found]


def sum_tasks(count: int, seed: int = 7, levels: tuple[int, ...] = (3, 4)) -> list[dict[str, Any]]:
    """Sums: one turn."""
    found = rows(ARITHMETIC, count=count, seed=seed, levels=levels)
    return [{**row, "agent_ref": {"name": "arithmetic_simple_agent"}} for row in found]


def written(folder: Path, rows: list[dict[str, Any]], name: str = "rows.jsonl") -> Path:
    """Rows as a dataset's file."""
    path = folder / name
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


class Nobody:
    """Caller asks the backend."""

    rollout_id = None
    progress = None

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id


class _TokenOutput(BaseModel):
    """The fields of verl's, where verl is not installed."""

    token_ids: list[int]
    log_probs: list[float] | None = None
    stop_reason: str | None = None
    extra_fields: dict[str, Any] = {}


def _output_class() -> Any:
    try:
        return import_module("verl.workers.rollout.replica").TokenOutput
    except ModuleNotFoundError:
        return _TokenOutput


class EmbeddedLlmClient:
    """The embedded policy behind the public method of verl's LLMServerClient; it counts as verl's engines do."""

    def __init__(self) -> None:
        self._backend = EmbeddedBackend(load_policy("shipped").transformer)
        self.calls: list[tuple[str, int]] = []
        self.broken: Any = None
        """Called with each output, its number and the length of its prompt, to spoil it."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        self.calls.append((request_id, len(prompt_ids)))
        number = len(self.calls)
        assert sampling_params["logprobs"] is True
        sampling = Sampling(
            max_tokens=sampling_params["max_tokens"],
            temperature=sampling_params["temperature"],
            top_p=sampling_params["top_p"],
            stop_token_ids=tuple(sampling_params.get("stop_token_ids", ())),
        )
        try:
            found = await self._backend.generate(prompt_ids, sampling, Nobody(request_id))
        except ContextOverflow as error:
            raise ValueError(str(error)) from error
        steps = {"min_global_steps": 3, "max_global_steps": 3}
        output = _output_class()(
            token_ids=list(found.token_ids),
            log_probs=list(found.logprobs),
            stop_reason="completed",
            extra_fields={"global_steps": 3, **steps},
        )
        return self.broken(output, number, len(prompt_ids)) if self.broken is not None else output

    async def stop(self) -> None:
        await self._backend.stop()
