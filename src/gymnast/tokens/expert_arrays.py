"""Routed experts as arrays (tokens, layers, experts): what inference servers reply, and what trainers take. Pure."""

from __future__ import annotations

import base64
import binascii
import io
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from gymnast.types.tokens import RoutedExperts

Experts = NDArray[np.signedinteger[Any]]
_TYPES: Final[dict[int, np.dtype[Any]]] = {1: np.dtype("<i1"), 2: np.dtype("<i2"), 4: np.dtype("<i4")}
_ENVELOPE: Final = "nrlre1"
"""NeMo RL's: the mark, the type, the shape and the numbers in base64, with colons between them."""
_NAMES: Final = {1: "int8", 2: "int16", 4: "int32"}


def parse_experts(reported: Any) -> RoutedExperts:
    """Read what a server replies: vLLM's file of numpy in base64, NeMo RL's envelope, or lists. Raises ValueError."""
    try:
        if not isinstance(reported, str):
            return pack_experts(np.asarray(reported))
        if reported.startswith(_ENVELOPE):
            return pack_experts(_read_envelope(reported))
        return pack_experts(np.load(io.BytesIO(base64.b64decode(reported, validate=True)), allow_pickle=False))
    except (binascii.Error, EOFError, KeyError) as error:
        raise ValueError(f"not an array: {error}") from error


def pack_experts(array: NDArray[Any]) -> RoutedExperts:
    """Store an array in as few bytes as its numbers need. Raises ValueError."""
    if array.ndim != 3 or array.dtype.kind not in "iu" or 0 in array.shape[1:]:
        raise ValueError(f"expected integers by token, layer and rank, got {array.dtype} of shape {array.shape}")
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    width = next((width for width in _TYPES if -(2 ** (8 * width - 1)) <= low <= high < 2 ** (8 * width - 1)), None)
    if width is None:
        raise ValueError(f"experts are numbered from {low} to {high}")
    rows = np.ascontiguousarray(array, dtype=_TYPES[width]).tobytes()
    return RoutedExperts(0, int(array.shape[1]), int(array.shape[2]), width, rows)


def unpack_experts(experts: RoutedExperts, length: int) -> Experts:
    """An array of `length` tokens. Rows of unknown tokens are 0."""
    array = np.zeros((length, experts.layers, experts.top_k), dtype=_TYPES[experts.width])
    known = np.frombuffer(experts.rows, dtype=_TYPES[experts.width]).reshape(-1, experts.layers, experts.top_k)
    array[experts.start : experts.end] = known[: max(length - experts.start, 0)]
    return array


def dump_array(array: NDArray[Any]) -> str:
    """An array as vLLM replies it."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode()


def dump_envelope(experts: RoutedExperts, length: int) -> str:
    """The first `length` tokens as NeMo RL reads them."""
    shape = "x".join(map(str, (length, experts.layers, experts.top_k)))
    numbers = base64.b64encode(unpack_experts(experts, length).tobytes()).decode()
    return f"{_ENVELOPE}:{_NAMES[experts.width]}:{shape}:{numbers}"


def widen(experts: RoutedExperts, width: int) -> RoutedExperts:
    """The same rows with more bytes for each number."""
    rows = np.frombuffer(experts.rows, dtype=_TYPES[experts.width]).astype(_TYPES[width]).tobytes()
    return msgspec.structs.replace(experts, width=width, rows=rows)


def _read_envelope(text: str) -> NDArray[Any]:
    _, name, shape, numbers = text.split(":", 3)
    width = {name: width for width, name in _NAMES.items()}[name]
    array = np.frombuffer(base64.b64decode(numbers, validate=True), dtype=_TYPES[width])
    return array.reshape([int(size) for size in shape.split("x")])
