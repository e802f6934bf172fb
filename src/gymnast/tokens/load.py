"""Loads renderers from model folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gymnast.errors import UserError
from gymnast.tokens.chat_template import ChatTemplate
from gymnast.tokens.families.registry import FAMILIES, detect_family, get_family
from gymnast.tokens.hf_tokenizer import HfTokenizer, read_model_files
from gymnast.tokens.probing import probe_template
from gymnast.tokens.template import TemplateRenderer

if TYPE_CHECKING:
    from gymnast.tokens.families.family import Family


def load_renderer(
    path_or_name: str | Path,
    *,
    chat_template: str | None = None,
    family: str | None = None,
) -> TemplateRenderer:
    """Load a renderer from a folder with tokenizer.json, or from the path of that file.

    `chat_template`: a template or its path, instead of the folder's. `family`: a name; detected from the template if
    omitted.
    """
    folder = _folder(path_or_name)
    files = read_model_files(folder)
    source = _template_text(chat_template) if chat_template is not None else files.chat_template
    if source is None:
        raise UserError(
            "this model has no chat template", where=str(folder), next="set chat_template to a .jinja file or its text"
        )
    model_family = _family(family, source, folder)
    tool_template = model_family.tool_template
    if chat_template is None and tool_template and not probe_template(ChatTemplate(source), model_family).tools:
        source = tool_template
    tokenizer = HfTokenizer.from_folder(folder, template=source)
    return TemplateRenderer(tokenizer, source, model_family, variables=files.variables, stop_tokens=files.stop_tokens)


def _folder(path_or_name: str | Path) -> Path:
    path = Path(path_or_name).expanduser()
    if path.name == "tokenizer.json" and path.is_file():
        return path.parent
    if path.is_dir():
        return path
    raise UserError(
        f"'{path_or_name}' is not a tokenizer folder",
        next="pass the path of a folder with tokenizer.json and tokenizer_config.json",
    )


def _template_text(text_or_path: str) -> str:
    """The text of a template, read from a file if a path is given."""
    if "\n" in text_or_path or "{" in text_or_path:
        return text_or_path
    path = Path(text_or_path).expanduser()
    if not path.is_file():
        raise UserError("chat template not found", where=text_or_path, next="pass a .jinja file or the template's text")
    return path.read_text(encoding="utf-8")


def _family(name: str | None, source: str, folder: Path) -> Family:
    if name is not None:
        return get_family(name)
    family = detect_family(source)
    if family is None:
        raise UserError(
            "cannot detect the model's family from its chat template",
            where=str(folder),
            next=f"set family to one of {', '.join(sorted(FAMILIES))}",
        )
    return family
