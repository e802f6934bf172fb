"""Texts of token ids, from the tokenizer that made them, if it is on this machine.

A tokenizer is used only if its renderer has the digest that the ledger recorded: text of another one would be wrong.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import GymnastError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gymnast.store.manifest import Manifest
    from gymnast.tokens.template import TemplateRenderer
    from gymnast.tokens.tokenizer import Tokenizer

_EMBEDDED: Final = "gymnast-embedded"


class TokenTexts:
    """Decodes ids, and collects the texts of those that were used since `take` was last called."""

    def __init__(self, manifest: Manifest | None) -> None:
        self._manifest = manifest
        self._tokenizers: dict[str, Tokenizer | None] = {}
        self._current: Tokenizer | None = None
        self._texts: dict[int, str] = {}
        self._used: dict[int, str] = {}

    def can_decode(self, renderer: str, model: str) -> bool:
        """Select the tokenizer of a ledger, by the digest of its renderer."""
        if renderer not in self._tokenizers:
            self._tokenizers[renderer] = self._find(renderer, model) if renderer else None
        tokenizer = self._tokenizers[renderer]
        if tokenizer is not None and self._current not in (None, tokenizer):
            return False  # one page of ids has the texts of one tokenizer
        self._current = tokenizer or self._current
        return tokenizer is not None

    def add(self, runs: Iterable[Sequence[Any]]) -> None:
        """Add the texts of these ids."""
        assert self._current is not None
        for token in {token for ids in runs for token in ids if isinstance(token, int)} - self._used.keys():
            if token not in self._texts:
                self._texts[token] = self._current.decode([token])
            self._used[token] = self._texts[token]

    def take(self) -> dict[int, str]:
        """The texts used so far; starts over."""
        used, self._used = self._used, {}
        return used

    def _find(self, digest: str, model: str) -> Tokenizer | None:
        for load in self._candidates(model):
            # A tokenizer that cannot be loaded any more only means that ids stay numbers.
            with suppress(GymnastError, OSError, ValueError, LookupError, ImportError):
                renderer = load()
                if renderer.digest == digest:
                    return renderer.tokenizer
        return None

    def _candidates(self, model: str) -> Iterable[Callable[[], TemplateRenderer]]:
        # Most reports decode no ids, and these imports take longer than a small report.
        from gymnast.builtin.responses_api_models.embedded_model.app import make_renderer  # noqa: PLC0415
        from gymnast.builtin.responses_api_models.embedded_model.policy import read_policy  # noqa: PLC0415
        from gymnast.tokens.load import load_renderer  # noqa: PLC0415

        if model == _EMBEDDED:
            yield lambda: make_renderer(read_policy())
        instances = self._manifest.settings.values() if self._manifest is not None else ()
        for instance in instances:
            settings = instance.get("settings") if isinstance(instance, dict) else None
            folder = settings.get("tokenizer") if isinstance(settings, dict) else None
            if isinstance(folder, str):
                yield lambda folder=folder, settings=settings: load_renderer(  # type: ignore[misc]
                    folder, chat_template=settings.get("chat_template"), family=settings.get("model_family")
                )
