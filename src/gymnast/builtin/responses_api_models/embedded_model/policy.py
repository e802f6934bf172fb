"""The parts of a policy, read from the built-in weights or another folder, and files of tensors (safetensors)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gymnast.kit import NotFoundError

from .tokenizer import ByteLevelTokenizer
from .transformer import Shape, Transformer

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


_TYPES: Final[dict[str, np.dtype[Any]]] = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4")}
_NAMES: Final = {kind: name for name, kind in _TYPES.items()}


def read_tensors(path: Path) -> dict[str, NDArray[np.floating[Any]]]:
    """Read all tensors of a file, by name."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8 : 8 + size])
    tensors: dict[str, NDArray[np.floating[Any]]] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        flat = np.frombuffer(content[8 + size + start : 8 + size + end], _TYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def write_tensors(path: Path, tensors: Mapping[str, NDArray[np.floating[Any]]]) -> None:
    """Write tensors in the given order."""
    header: dict[str, Any] = {}
    start = 0
    for name, tensor in tensors.items():
        kind = _NAMES[tensor.dtype]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [start, start + tensor.nbytes]}
        start += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # readers map the data: keep it aligned
    body = b"".join(np.ascontiguousarray(tensor).tobytes() for tensor in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
