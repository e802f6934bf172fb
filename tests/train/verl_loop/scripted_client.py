"""Stand-in for verl's LLMServerClient that plays a script: what a recipe's environment makes of it needs no trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer
from verl.workers.rollout.replica import TokenOutput

from tests.train.verl_loop.script import Script


class ScriptedClient:
    """Answers with the script's turns, each token with the same logprob."""

    def __init__(self, model: Path, script: Path) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(model)
        self._script = Script(script)

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        turn = self._script.next_turn(self._tokenizer.decode(prompt_ids))
        ids = [*self._tokenizer.encode(turn, add_special_tokens=False), self._tokenizer.eos_token_id]
        steps = {"global_steps": 1, "min_global_steps": 1, "max_global_steps": 1}
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="completed", extra_fields=steps)
