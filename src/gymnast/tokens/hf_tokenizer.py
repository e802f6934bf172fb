"""Tokenizers in Hugging Face's file format, loaded with the `tokenizers` package.

Text is encoded without the added tokens, so no text can become a control token. Added tokens that are plain text (runs
of whitespace, HTML tags in Gemma's vocabulary) stay text, as in training.
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
    from tokenizers import Tokenizer as RustTokenizer

    from gymnast.types.json import JsonObject

_TAGS: Final = (
    "table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|blockquote|strong|em|b|i|u|s|sub|sup|code|a|html|body|img|span"
    "|bbox|ul|ol|li|div|iframe|footer|p"
)
_PLAIN_TEXT: Final = re.compile(rf"[\s▁]+|</?(?:{_TAGS})>|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model folder's text settings, without the vocabulary."""

    chat_template: str | None
    variables: Mapping[str, str]
    """Variables of templates: bos_token, eos_token…"""
    stop_tokens: tuple[str | int, ...]
    """Texts or ids of tokens that end a generation."""


class HfTokenizer:
    """A tokenizer.json whose control tokens are separate from text."""

    def __init__(self, definition: JsonObject, extra_tokens: Sequence[JsonObject] = (), *, template: str = "") -> None:
        """`template`: tokens it contains are never plain text. `extra_tokens`: in the form of added_tokens."""
        added = {token["content"]: token for token in (*definition.get("added_tokens", ()), *extra_tokens)}
        vocabulary = definition["model"].get("vocab") or {}
        plain = {text for text, token in added.items() if _is_plain_text(token, vocabulary, template)}
        self._controls = {text: int(token["id"]) for text, token in added.items() if text not in plain}
        self._by_id = {token_id: text for text, token_id in self._controls.items()}
        self.digest = _digest(definition, self._controls)
        plain_tokens = [token for text, token in added.items() if text in plain]
        self._tokenizer = _load_tokenizer({**definition, "added_tokens": plain_tokens, "post_processor": None})

    @classmethod
    def from_folder(cls, folder: Path, *, template: str = "") -> Self:
        """Load tokenizer.json and, if present, tokenizer_config.json."""
        definition = _read_object(folder / "tokenizer.json")
        added = _read_optional(folder / "tokenizer_config.json").get("added_tokens_decoder") or {}
        known = {token["id"] for token in definition.get("added_tokens", ())}
        extra = [{**token, "id": int(key)} for key, token in added.items() if int(key) not in known]
        return cls(definition, extra, template=template)

    @property
    def control_tokens(self) -> Mapping[str, int]:
        return self._controls

    def encode(self, text: str) -> list[int]:
        return [token_id for token_id, _ in self.encode_spans(text)] if text else []

    def encode_spans(self, text: str) -> list[tuple[int, int]]:
        """Ids, each with the index of its first character."""
        encoding: Encoding = self._tokenizer.encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        if self._by_id.keys().isdisjoint(ids):
            return [(token_id, span[0]) for token_id, span in zip(ids, encoding.offsets, strict=True)]
        return self._encode_split(text, encoding)

    def _encode_split(self, text: str, encoding: Encoding) -> list[tuple[int, int]]:
        """Encode control tokens' texts in two halves, because the base vocabulary itself contains them."""
        cuts = [0]
        for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token_id in self._by_id and end - start > 1:
                cuts.append(start + 1)
        spans = []
        for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True):
            spans += [(token_id, start + index) for token_id, index in self.encode_spans(text[start:end])]
        return spans

    def decode(self, ids: Sequence[int]) -> str:
        pieces = []
        for is_control, run in groupby(ids, self._by_id.__contains__):
            if is_control:
                pieces += [self._by_id[token_id] for token_id in run]
            else:
                pieces.append(self._tokenizer.decode(list(run), skip_special_tokens=False))
        return "".join(pieces)


def read_model_files(folder: Path) -> ModelFiles:
    """Read template, variables and stop tokens of a model folder; all files are optional."""
    config = _read_optional(folder / "tokenizer_config.json")
    generation = _read_optional(folder / "generation_config.json")
    variables = {name: text for name, value in config.items() if name.endswith("_token") and (text := _text_of(value))}
    eos = generation.get("eos_token_id")
    stops: list[str | int] = [variables["eos_token"]] if "eos_token" in variables else []
    stops += eos if isinstance(eos, list) else [eos] if eos is not None else []
    return ModelFiles(_read_template(folder, config), variables, tuple(stops))


def _read_template(folder: Path, config: JsonObject) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
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
    data = orjson.dumps([definition, sorted(controls.items())], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(data).hexdigest()[:16]


def _load_tokenizer(definition: JsonObject) -> RustTokenizer:
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an optional extra, needed only for model folders
    except ImportError as error:
        raise UserError(
            "reading tokenizer.json requires the package 'tokenizers'", next="pip install 'gymnast[tokens]'"
        ) from error
    return Tokenizer.from_str(orjson.dumps(definition).decode())


def _read_optional(path: Path) -> JsonObject:
    return _read_object(path) if path.is_file() else {}


def _read_object(path: Path) -> JsonObject:
    if not path.is_file():
        raise NotFoundError(
            f"{path.name} not found",
            where=str(path.parent),
            next="pass a folder with tokenizer files",
        )
    try:
        value = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise DataError(f"not JSON: {error}", where=str(path)) from error
    if not isinstance(value, dict):
        raise DataError("not a JSON object", where=str(path))
    return value
