"""Tokenizers in Hugging Face's file format, read with the `tokenizers` package.

Text is encoded by a tokenizer that does not know the added tokens, so no text can become one. Added tokens that only
name plain text (runs of whitespace, HTML tags in Gemma's vocabulary) are text and stay what the model was trained on.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Self

import orjson

from gymnast.errors import DataError, NotFoundError, UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tokenizers import Encoding
    from tokenizers import Tokenizer as Backend

    from gymnast.types.json import JsonObject

_TAGS: Final = (
    "table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|blockquote|strong|em|b|i|u|s|sub|sup|code|a|html|body|img|span"
    "|bbox|ul|ol|li|div|iframe|footer|p"
)
_PLAIN_TEXT: Final = re.compile(rf"[\s▁]+|</?(?:{_TAGS})>|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What a model folder says about its text, apart from the vocabulary."""

    chat_template: str | None
    variables: Mapping[str, str]
    """What templates may name: bos_token, eos_token…"""
    stop_tokens: tuple[str | int, ...]
    """Texts or ids of tokens that end a generation."""


class HfTokenizer:
    """A tokenizer.json whose control tokens are kept apart from text."""

    def __init__(self, definition: JsonObject, extra_tokens: Sequence[JsonObject] = (), *, template: str = "") -> None:
        """`template`: tokens that it spells are never plain text. `extra_tokens`: as in the file's added_tokens."""
        added = {token["content"]: token for token in (*definition.get("added_tokens", ()), *extra_tokens)}
        vocabulary = definition["model"].get("vocab") or {}
        plain = {text for text, token in added.items() if _is_plain_text(token, vocabulary, template)}
        self._controls = {text: int(token["id"]) for text, token in added.items() if text not in plain}
        self._by_id = {token_id: text for text, token_id in self._controls.items()}
        self.digest = _digest(definition, self._controls)
        kept = [token for text, token in added.items() if text in plain]
        self._backend = _load_backend({**definition, "added_tokens": kept, "post_processor": None})

    @classmethod
    def from_folder(cls, folder: Path, *, template: str = "") -> Self:
        """From tokenizer.json and, if it is there, tokenizer_config.json."""
        definition = _read_object(folder / "tokenizer.json")
        config_path = folder / "tokenizer_config.json"
        config = _read_object(config_path) if config_path.is_file() else {}
        listed = config.get("added_tokens_decoder") or {}
        known = {token["id"] for token in definition.get("added_tokens", ())}
        extra = [{**token, "id": int(at)} for at, token in listed.items() if int(at) not in known]
        return cls(definition, extra, template=template)

    @property
    def control_tokens(self) -> Mapping[str, int]:
        return self._controls

    def encode(self, text: str) -> list[int]:
        return [token_id for token_id, _ in self.encode_spans(text)] if text else []

    def encode_spans(self, text: str) -> list[tuple[int, int]]:
        """Ids with the place of the character each begins with."""
        encoding: Encoding = self._backend.encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        if self._by_id.keys().isdisjoint(ids):
            return [(token_id, span[0]) for token_id, span in zip(ids, encoding.offsets, strict=True)]
        return self._encode_apart(text, encoding)

    def _encode_apart(self, text: str, encoding: Encoding) -> list[tuple[int, int]]:
        """The base vocabulary itself holds a control token's text: encode the halves of it separately."""
        cuts = [0]
        for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token_id in self._by_id and end - start > 1:
                cuts.append(start + 1)
        spans = []
        for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True):
            spans += [(token_id, start + at) for token_id, at in self.encode_spans(text[start:end])]
        return spans

    def decode(self, ids: Sequence[int]) -> str:
        pieces = []
        for is_control, run in groupby(ids, self._by_id.__contains__):
            if is_control:
                pieces += [self._by_id[token_id] for token_id in run]
            else:
                pieces.append(self._backend.decode(list(run), skip_special_tokens=False))
        return "".join(pieces)


def read_model_files(folder: Path) -> ModelFiles:
    """Template, special texts and stop tokens of a model folder; absent files say nothing."""
    config = _optional(folder / "tokenizer_config.json")
    generation = _optional(folder / "generation_config.json")
    variables = {name: text for name, value in config.items() if name.endswith("_token") and (text := _text_of(value))}
    ends = generation.get("eos_token_id")
    stops: list[str | int] = [variables["eos_token"]] if "eos_token" in variables else []
    stops += ends if isinstance(ends, list) else [ends] if ends is not None else []
    return ModelFiles(_template_of(folder, config), variables, tuple(stops))


def _template_of(folder: Path, config: JsonObject) -> str | None:
    beside = folder / "chat_template.jinja"
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        template = next((entry["template"] for entry in template if entry.get("name") == "default"), None)
    return template if isinstance(template, str) else None


def _text_of(value: Any) -> str | None:
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _is_plain_text(token: JsonObject, vocabulary: Any, template: str) -> bool:
    text = token["content"]
    if token.get("special") or not isinstance(vocabulary, dict) or text not in vocabulary:
        return False
    return _PLAIN_TEXT.fullmatch(text) is not None and (text.isspace() or text not in template)


def _digest(definition: JsonObject, controls: Mapping[str, int]) -> str:
    told = orjson.dumps([definition, sorted(controls.items())], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(told).hexdigest()[:16]


def _load_backend(definition: JsonObject) -> Backend:
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an extra: most installations do not read model folders
    except ImportError as error:
        raise UserError(
            "reading tokenizer.json needs the package 'tokenizers'", next="pip install 'gymnast[tokens]'"
        ) from error
    return Tokenizer.from_str(orjson.dumps(definition).decode())


def _optional(path: Path) -> JsonObject:
    return _read_object(path) if path.is_file() else {}


def _read_object(path: Path) -> JsonObject:
    if not path.is_file():
        raise NotFoundError(
            f"there is no {path.name}",
            where=str(path.parent),
            next="point to a folder with tokenizer files",
        )
    try:
        value = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise DataError(f"not JSON: {error}", where=str(path)) from error
    if not isinstance(value, dict):
        raise DataError("not a JSON object", where=str(path))
    return value
