"""`manifest.yaml` of an environment or benchmark: what its author says about it, and a mirror of its config."""

from __future__ import annotations

from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import yaml
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from gymnast.compat.nemo_gym.config_types import Domain
from gymnast.errors import DataError, NotFoundError
from gymnast.store.atomic import atomic_write

if TYPE_CHECKING:
    from pathlib import Path

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_Source = Annotated[
    str,
    StringConstraints(strip_whitespace=True, pattern=r"^(?:(?:https?|ssh|git|file)://\S+|[^@\s]+@[^:\s]+:\S+)$"),
]
_Revision = Annotated[str, StringConstraints(strip_whitespace=True, pattern=r"^\S+$")]
_Callable = Annotated[
    str, StringConstraints(strip_whitespace=True, pattern=r"^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")
]
_NOT_SPDX: Final = frozenset({"internal", "proprietary", "unknown"})


class Kind(StrEnum):
    """What a manifest describes."""

    ENVIRONMENT = "environment"
    BENCHMARK = "benchmark"


class Profile(StrEnum):
    """Which part of a rollout the author wrote."""

    VERIFIER = "custom-gym-verifier"
    AGENT_LOOP = "custom-gym-agent-loop"
    EXTERNAL_LOOP = "external-agent-loop"
    EXTERNAL_DRIVER = "external-rollout-driver"


class Determinism(StrEnum):
    """Whether equal requests get equal rewards."""

    SEEDED = "seeded"
    STOCHASTIC = "stochastic"
    UNKNOWN = "unknown"


class SessionModel(StrEnum):
    """What a session covers."""

    EPISODE = "episode"
    STEP = "step"


class State(StrEnum):
    """What an environment keeps."""

    NONE = "none"
    PER_SESSION = "per_session"


class Lifecycle(StrEnum):
    """Whether it should still be used."""

    ACTIVE = "active"
    DEPRECATED = "deprecated"


class DatasetKind(StrEnum):
    """What a dataset is for."""

    TRAIN = "train"
    VALIDATION = "validation"
    EXAMPLE = "example"
    BENCHMARK = "benchmark"


_NEEDED: Final = {
    Profile.VERIFIER: ("model_server",),
    Profile.AGENT_LOOP: ("model_server",),
    Profile.EXTERNAL_LOOP: (),
    Profile.EXTERNAL_DRIVER: ("rollout_driver",),
}


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True, validate_default=True)


class Reward(_Part):
    """What rewards mean."""

    range: tuple[FiniteFloat, FiniteFloat]
    higher_is_better: bool

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.range[0] >= self.range[1]:
            raise ValueError("reward.range must be two numbers, the lower one first")
        return self


class ManifestDataset(_Part):
    """A dataset of the agent, as its config has it."""

    name: Text
    type: DatasetKind
    jsonl_fpath: Text
    prepare_script: Text | None = None
    prompt_config: Text | None = None
    num_repeats: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _has_script(self) -> Self:
        if self.type is DatasetKind.BENCHMARK and self.prepare_script is None:
            raise ValueError("a benchmark dataset needs prepare_script")
        return self


class AdoptedFrom(_Part):
    """Where something was taken from."""

    source: _Source
    ref: _Revision
    reconciled: date


class Manifest(_Part):
    """The content of the file."""

    name: Text
    version: Text
    kind: Kind
    integration_profile: Profile
    domain: Domain
    description: Text
    modality: Text
    licensing: Text = "unknown"
    authors: list[Text] = Field(min_length=1)
    reward: Reward
    determinism: Determinism = Determinism.UNKNOWN

    resources_server: Text
    agent_server: Text
    datasets: list[ManifestDataset] = Field(min_length=1)
    model_server: Text | None = None
    rollout_driver: _Callable | None = None
    grading_mode: Text | None = None

    session_model: SessionModel | None = None
    state: State | None = None
    sandbox: Text | None = None
    canonical_split: Text | None = None
    standard_prompt_config: Text | None = None
    adopted_from: AdoptedFrom | None = None
    lifecycle: Lifecycle = Lifecycle.ACTIVE

    @field_validator("authors")
    @classmethod
    def _unique(cls, authors: list[str]) -> list[str]:
        if len(authors) != len(set(authors)):
            raise ValueError("an author is listed twice")
        return authors

    @field_validator("licensing")
    @classmethod
    def _spdx(cls, text: str) -> str:
        if text in _NOT_SPDX:
            return text
        try:
            return canonicalize_license_expression(text)
        except InvalidLicenseExpression as error:
            raise ValueError("expected an SPDX expression, internal, proprietary or unknown") from error

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed = [*_NEEDED[self.integration_profile]]
        if self.kind is Kind.BENCHMARK:
            needed += ["canonical_split", "standard_prompt_config"]
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"it needs {', '.join(missing)}")
        if self.integration_profile is not Profile.EXTERNAL_DRIVER and self.rollout_driver is not None:
            raise ValueError(f"rollout_driver needs the profile {Profile.EXTERNAL_DRIVER.value}")
        names = [dataset.name for dataset in self.datasets]
        if len(names) != len(set(names)):
            raise ValueError("two datasets have the same name")
        if self.kind is Kind.BENCHMARK and not any(each.type is DatasetKind.BENCHMARK for each in self.datasets):
            raise ValueError("a benchmark needs a dataset of type benchmark")
        return self


def read_manifest(path: Path) -> Manifest:
    """The manifest in a file. Raises DataError with all problems of it."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFoundError("there is no manifest", where=str(path), next="write manifest.yaml") from error
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise DataError(f"cannot read the manifest: {error}", where=str(path)) from error
    if not isinstance(values, dict):
        raise DataError("expected a YAML mapping", where=str(path))
    return make_manifest(values, path)


def make_manifest(values: dict[str, Any], path: Path) -> Manifest:
    """The manifest with these values; `path` is for messages."""
    try:
        return Manifest.model_validate(values)
    except ValidationError as error:
        lines = "".join(f"\n  {_describe(detail)}" for detail in error.errors(include_url=False))
        raise DataError(f"the manifest is not valid{lines}", where=str(path)) from error


def _describe(detail: Any) -> str:
    where = ".".join(str(step) for step in detail["loc"])
    message = detail["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


def write_manifest(manifest: Manifest, path: Path) -> None:
    """Replace the file; its mode is kept."""
    mode = path.stat().st_mode
    values = manifest.model_dump(mode="json", exclude_none=True)
    atomic_write(path, yaml.safe_dump(values, sort_keys=False, allow_unicode=True).encode())
    path.chmod(mode & 0o777)
