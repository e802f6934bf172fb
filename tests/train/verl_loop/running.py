"""Runs verl's own entry on the CPU with a configuration as a user writes one, and reads what came out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import AutoTokenizer

from gymnast.builtin.responses_api_models.embedded_model.policy import SHIPPED
from gymnast.config.roots import BUILTIN
from tests.helpers.train_tasks import ENVIRONMENTS, shop_tasks, sum_tasks, written
from tests.helpers.waiting import wait_until
from tests.train.verl_loop.script import write_script, write_tasks
from tests.vllm.build_models import build_tiny

ROOT = Path(__file__).parents[3]
GENERATIONS = 4
TASKS_PER_STEP = 2
STEPS = 3
PER_TOKEN = ("response_mask", "rollout_log_probs", "old_log_probs", "advantages")
ONE_TRY = "++policy_model.responses_api_models.vllm_model.max_attempts=1"
_STARTED = "Started a local Ray instance"
_MAX_STARTS = 10
_FP32 = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}


@dataclass(frozen=True)
class TrainedRow:
    """A row as the loss saw it. What is per token is over the response, without padding."""

    prompt: list[int]
    response: list[int]
    mask: list[int]
    logprobs: list[float]
    """Those of sampling."""
    old_logprobs: list[float]
    advantages: list[float]
    texts: tuple[str, str]
    """Prompt and response as verl writes them down."""

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Start and end of each stretch of tokens with mask 1."""
        edges = [0, *self.mask, 0]
        starts = [place for place in range(len(self.mask)) if edges[place + 1] and not edges[place]]
        ends = [place + 1 for place in range(len(self.mask)) if edges[place + 1] and not edges[place + 2]]
        return list(zip(starts, ends, strict=True))

    @property
    def advantage(self) -> float:
        """That of all its sampled tokens."""
        [value] = {value for value, trained in zip(self.advantages, self.mask, strict=True) if trained}
        return value


@dataclass(frozen=True)
class Loop:
    """A folder with a configuration, and what runs of it leave there."""

    folder: Path
    config: Path
    overrides: tuple[str, ...] = ()
    model: Path = SHIPPED

    def run(self, name: str, *overrides: str, fails: bool = False, **environ: str) -> str:
        """Run main_ppo once and return its output."""
        for _ in range(_MAX_STARTS):
            code, text = self._run_once(name, overrides, environ)
            if _STARTED in text:  # on a busy machine Ray gives up after 15 seconds, whatever it is told
                break
        assert (code != 0) is fails, text[-8000:]
        return text

    def _run_once(self, name: str, overrides: Sequence[str], environ: dict[str, str]) -> tuple[int, str]:
        command = [sys.executable, "-m", "verl.trainer.main_ppo"]
        command += [f"--config-path={self.config.parent}", f"--config-name={self.config.stem}", *self.overrides]
        output = self.folder / f"{name}.log"
        with output.open("wb") as file:
            done = subprocess.run(
                [*command, *overrides],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.environ(name) | environ,
                cwd=self.folder,
                check=False,
            )
        self.expect_no_process()
        return done.returncode, output.read_text(errors="replace")

    def expect_no_process(self) -> None:
        """A trainer that has ended leaves nothing that runs on, e.g. waits for a queue that is gone."""
        mark = f"LOOP_FOLDER={self.folder}".encode()
        try:
            wait_until(lambda: not _processes_with(mark), within_s=120.0)
        finally:
            for pid in _processes_with(mark):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def logged(self, name: str) -> dict[int, dict[str, float]]:
        """What verl logged in a run, by step."""
        steps: dict[int, dict[str, float]] = {}
        for line in (self.folder / f"{name}.jsonl").read_text().splitlines():
            entry = json.loads(line)
            steps.setdefault(entry["step"], {}).update(entry["data"])
        return steps

    def trained(self, name: str) -> list[list[TrainedRow]]:
        """The rows that reached the loss in a run, by step."""
        tokenizer = AutoTokenizer.from_pretrained(self.model)
        return [_rows(torch.load(path), tokenizer) for path in sorted(self.folder.glob(f"trained-{name}-*.pt"))]

    def sampled(self) -> list[dict[str, Any]]:
        """What the inference replica sampled, in all runs."""
        return [json.loads(line) for line in (self.folder / "engine.jsonl").read_text().splitlines()]

    def environ(self, name: str) -> dict[str, str]:
        """The environment of a run: the stand-ins, and patience with a busy machine."""
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "VERL_PLATFORM": "cpu",
            "VERL_USE_EXTERNAL_MODULES": "tests.train.verl_loop.cpu_device",
            "VERL_FILE_LOGGER_PATH": str(self.folder / f"{name}.jsonl"),
            "LOOP_FOLDER": str(self.folder),
            "LOOP_RUN": name,
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HYDRA_FULL_ERROR": "1",
            "RAY_prestart_worker_first_driver": "0",  # sixteen processes that nothing uses
            "RAY_raylet_start_wait_time_s": "120",
            "RAY_worker_register_timeout_seconds": "600",  # however busy the machine is
        }


