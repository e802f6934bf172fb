"""The parts of a policy, read from the built-in weights or another folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gymnast.builtin.responses_api_models.embedded_model.safetensors import read_tensors
from gymnast.builtin.responses_api_models.embedded_model.tokenizer import ByteLevelTokenizer
from gymnast.builtin.responses_api_models.embedded_model.transformer import Shape, Transformer
from gymnast.kit import NotFoundError

SHIPPED: Final = Path(__file__).parent / "weights"
_FILES: Final = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True)
class Policy:
    """A model with its tokenizer and chat template."""

    name: str
    version: str
    """The version of the weights, which changes with them."""
    transformer: Transformer
    tokenizer: ByteLevelTokenizer
    chat_template: str
    family: str


def read_policy(folder: Path = SHIPPED) -> Policy:
    """Read a policy from a folder in Hugging Face's layout, with a tokenizer like the built-in one."""
    missing = [file for file in _FILES if not (folder / file).is_file()]
    if missing:
        raise NotFoundError(
            f"not the weights of an embedded policy: {', '.join(missing)} missing",
            where=str(folder),
            next="set `weights` to 'shipped', 'smollm2', or a folder that training/embedded/train.py wrote",
        )
    content = (folder / "model.safetensors").read_bytes()
    shape = Shape.from_config(json.loads((folder / "config.json").read_text()))
    return Policy(
        name="gymnast-embedded" if folder == SHIPPED else folder.resolve().name,
        version=hashlib.sha256(content).hexdigest()[:12],
        transformer=Transformer(shape, read_tensors(folder / "model.safetensors")),
        tokenizer=ByteLevelTokenizer.read(folder / "tokenizer.json"),
        chat_template=json.loads((folder / "tokenizer_config.json").read_text())["chat_template"],
        family="embedded",
    )
