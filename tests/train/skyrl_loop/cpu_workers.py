"""Stands in for SkyRL's workers on GPUs: one model in this process, on the CPU, with SkyRL's own loss.

The weights go to the policy's server as SkyRL's workers send them to its inference engines.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import LlamaForCausalLM

from gymnast.train.skyrl_generator import GymnastGenerator
from tests.train.skyrl_loop.classes import PolicyLossRegistry, SkyRLTrainConfig, WorkerOutput


class CpuWorkers:
    """What `RayPPOTrainer` asks of its workers. Keeps each batch that was trained on."""

    def __init__(
        self, model: LlamaForCausalLM, cfg: SkyRLTrainConfig, generator: GymnastGenerator | None, folder: Path
    ) -> None:
        self.model = model
        self.trained: list[Any] = []
        self.versions: list[str] = []
        self._cfg = cfg
        self._generator = generator
        self._folder = folder
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def init_weight_sync_state(self, _: object) -> None: ...

    def empty_cache(self, *_: object) -> None: ...

    def get_lcm_dp_size(self) -> int:
        return 1

    async def save_weights_for_sampler(self) -> None:
        if self._generator is None:
            return
        tensors = {name: one for name, one in self.model.state_dict().items() if name != "lm_head.weight"}
        save_file(tensors, self._folder / "model.safetensors")
        loaded = await self._generator.ask("policy_model", "/load_weights", {"path": str(self._folder)})
        self.versions.append(loaded["version"])

    def forward_from_staged(self, _: str, data: Any) -> WorkerOutput:
        with torch.no_grad():
            found = self._log_probs(data, data.metadata["response_length"])
        return WorkerOutput("scalar", [{"logprobs": row.tolist()} for row in found], {})

    def stage_data(self, _: str, data: Any, boundaries: list[tuple[int, int]]) -> list[Any]:
        if data.get("advantages") is not None:
            self.trained.append(copy.deepcopy(data))
        return [data[start:end] for start, end in boundaries]

    def forward_backward_from_staged(self, _: str, data: Any) -> WorkerOutput:
        loss, figures = PolicyLossRegistry.get(self._cfg.trainer.algorithm.policy_loss_type)(
            self._log_probs(data, data["advantages"].shape[1]),
            data["action_log_probs"],
            data["advantages"],
            config=self._cfg.trainer.algorithm,
            loss_mask=data["loss_mask"],
            rollout_logprobs=data["rollout_logprobs"],
        )
        loss.backward()
        return WorkerOutput("scalar", [], {"policy_loss": loss.item(), **figures})

    def optim_step(self, _: str) -> float:
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(norm)

    def _log_probs(self, data: Any, responses: int) -> torch.Tensor:
        """Of the tokens of responses; prompts are padded on the left."""
        sequences, mask = data["sequences"], data["attention_mask"]
        positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)
        logits = self.model(sequences, attention_mask=mask, position_ids=positions).logits[:, :-1]
        chosen = logits.log_softmax(dim=-1).gather(-1, sequences[:, 1:, None]).squeeze(-1)
        return chosen[:, -responses:]
