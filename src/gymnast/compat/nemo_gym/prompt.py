"""`nemo_gym.prompt`: prompt templates."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gymnast.compat.nemo_gym import checkout_of
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.config import read_environ
from gymnast.config.roots import Roots
from gymnast.rollouts.prompt import PromptTemplate, read_template


class PromptConfig(BaseModel):
    user: str
    system: str | None = None


def load_prompt_config(path: str) -> PromptConfig:
    """Read a template from a file, searched like config files."""
    here = Path.cwd()
    root = here if (here / path).exists() else checkout_of(str(here / "_")) or here
    roots = Roots(read_environ().extra_roots, root)
    template = read_template(roots.require(path, "prompt_config"))
    return PromptConfig(user=template.user, system=template.system)


def _template(config: PromptConfig) -> PromptTemplate:
    return PromptTemplate(config.user, config.system)


def fill_prompt(prompt_config: PromptConfig, row: dict[str, Any]) -> list[dict[str, str]]:
    return _template(prompt_config).messages(row)


def apply_prompt_to_row(row: dict[str, Any], prompt_config: PromptConfig) -> dict[str, Any]:
    """The row with these messages as its input; raises for a row that already has one."""
    return _template(prompt_config).apply(row)


__getattr__ = missing_from("nemo_gym.prompt")
