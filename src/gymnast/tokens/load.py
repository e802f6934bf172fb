"""Renderers from model folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gymnast.errors import UserError
from gymnast.tokens.chat_template import ChatTemplate
from gymnast.tokens.families.registry import FAMILIES, family_named, recognised_family
from gymnast.tokens.hf_tokenizer import HfTokenizer, read_model_files
from gymnast.tokens.probing import probe
from gymnast.tokens.template import TemplateRenderer

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from gymnast.tokens.families.family import Family


def load_renderer(
    path_or_name: str | Path,
    *,
    chat_template: str | None = None,
    family: str | None = None,
    clock: Callable[[], datetime] | None = None,
) -> TemplateRenderer:
    """From a folder with tokenizer.json (or that file).

    `chat_template`: a template or the path of one, instead of the folder's own. `family`: by name, else recognised by
    the template.
    """
    folder = _folder(path_or_name)
    files = read_model_files(folder)
    source = _template_text(chat_template) if chat_template is not None else files.chat_template
    if source is None:
        raise UserError(
            "this model has no chat template", where=str(folder), next="give chat_template: a .jinja file or its text"
        )
    known = _family(family, source, folder)
    if chat_template is None and known.tool_template and not probe(ChatTemplate(source), known).tools:
        source = known.tool_template
    tokenizer = HfTokenizer.from_folder(folder, template=source)
    return TemplateRenderer(
        tokenizer, source, known, variables=files.variables, stop_tokens=files.stop_tokens, clock=clock
    )


def _folder(path_or_name: str | Path) -> Path:
    path = Path(path_or_name).expanduser()
    if path.name == "tokenizer.json" and path.is_file():
        return path.parent
    if path.is_dir():
        return path
    raise UserError(
        f"'{path_or_name}' is no folder with a tokenizer",
        next="give the path of a folder that holds tokenizer.json and tokenizer_config.json",
    )


def _template_text(given: str) -> str:
    """The template itself, or the file that a one-line text names."""
    if "\n" not in given and "{" not in given:
        path = Path(given).expanduser()
        if not path.is_file():
            raise UserError("there is no such chat template", where=given, next="give a .jinja file or the text itself")
        return path.read_text(encoding="utf-8")
    return given


def _family(name: str | None, source: str, folder: Path) -> Family:
    if name is not None:
        return family_named(name)
    found = recognised_family(source)
    if found is None:
        raise UserError(
            "the model's family is not recognised by its chat template",
            where=str(folder),
            next=f"give family: one of {', '.join(sorted(FAMILIES))}",
        )
    return found
