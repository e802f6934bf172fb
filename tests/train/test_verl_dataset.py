"""The dataset for verl's loader: rows whole, memory constant."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from omegaconf import OmegaConf
from torch.utils.data import DataLoader
from verl.trainer.ppo.utils import create_rl_dataset
from verl.utils.dataset.rl_dataset import collate_fn

from gymnast.errors import DataError
from gymnast.train.verl_dataset import ROW, GymnastDataset
from tests.helpers.train_tasks import shop_tasks, written

HISTORY = [
    {"role": "user", "content": "What is in the shop?", "id": "msg_1"},
    {"type": "function_call", "name": "list", "arguments": "{}", "call_id": "call_1", "id": "fc_1"},
    {"type": "function_call_output", "call_id": "call_1", "output": "apples"},
]


def test_function_calls_ids_and_the_authors_fields_are_kept(tmp_path: Path) -> None:
    """The recipe kept role and content of messages, and lost the rest."""
    row = {
        "responses_create_params": {"input": HISTORY, "parallel_tool_calls": False, "top_p": 0.5, "metadata": {"a": 1}},
        "agent_ref": {"name": "shop_lookup_simple_agent"},
        "verifier_metadata": {"stock": [1, 2]},
    }
    config = OmegaConf.create({"custom_cls": {"path": "pkg://gymnast.train.verl_dataset", "name": "GymnastDataset"}})
    dataset = create_rl_dataset([str(written(tmp_path, [row]))], config, None, None)
    assert isinstance(dataset, GymnastDataset)
    assert {name: value for name, value in orjson.loads(dataset[0][ROW]).items() if name in row} == row
    assert dataset[0]["data_source"] == "shop_lookup_simple_agent"


def test_verls_loader_takes_it_with_workers(tmp_path: Path) -> None:
    tasks = shop_tasks(10)
    first, second = written(tmp_path, tasks[:4], "a.jsonl"), written(tmp_path, tasks[4:], "b.jsonl")
    dataset = GymnastDataset([str(first), str(second)])
    assert len(dataset) == 10
    loader = DataLoader(dataset, batch_size=5, num_workers=2, collate_fn=collate_fn)
    batches = list(loader)
    assert [orjson.loads(text)["id"] for batch in batches for text in batch[ROW]] == [task["id"] for task in tasks]
    assert batches[1]["index"].tolist() == [5, 6, 7, 8, 9]
    assert len(GymnastDataset(str(first), max_samples=2)) == 2


def test_an_empty_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no rows"):
        GymnastDataset(str(written(tmp_path, [])))
    with pytest.raises(DataError, match="cannot read"):
        GymnastDataset(str(tmp_path / "none.jsonl"))


MEASURE = """
import resource, sys
from gymnast.train.offsets import JsonlRows
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = JsonlRows(sys.argv[1])
step = max(1, len(rows) // 1000)
for place in range(0, len(rows), step):
    assert rows[place]["n"] == place
print(len(rows), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Twenty times the rows, the same memory: 16 MB against 320 MB."""
    grown = {}
    for count in (16_000, 320_000):
        path = tmp_path / f"{count}.jsonl"
        with path.open("wb") as out:
            for place in range(count):
                out.write(b'{"n": %d, "text": "%s"}\n' % (place, b"x" * 980))
        said = subprocess.run(
            [sys.executable, "-c", MEASURE, str(path)], capture_output=True, check=True, text=True, env=os.environ
        )
        rows, kilobytes = map(int, said.stdout.split())
        assert rows == count
        grown[count] = kilobytes
        path.unlink()
    assert grown[320_000] - grown[16_000] < 8 * 1024, f"memory grew: {grown} KB"
