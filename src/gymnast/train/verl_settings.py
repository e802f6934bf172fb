"""The section `gymnast` of a verl configuration: which environments, and how batches are collected. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import UserError, suggest
from gymnast.train.gathering import BatchOptions
from gymnast.train.reading import SampleOptions
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.types.json import JsonObject

SECTION: Final = "gymnast"
_MODEL: Final = "policy_model.responses_api_models.vllm_model"
_OF_BATCH: Final = frozenset(one.name for one in fields(BatchOptions)) - {"sample"}
_TRAIN: Final = ("temperature", "top_p")


@dataclass(frozen=True, slots=True)
class VerlSettings:
    """What the section may say."""

    environments: tuple[str, ...] = ()
    """Names of environments, as after `gymnast collect -e`."""
    config_paths: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    """Further settings, `++name.kind.type.key=value`."""
    workers: int = 0
    """Processes in which rollouts run; 0 runs them in the trainer's."""
    log_dir: str | None = None
    masked_vote: bool = False
    """Rewards of masked rollouts count in their group's baseline."""
    mask_truncated: bool = False
    tokenizer: str | None = None
    """The folder of the tokenizer; the model's own unless given."""
    batch: BatchOptions = field(default_factory=BatchOptions)


def read_settings(section: Mapping[str, Any] | None) -> VerlSettings:
    """The section as settings. Raises UserError for names that are unknown."""
    given = dict(section or {})
    names = {one.name for one in fields(VerlSettings)} - {"batch"}
    unknown = [name for name in given if name not in names | _OF_BATCH]
    if unknown:
        hint = suggest(unknown[0], sorted(names | _OF_BATCH))
        raise UserError(f"the section '{SECTION}' has no setting '{unknown[0]}'", where="verl's config", next=hint)
    sample = SampleOptions(mask_truncated=bool(given.get("mask_truncated", False)))
    batch = BatchOptions(**{name: given[name] for name in _OF_BATCH & given.keys()}, sample=sample)
    own: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items() if name in names
    }
    if not (own.get("environments") or own.get("config_paths")):
        raise UserError(
            f"the section '{SECTION}' names no environment", where="verl's config", next="gymnast.environments: [mcqa]"
        )
    return VerlSettings(**own, batch=batch)


def model_overrides(settings: VerlSettings, model_path: str, rollout: Mapping[str, Any], key: str) -> list[str]:
    """The policy's model server: prompts as ids, logprobs in the mode that verl starts its engine with."""
    mode = "processed" if str(rollout.get("logprobs_mode", "")).startswith("processed") else "raw"
    return [
        f"++{_MODEL}.return_token_id_information=true",
        f'++{_MODEL}.tokenizer="{settings.tokenizer or model_path}"',
        f"++{_MODEL}.logprobs_mode={mode}",
        f"++{_MODEL}.api_key={key}",
        *settings.overrides,
    ]


def window_of(rollout: Mapping[str, Any]) -> int:
    """How many tokens prompt and response may have together."""
    longest = rollout.get("max_model_len")
    return int(longest) if longest else int(rollout["prompt_length"]) + int(rollout["response_length"])


def task_of(row: JsonObject, rollout: Mapping[str, Any], *, validate: bool, greedy: bool = False) -> JsonObject:
    """A row with the sampling parameters of this step: those of training, or of validation."""
    values: Mapping[str, Any] = rollout["val_kwargs"] if validate else rollout
    params: JsonObject = {name: values[name] for name in _TRAIN}
    if greedy or (validate and not values.get("do_sample", True)):
        params = {"temperature": 0.0, "top_p": 1.0}
    asked = row[PARAMS]
    most = int(rollout["response_length"])
    params["max_output_tokens"] = min(asked.get("max_output_tokens") or most, most)
    return {**row, PARAMS: {**asked, **params}}
