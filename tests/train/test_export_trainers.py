"""Exports as their readers see them: `datasets` loads every layout, and TRL's trainers take a step on them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import load_dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

try:
    from trl import KTOConfig, KTOTrainer
except ImportError:
    from trl.experimental.kto import KTOConfig, KTOTrainer

from gymnast.config.secrets import Scrubber
from gymnast.train.dataset.export import ExportRequest, export_dataset
from tests.helpers.export_runs import TOOL, calls, returns, rollout, says, thinks, write_run

TEMPLATE = (
    "{% if tools %}<s>tools {{ tools | tojson }}</s>{% endif %}"
    "{% for message in messages %}<s>{{ message.role }} "
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{{ message.content or '' }}"
    "{% if message.tool_calls %}{% for call in message.tool_calls %}"
    "<call>{{ call.function.name }} {{ call.function.arguments | tojson }}</call>"
    "{% endfor %}{% endif %}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant {% endif %}"
)
OTHER = TOOL | {"name": "count", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Rollouts with reasoning, parallel calls whose arguments differ in form, and plain ones."""
    rows = []
    for task in range(6):
        for number in range(4):
            output = [
                thinks("hm"),
                calls("look", {"at": f"place {task}"}, "a"),
                calls("count", {"n": number, "deep": {"x": [1, "2"]}}, "b"),
                returns("there", "a"),
                returns("3", "b"),
                says(f"it is {number}"),
            ]
            plain = [says(f"plain {number}")]
            params = {"tools": [TOOL, OTHER]} if task % 2 else {}
            rows.append(rollout(task, number, float(number >= 2), output if task % 2 else plain, params=params))
    return write_run(tmp_path / "run", rows)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: number for number, symbol in enumerate([*alphabet, "<pad>", "<s>", "</s>"])}
    fast = Tokenizer(models.BPE(vocabulary, []))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens(["<pad>", "<s>", "</s>"])
    found = PreTrainedTokenizerFast(tokenizer_object=fast, pad_token="<pad>", eos_token="</s>", bos_token="<s>")
    found.chat_template = TEMPLATE
    return found


def tiny(tokenizer: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=2048, pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def exported(run: Path, folder: Path, format_: str, **more: Any) -> Any:
    """The dataset as `datasets` loads the folder."""
    export_dataset(ExportRequest((run,), folder, format_, **more), Scrubber(None))
    return load_dataset(str(folder), cache_dir=str(folder.parent / "cache"))


def settings(tmp_path: Path) -> dict[str, Any]:
    return {
        "output_dir": str(tmp_path / "out"), "max_steps": 1, "per_device_train_batch_size": 2, "use_cpu": True,
        "report_to": [], "logging_steps": 1, "save_strategy": "no", "bf16": False, "gradient_checkpointing": False,
    }  # fmt: skip


def last_loss(trainer: Any) -> float:
    return next(float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry)


@pytest.mark.parametrize("files", ["jsonl", "parquet", "datasets"])
def test_sft_trainer_takes_a_step(run: Path, tmp_path: Path, tokenizer: Any, files: str) -> None:
    dataset = exported(run, tmp_path / "data", "sft", files=files)["train"]
    row = dataset[12]
    assert row["messages"][1]["tool_calls"][1]["function"]["arguments"] == {"n": 0, "deep": {"x": [1, "2"]}}
    assert row["tools"][1]["function"]["parameters"]["properties"] == {"n": {"type": "integer"}}
    text = tokenizer.apply_chat_template(row["messages"], tools=row["tools"], tokenize=False)
    assert '<think>hm</think><call>look {"at": "place 3"}</call>' in text
    trainer = SFTTrainer(
        model=tiny(tokenizer),
        args=SFTConfig(max_length=1024, **settings(tmp_path)),
        train_dataset=dataset,
        processing_class=tokenizer,
    )
    trainer.train()
    assert math.isfinite(last_loss(trainer))


@pytest.mark.parametrize("files", ["jsonl", "datasets"])
def test_dpo_trainer_takes_a_step(run: Path, tmp_path: Path, tokenizer: Any, files: str) -> None:
    dataset = exported(run, tmp_path / "data", "dpo", files=files)["train"]
    assert len(dataset) == 6
    trainer = DPOTrainer(
        model=tiny(tokenizer),
        ref_model=tiny(tokenizer),
        args=DPOConfig(max_length=1024, **settings(tmp_path)),
        train_dataset=dataset,
        processing_class=tokenizer,
    )
    trainer.train()
    assert last_loss(trainer) == pytest.approx(math.log(2), abs=1e-3)  # both models are the same before the step


def test_kto_trainer_takes_a_step(run: Path, tmp_path: Path, tokenizer: Any) -> None:
    dataset = exported(run, tmp_path / "data", "kto", threshold=0.5)["train"]
    assert sum(dataset["label"]) == 12
    trainer = KTOTrainer(
        model=tiny(tokenizer),
        ref_model=tiny(tokenizer),
        args=KTOConfig(max_length=1024, **settings(tmp_path)),
        train_dataset=dataset,
        processing_class=tokenizer,
    )
    trainer.train()
    assert math.isfinite(last_loss(trainer))


@pytest.mark.parametrize("format_", ["jsonl", "parquet", "datasets"])
def test_datasets_loads_all_rollouts_with_splits(run: Path, tmp_path: Path, format_: str) -> None:
    loaded = exported(run, tmp_path / "data", format_, splits={"train": 0.5, "test": 0.5})
    tasks = {split: set(loaded[split]["task"]) for split in loaded}
    assert sorted(task for own in tasks.values() for task in own) == list(range(6))
    first = next(iter(loaded.values()))[0]
    assert (first["reward"], first["agent"], first["fields"]) == (0.0, "agent", {})


def test_datasets_loads_tasks(run: Path, tmp_path: Path) -> None:
    loaded = exported(run, tmp_path / "data", "rl")["train"]
    assert len(loaded) == 6
    assert loaded[0]["responses_create_params"]["input"] == "question 0"
