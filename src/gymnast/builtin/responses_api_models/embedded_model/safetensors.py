"""Reads and writes safetensors files as numpy arrays: 16- and 32-bit floats only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

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
