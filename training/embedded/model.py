"""The policy in torch: the same Llama shape as the numpy transformer, written independently of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 768,
    "hidden_size": 192,
    "intermediate_size": 416,
    "num_hidden_layers": 8,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "torch_dtype": "float16",
}


class Attention(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width, self.head = config["hidden_size"], config["head_dim"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.q_proj = nn.Linear(width, self.heads * self.head, bias=False)
        self.k_proj = nn.Linear(width, self.kv_heads * self.head, bias=False)
        self.v_proj = nn.Linear(width, self.kv_heads * self.head, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rows, length, _ = x.shape
        q = self.q_proj(x).view(rows, length, self.heads, self.head).transpose(1, 2)
        k = self.k_proj(x).view(rows, length, self.kv_heads, self.head).transpose(1, 2)
        v = self.v_proj(x).view(rows, length, self.kv_heads, self.head).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(rows, length, -1))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos.to(x.dtype) + torch.cat([-second, first], dim=-1) * sin.to(x.dtype)


class FeedForward(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        exact = x.float()
        return (exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width, eps = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm, self.self_attn = RMSNorm(width, eps), Attention(config)
        self.post_attention_layernorm, self.mlp = RMSNorm(width, eps), FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])


class Llama(nn.Module):
    """Ids (rows, length) to logits. Parameters have the names of Llama checkpoints."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.model = Trunk(config)
        head, deep = config["head_dim"], config["num_hidden_layers"]
        angles = torch.outer(
            torch.arange(config["max_position_embeddings"]).double(),
            config["rope_theta"] ** (-torch.arange(0, head, 2).double() / head),
        )
        angles = torch.cat([angles, angles], dim=-1)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                into = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.05 * ((2 * deep) ** -0.5 if into else 1.0))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.model.embed_tokens(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return functional.linear(self.model.norm(x), self.model.embed_tokens.weight)


def half_weights(model: nn.Module) -> dict[str, np.ndarray[Any, Any]]:
    """What a checkpoint holds: 16-bit floats under the names of the parameters."""
    return {name: tensor.detach().half().cpu().numpy() for name, tensor in model.state_dict().items()}


def load(config: dict[str, Any], tensors: dict[str, np.ndarray[Any, Any]]) -> Llama:
    """The model with a checkpoint's weights in 32 bits."""
    model = Llama(config)
    model.load_state_dict({name: torch.from_numpy(tensor.astype(np.float32)) for name, tensor in tensors.items()})
    return model.eval()
