"""What a benchmark's YAML file says, validated. Unknown keys are errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gymnast.config.tree import plain
from gymnast.config.yaml_source import read_yaml
from gymnast.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class DataSource(_Part):
    """Where the rows are: files of a Hub dataset, or a local file."""

    repo: str | None = None
    """The Hub dataset, as org/name."""
    revision: str = "main"
    """A branch, tag or commit."""
    file: str | None = None
    """The file's path in the repository."""
    files: Annotated[list[str], Field(min_length=1)] | None = None
    """Several files of the repository, instead of `file`: paths, or patterns such as database/*/*.sqlite."""
    path: str | None = None
    """A local file, relative to the folder of the benchmark's file."""
    sha256: Sha256 | dict[str, Sha256] | None = None
    """The checksum that the file must have; for several files, by name."""
    rows: Annotated[int, Field(ge=1)] | None = None
    """The number of rows that it must have."""

    @model_validator(mode="after")
    def _names_one_place(self) -> DataSource:
        if (self.repo is None) == (self.path is None):
            raise ValueError("needs either `repo` and `file`, or `path`")
        if (self.repo is None) != (self.file is None and self.files is None):
            raise ValueError("`repo` and `file` (or `files`) belong together")
        if self.file is not None and self.files is not None:
            raise ValueError("needs either `file` or `files`")
        if isinstance(self.sha256, str) and self.files is not None:
            raise ValueError("`sha256` of several files is a mapping from names to checksums")
        return self

    @property
    def patterns(self) -> list[str]:
        """What to get: names and patterns of files."""
        return self.files or [self.file or self.path or ""]

    def checksum_of(self, name: str) -> str | None:
        """The checksum that a file must have, if one is given."""
        return self.sha256.get(name) if isinstance(self.sha256, dict) else self.sha256


class FieldRule(_Part):
    """How a field of a task is made from a row, where a template is not enough."""

    copy_of: str | None = Field(default=None, alias="from")
    """The row's field, copied as it is."""
    as_json: str | None = Field(default=None, alias="json")
    """A template whose text is parsed as JSON."""
    value: Any = None
    """A constant."""

    @model_validator(mode="after")
    def _has_one_rule(self) -> FieldRule:
        if len(self.model_fields_set) != 1:
            raise ValueError("needs exactly one of `from`, `json` and `value`")
        return self


class Prompt(_Part):
    """Templates filled with a task's fields, as in a --prompt-config file."""

    user: str
    system: str | None = None


class Metrics(_Part):
    """Which fields the figures are computed from."""

    answer: str | None = None
    """The field of a record with the extracted answer, for maj@k."""
    subset: str | None = None
    """The field of a task that names its subset; each subset gets a table."""
    pass_hat: bool = False
    """Whether to add pass^k, the probability that all of k rollouts succeed."""


class Protocol(_Part):
    """How the benchmark's published numbers are made."""

    num_repeats: Annotated[int, Field(ge=1)] = 1
    temperature: Annotated[float, Field(strict=False, ge=0)] | None = None
    top_p: Annotated[float, Field(strict=False, gt=0, le=1)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    scoring: str | None = None
    source: Annotated[str, Field(pattern=r"^https?://")] | None = None
    """Where the protocol is published."""


class Definition(_Part):
    """A benchmark's file."""

    description: str
    data: DataSource
    adapter: str | None = None
    """How rows are made from the files, where a file is not simply one row after another: the name of a built-in
    adapter, or a Python file with a function `read_rows(files)`, relative to the folder of the benchmark's file."""
    environment: str | None = None
    """NAME[/FLAVOR], as for --environment."""
    config: list[str] = []
    """Config files, as for --config."""
    overrides: list[str] = []
    """Hydra-style overrides."""
    fields: dict[str, str | FieldRule] = {}
    """Fields of a task: a Jinja template over the row's fields, or a rule. Without any, rows are tasks already."""
    prompt: Prompt | None = None
    metrics: Metrics = Metrics()
    protocol: Protocol = Protocol()

    @model_validator(mode="after")
    def _has_an_environment(self) -> Definition:
        if self.environment is None and not self.config:
            raise ValueError("needs `environment`, or `config` files")
        return self


class Benchmark(_Part):
    """A benchmark with its name and file."""

    name: str
    path: Path
    definition: Definition


def read_benchmark(path: Path) -> Benchmark:
    """Read a benchmark's file; it is named after the file. One ConfigError lists all problems."""
    content = plain(read_yaml(path))
    try:
        return Benchmark(name=path.stem, path=path, definition=Definition.model_validate(content))
    except ValidationError as error:
        raise ConfigError([_problem(detail, path) for detail in error.errors()]) from error


def _problem(detail: Mapping[str, Any], path: Path) -> Problem:
    keys = ".".join(str(key) for key in detail["loc"])
    what = {"missing": "is missing", "extra_forbidden": "is not a key of a benchmark"}.get(
        detail["type"], detail["msg"].removeprefix("Value error, ")
    )
    return Problem(f"`{keys}` {what}" if keys else str(what), where=str(path))
