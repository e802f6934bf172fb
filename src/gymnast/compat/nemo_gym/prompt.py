"""`nemo_gym.prompt`: prompt templates, by those of the engine."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.config import read_environ
from gymnast.config.roots import Roots
from gymnast.rollouts.prompt import PromptTemplate, read_template

__all__ = [
    "PromptConfig",
    "apply_prompt_to_row",
    "fill_prompt",
    "load_prompt_config",
]


class PromptConfig(BaseModel):
    """A template."""

    user: str
    system: str | None = None


def load_prompt_config(path: str) -> PromptConfig:
    """A template from a file, looked for as configurations are."""
    roots = Roots(read_environ().extra_roots, Path.cwd())
    found = read_template(roots.require(path, "prompt_config"))
    return PromptConfig(user=found.user, system=found.system)


def _template(config: PromptConfig) -> PromptTemplate:
    return PromptTemplate(config.user, config.system)


def fill_prompt(prompt_config: PromptConfig, row: dict[str, Any]) -> list[dict[str, str]]:
    """The messages for a row."""
    return _template(prompt_config).messages(row)


def apply_prompt_to_row(row: dict[str, Any], prompt_config: PromptConfig) -> dict[str, Any]:
    """The row with these messages as its input; one that has an input already is refused."""
    return _template(prompt_config).applied(row)


__getattr__ = missing_from("nemo_gym.prompt")