def make_loop(folder: Path, changes: dict[str, Any] | None = None, tasks: int = TASKS_PER_STEP * STEPS) -> Loop:
    """Tasks, by default for exactly one epoch of STEPS steps, and the configuration that trains on them."""
    train = written(folder, [*shop_tasks(tasks // 2), *sum_tasks(tasks - tasks // 2)], "train.jsonl")
    validation = written(folder, [*shop_tasks(1, seed=11), *sum_tasks(1, seed=11)], "validation.jsonl")
    config = _configuration(folder, train, validation)
    _merge(config, changes or {})
    path = folder / "loop.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return Loop(folder, path)


def make_recipe_loop(folder: Path, recipe: Path, environments: list[str]) -> Loop:
    """A recipe as it is, with the overrides that a machine without a GPU needs, and a policy that plays a script."""
    model, train, validation = folder / "model", folder / "train.jsonl", folder / "validation.jsonl"
    model.mkdir()
    # Trained on what the prompts say: tools fill many tokens otherwise.
    examples = [BUILTIN / "resources_servers" / name / "data" / "example.jsonl" for name in environments]
    build_tiny(model, texts=[line for path in examples for line in path.read_text().splitlines()])
    episodes = write_tasks(train, environments, TASKS_PER_STEP * STEPS, name="task")
    episodes += write_tasks(validation, environments, 1, name="validation task")
    write_script(folder / "script.json", episodes)
    config = _configuration(folder, train, validation)
    _merge(config, {"actor_rollout_ref": {"model": {"path": str(model)}}})
    for part in ("max_prompt_length", "max_response_length"):
        del config["data"][part]
    for part in ("defaults", "hydra", "gymnast"):
        del config[part]
    return Loop(folder, recipe, tuple(_as_overrides(config)), model)


def _rows(batch: dict[str, list[torch.Tensor]], tokenizer: Any) -> list[TrainedRow]:
    """The classic trainer pads prompts on the left and what is per token on the right."""
    rows = []
    for index, ids in enumerate(batch["input_ids"]):
        padded: list[int] = batch["prompts"][index].tolist()
        prompt = padded[next(place for place, token in enumerate(padded) if token != tokenizer.pad_token_id) :]
        assert ids[: len(prompt)].tolist() == prompt
        response = ids[len(prompt) :].tolist()
        size = len(response)
        mask, logprobs, old, advantages = (batch[name][index].tolist() for name in PER_TOKEN)
        assert not any(mask[size:]), "what is padded is masked"
        text, answer = (tokenizer.decode(part, skip_special_tokens=True) for part in (prompt, response))
        rows.append(
            TrainedRow(
                prompt, response, mask[:size], logprobs[:size], old[:size], advantages[:size], texts=(text, answer)
            )
        )
    return rows


def _configuration(folder: Path, train: Path, validation: Path) -> dict[str, Any]:
    """What a user writes, and below `actor` and `ray_kwargs` what a machine without a GPU needs."""
    return {
        "defaults": ["ppo_trainer", "gymnast_base", "_self_"],
        "hydra": {"searchpath": ["pkg://verl.trainer.config", f"file://{ROOT / 'recipes' / 'verl'}"]},
        "data": {
            "train_files": [str(train)],
            "val_files": [str(validation)],
            "train_batch_size": TASKS_PER_STEP,
            "max_prompt_length": 600,
            "max_response_length": 200,
            "dataloader_num_workers": 0,
            "seed": 3,
        },
        "gymnast": {"environments": ENVIRONMENTS, "max_attempts": 1, "overrides": [ONE_TRY]},
        "trainer": {
            "logger": ["console", "file"],
            "nnodes": 1,
            "n_gpus_per_node": 1,
            "device": "cpu",
            "total_training_steps": STEPS,
            "val_before_train": False,
            "save_freq": -1,
            "test_freq": -1,
            "default_local_dir": str(folder / "checkpoints"),
            "rollout_data_dir": str(folder / "rows"),
            "resume_mode": "disable",
        },
        "actor_rollout_ref": {
            "model": {
                "path": str(SHIPPED),
                "use_remove_padding": False,
                "enable_gradient_checkpointing": False,
                "override_config": {"attn_implementation": "sdpa"},
            },
            "rollout": {
                "name": "tiny",
                "n": GENERATIONS,
                "tensor_model_parallel_size": 1,
                "log_prob_micro_batch_size_per_gpu": 4,
                "val_kwargs": {"n": 1, "do_sample": True, "temperature": 1.0},
            },
            "actor": {
                "strategy": "fsdp2",
                "ppo_mini_batch_size": TASKS_PER_STEP,
                "ppo_micro_batch_size_per_gpu": 4,
                "use_torch_compile": False,
                "fsdp_config": {"use_torch_compile": False, "mixed_precision": _FP32},
                "optim": {"lr": 1e-3},
            },
        },
        "transfer_queue": {"backend": {"SimpleStorage": {"num_data_storage_units": 1}}},
        "ray_kwargs": {"ray_init": {"num_cpus": 16, "num_gpus": 1, "include_dashboard": False}},
    }


def _as_overrides(config: dict[str, Any], prefix: str = "++") -> Iterator[str]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _as_overrides(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={json.dumps(value)}"


def _merge(into: dict[str, Any], changes: dict[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _processes_with(variable: bytes) -> list[int]:
    """The processes with this in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(folder.name)
            if variable in (folder / "environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found
