"""Rendered prompts and bridges, by what they were rendered from: the rollouts of a group have much in common."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gymnast.tokens.rendering import Rendered

_MAX_IDS: Final = 1_000_000
"""Ids kept in all prompts together, some 40 MB at most."""


class PromptCache:
    """The prompts rendered last."""

    def __init__(self, max_ids: int = _MAX_IDS) -> None:
        self._max_ids = max_ids
        self._ids = 0
        self._prompts: OrderedDict[bytes, Rendered] = OrderedDict()

    def get(self, parts: Sequence[object], render: Callable[[], Rendered]) -> Rendered:
        """The prompt of these parts, rendered if it is not known. Parts that are not JSON are rendered every time."""
        try:
            key = hashlib.blake2b(orjson.dumps(parts), digest_size=16).digest()
        except TypeError:
            return render()
        known = self._prompts.get(key)
        if known is not None:
            self._prompts.move_to_end(key)
            return known
        prompt = self._prompts[key] = render()
        self._ids += len(prompt.ids)
        while self._ids > self._max_ids:
            _, oldest = self._prompts.popitem(last=False)
            self._ids -= len(oldest.ids)
        return prompt
