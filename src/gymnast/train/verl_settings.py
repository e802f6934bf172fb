"""The section `gymnast` of a verl configuration: environments and batch options. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import UserError, suggest
from gymnast.train.arguments import require_count
from gymnast.train.batch_progress import BatchOptions
from gymnast.train.sample_reader import SampleOptions
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

SECTION: Final = "gymnast"
_MODEL: Final = "policy_model.responses_api_models.vllm_model"
_BATCH_OPTIONS: Final = frozenset(option.name for option in fields(BatchOptions)) - {"sample"}
_SWITCHES: Final = frozenset({"masked_vote", "mask_truncated", "stop_early"})
_COUNTS: Final = frozenset({"workers", "max_failed_groups"})
_LISTS: Final = frozenset({"environments", "config_paths", "overrides"})
_TEXTS: Final = frozenset({"tokenizer", "log_dir"})
_TRAIN: Final = ("temperature", "top_p")


@dataclass(frozen=True, slots=True)
class VerlSettings:
    """The settings of the section."""

    environments: tuple[str, ...] = ()
    """Names of environments, as for `gymnast collect -e`."""
    config_paths: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    """Configuration overrides, `++name.kind.type.key=value`."""
    workers: int = 0
    """Number of processes that run rollouts; 0 runs them in the trainer's process."""
    log_dir: str | None = None
    masked_vote: bool = False
    """Rewards of masked rollouts count in their group's baseline."""
    mask_truncated: bool = False
    max_failed_groups: int = 0
    """In verl's asynchronous modes: prompts in a row whose rollouts may fail; verl replaces them by others."""
    tokenizer: str | None = None
    """The tokenizer's folder; the model's own by default."""
    batch: BatchOptions = field(default_factory=BatchOptions)


def read_settings(section: Mapping[str, Any] | None) -> VerlSettings:
    """Parse the section. Raises UserError for unknown settings."""
    given: object = section or {}
    if not isinstance(given, Mapping):
        what = f"the section '{SECTION}' must have settings by name, got {given!r}"
        raise UserError(what, next="gymnast: {environments: [mcqa]}")
    values = dict(given)
    names = {setting.name for setting in fields(VerlSettings)} - {"batch"}
    unknown = [name for name in values if name not in names | _BATCH_OPTIONS]
    if unknown:
        hint = suggest(unknown[0], sorted(names | _BATCH_OPTIONS))
        raise UserError(f"unknown setting '{unknown[0]}' in section '{SECTION}'", where="verl's config", next=hint)
    _check_values(values)
    sample = SampleOptions(mask_truncated=values.get("mask_truncated", False))
    batch = BatchOptions(**{name: values[name] for name in _BATCH_OPTIONS & values.keys()}, sample=sample)
    lists = {name: _texts(name, values[name]) for name in _LISTS & values.keys()}
    own: dict[str, Any] = {name: value for name, value in values.items() if name in names} | lists
    if not (own.get("environments") or own.get("config_paths")):
        raise UserError(
            f"the section '{SECTION}' names no environment", where="verl's config", next="gymnast.environments: [mcqa]"
        )
    return VerlSettings(**own, batch=batch)


def _check_values(values: Mapping[str, Any]) -> None:
    """Raise UserError for a switch, text or count that is none."""
    for name in _SWITCHES & values.keys():
        if not isinstance(values[name], bool):
            raise UserError(f"'{name}' in section '{SECTION}' must be true or false, got {values[name]!r}")
    for name in _TEXTS & values.keys():
        if values[name] is not None and not isinstance(values[name], str):
            raise UserError(f"'{name}' in section '{SECTION}' must be a string, got {values[name]!r}")
    for name in _COUNTS & values.keys():
        require_count(name, values[name], at_least=0)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    """A list of texts; a single text is a list of one."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"'{name}' in section '{SECTION}' must be a list of strings, got {value!r}")
    return tuple(texts)


def model_overrides(settings: VerlSettings, model_path: str, rollout: Mapping[str, Any], key: str) -> list[str]:
    """Overrides of the policy's model server: prompts as ids, logprobs in the mode of verl's inference server."""
    mode = "processed" if str(rollout.get("logprobs_mode", "")).startswith("processed") else "raw"
    return [
        f"++{_MODEL}.return_token_id_information=true",
        f'++{_MODEL}.tokenizer="{settings.tokenizer or model_path}"',
        f"++{_MODEL}.logprobs_mode={mode}",
        f"++{_MODEL}.api_key={key}",
        *settings.overrides,
    ]


def window_of(rollout: Mapping[str, Any]) -> int:
    """The maximum number of tokens of prompt and response together."""
    max_length = rollout.get("max_model_len")
    return int(max_length) if max_length else int(rollout["prompt_length"]) + int(rollout["response_length"])


def task_of(row: JsonObject, rollout: Mapping[str, Any], *, validate: bool, greedy: bool = False) -> JsonObject:
    """A row with the sampling parameters of training or validation."""
    values: Mapping[str, Any] = rollout["val_kwargs"] if validate else rollout
    params: JsonObject = {name: values[name] for name in _TRAIN}
    if greedy or (validate and not values.get("do_sample", True)):
        params = {"temperature": 0.0, "top_p": 1.0}
    own = row[PARAMS]
    limit = int(rollout["response_length"])
    params["max_output_tokens"] = min(own.get("max_output_tokens") or limit, limit)
    return {**row, PARAMS: {**own, **params}}
