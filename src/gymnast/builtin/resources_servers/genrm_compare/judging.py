"""Calls the generative reward model for one pair of responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gymnast.kit import JsonObject, JudgeError, JudgeLimits, JudgeModel, Quoter, Scope, ServerContext

from .scores import Scores, read_exact_scores, read_scores
from .settings import GenRMCompareSettings
from .texts import answer_for_judge

_WANTED: Final = "scores as JSON"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is the same in all comparisons of a cohort."""

    messages: Sequence[dict[str, str]]
    principle: str | None


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """The outcome of a comparison."""

    scores: Scores
    is_default: bool = False
    """The judge gave no scores: these are the settings' defaults."""


class GenRMJudge:
    """The judge. The two responses are in the request's metadata, which genrm_model turns into messages."""

    def __init__(self, settings: GenRMCompareSettings, context: ServerContext) -> None:
        self._settings = settings
        limits = JudgeLimits(
            settings.genrm_endpoint_max_concurrency,
            settings.genrm_parse_retries + 1,
            settings.genrm_timeout_s,
            settings.genrm_parse_retry_sleep_s,
        )
        self._model = JudgeModel(context.calls, settings.genrm_model_server.name, limits)
        self._quoter = Quoter(f'"{name}"' for name in Scores._fields)
        self._defaults = Scores(settings.default_score, settings.default_score, settings.default_ranking)

    async def compare(self, prompt: Prompt, first: Any, second: Any, scope: Scope) -> JudgedPair:
        """Compare two responses. Raises JudgeError if the judge fails; without scores, only under strict scoring."""
        is_strict = self._settings.scoring == "strict"
        try:
            scores, _ = await self._model.ask(self._params(prompt, first, second), scope, self._read, _WANTED)
        except JudgeError as error:
            if is_strict or not error.is_unparseable:
                raise
            return JudgedPair(self._defaults, is_default=True)
        return JudgedPair(scores)

    def _params(self, prompt: Prompt, first: Any, second: Any) -> JsonObject:
        settings = self._settings
        metadata = {"response_1": self._show(first), "response_2": self._show(second)}
        if settings.use_principle:
            metadata["principle"] = prompt.principle or settings.default_principle
        messages = [{"role": "user", "content": "", **message, "type": "message"} for message in prompt.messages]
        return {**settings.genrm_responses_create_params, "input": messages, "metadata": metadata}

    def _show(self, response: Any) -> str:
        """An answer is a message with its own role: it needs no marks, but must not contain scores or other roles."""
        answer = answer_for_judge(response)
        return self._quoter.disarm(answer) if self._settings.scoring == "strict" else answer

    def _read(self, response: JsonObject) -> Scores | None:
        if self._settings.scoring == "strict":
            return read_exact_scores(answer_for_judge(response))
        return read_scores(answer_for_judge(response, untyped=""), self._defaults)
