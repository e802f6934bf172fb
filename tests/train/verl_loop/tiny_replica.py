"""Stand-in for verl's inference replica: a Ray actor that samples with transformers on the CPU.

It takes weights from verl's trainer, can be aborted and resumed as vLLM can, and writes down what it sampled
(LOOP_FOLDER/engine.jsonl). With LOOP_DIES_AT=2 its process ends in the middle of the second step. Where there is a
script (LOOP_FOLDER/script.json), tokens are the script's, with the logprobs that the weights give them.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from tests.train.verl_loop.script import Script

_NAME = "tiny_server_0"


class TinyServer:
    """The process that samples."""

    def __init__(self, path: str) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        self._model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self._stop_ids = {self._model.config.eos_token_id}
        self._tokenizer = AutoTokenizer.from_pretrained(path)
        folder = Path(os.environ["LOOP_FOLDER"])
        self._log = folder / "engine.jsonl"
        script = folder / "script.json"
        self._script = Script(script) if script.exists() else None
        self._dies_at = int(os.environ.get("LOOP_DIES_AT", "0"))
        self._step = -1
        self._aborts = 0
        self._running = asyncio.Event()
        self._running.set()

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        await self._running.wait()
        if self._dies_at and self._step >= self._dies_at - 1:
            os._exit(1)
        step, aborts = self._step, self._aborts
        stops = self._stop_ids | set(sampling_params.get("stop_token_ids") or ())
        ids: list[int] = []
        logprobs: list[float] = []
        scripted = iter(self._scripted_ids(prompt_ids))
        past, current, reason = None, list(prompt_ids), "completed"
        while len(ids) < sampling_params["max_tokens"]:
            temperature = sampling_params.get("temperature", 1.0)
            token, logprob, past = self._next(current, past, temperature, next(scripted, None))
            ids.append(token)
            logprobs.append(logprob)
            current = [token]
            if token in stops:
                break
            await asyncio.sleep(0)
            if self._aborts != aborts:
                reason = "aborted"
                break
        self._write({"step": step, "prompt": list(prompt_ids), "ids": ids, "logprobs": logprobs, "reason": reason})
        return TokenOutput(
            token_ids=ids, log_probs=logprobs, stop_reason=reason, extra_fields={"global_steps": step}
        )  # fmt: skip

    def _scripted_ids(self, prompt_ids: list[int]) -> list[int]:
        if self._script is None:
            return []
        turn = self._script.next_turn(self._tokenizer.decode(prompt_ids))
        return [*self._tokenizer.encode(turn, add_special_tokens=False), self._tokenizer.eos_token_id]

    def _next(self, ids: list[int], past: Any, temperature: float, scripted: int | None) -> tuple[int, float, Any]:
        with torch.no_grad():
            output = self._model(torch.tensor([ids]), past_key_values=past, use_cache=True)
        logits = output.logits[0, -1].float()
        logprobs = torch.log_softmax(logits / temperature if temperature > 0 else logits, -1)
        if scripted is not None:
            token = scripted
        else:
            token = int(torch.multinomial(logprobs.exp(), 1)) if temperature > 0 else int(logits.argmax())
        return token, float(logprobs[token]), output.past_key_values

    def _write(self, entry: dict[str, Any]) -> None:
        with self._log.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    async def load(self, state: dict[str, torch.Tensor], step: int) -> None:
        self._model.load_state_dict(state, strict=False)
        self._step = step

    async def abort_all_requests(self, reject_request: Any = None) -> None:
        self._running.clear()
        self._aborts += 1

    async def resume_generation(self) -> None:
        self._running.set()

    async def wake_up(self, **_: Any) -> None: ...

    async def sleep(self, **_: Any) -> None: ...

    async def resume(self, **_: Any) -> None: ...

    async def clear_kv_cache(self) -> None: ...

    async def release_kv_cache(self) -> None: ...

    async def resume_kv_cache(self) -> None: ...

    async def start_profile(self, **_: Any) -> None: ...

    async def stop_profile(self) -> None: ...


class TinyReplica(RolloutReplica):  # type: ignore[misc] # verl ships with the extra
    """Starts the process."""

    async def launch_servers(self) -> None:
        options = {"name": _NAME, "max_concurrency": self.max_concurrency, "num_cpus": 0}
        server = ray.remote(TinyServer).options(**options).remote(self.model_config.path)
        self.servers, self._server_handle, self._server_address = [server], server, f"tiny://{_NAME}"


class TinyRollout(BaseRollout):  # type: ignore[misc] # verl ships with the extra
    """The trainer's side: sends weights."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, **_: Any) -> None:
        super().__init__(config, model_config, device_mesh)
        self.replica_rank, self.is_leader_rank = 0, True

    async def resume(self, tags: Any) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
        state = {name: tensor.detach().cpu().float().clone() async for name, tensor in _each(weights)}
        await ray.get_actor(_NAME).load.remote(state, global_steps)


async def _each(weights: Any) -> AsyncIterator[tuple[str, torch.Tensor]]:
    if hasattr(weights, "__aiter__"):
        async for item in weights:
            yield item
    else:
        for item in weights:
            yield item
