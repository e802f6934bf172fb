"""A Gymnast JSONL dataset for verl's data loader: reads rows on demand and passes them on complete.

data:
  custom_cls: {path: pkg://gymnast.train.verl_dataset, name: GymnastDataset}
  train_files: [train.jsonl]
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import orjson
import torch
from torch.utils.data import Dataset

from gymnast.errors import DataError
from gymnast.train.offsets import JsonlRows
from gymnast.train.prompt_files import ROW
from gymnast.types.task import PARAMS, TASK_INDEX, agent_name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.types.json import JsonObject

__all__ = ["ROW", "GymnastDataset"]


class GymnastDataset(Dataset):  # type: ignore[misc] # torch ships with the extra
    """The rows of one or more files, concatenated. An item has the columns that verl's trainers read, and the row."""

    def __init__(
        self,
        data_files: str | Sequence[str],
        tokenizer: Any = None,
        config: Any = None,
        processor: Any = None,
        max_samples: int = -1,
    ) -> None:
        paths = [data_files] if isinstance(data_files, str) else list(data_files)
        self._files = [JsonlRows(path) for path in paths]
        self._ends = list(accumulate(len(rows) for rows in self._files))
        total = self._ends[-1] if self._ends else 0
        self._length = total if max_samples < 0 else min(total, max_samples)
        if not self._length:
            raise DataError("the dataset has no rows", where=", ".join(map(str, paths)))

    def __len__(self) -> int:
        return self._length

    def row(self, number: int) -> JsonObject:
        """A row as in its file."""
        if not 0 <= number < self._length:
            raise IndexError(f"row {number} of {self._length}")
        file = bisect_right(self._ends, number)
        return self._files[file][number - (self._ends[file - 1] if file else 0)]

    def __getitem__(self, number: int) -> dict[str, Any]:
        row = self.row(number)
        params = row.get(PARAMS)
        if not isinstance(params, dict) or "input" not in params:
            raise DataError(f"a row needs {PARAMS}.input", where=f"row {number}")
        agent = agent_name_of(row) or ""
        return {
            ROW: orjson.dumps({TASK_INDEX: number, **row}).decode(),
            "raw_prompt": _messages(params["input"]),
            "data_source": agent or "gymnast",
            "agent_name": "gymnast",
            "reward_model": {"style": "gymnast", "ground_truth": ""},
            "extra_info": {"index": number},
            "index": number,
            "dummy_tensor": torch.zeros(1, dtype=torch.uint8),  # verl's batches need a tensor
        }


def _messages(prompt: Any) -> list[JsonObject]:
    """Messages for verl's logs. Rollouts use the row, not these."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [{"role": item.get("role", item.get("type", "")), "content": item.get("content", "")} for item in prompt]
