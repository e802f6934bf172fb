"""Calls a judge model: several votes, both orders, with limits on concurrency, time and tries.

A judge that cannot be reached, or whose response has no verdict, raises JudgeError: the attempt then has no score and
can be verified again. That is never a wrong answer. A judge's usage is recorded with the attempt, separately.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from pydantic import PositiveFloat, PositiveInt, field_validator

from gymnast.config.server_settings import ModelRef
from gymnast.errors import UNPARSEABLE, CallError, JudgeError
from gymnast.kit.agent_calls import call_model
from gymnast.kit.judge_prompt import JudgeEvaluation, Labels, Opinion, majority
from gymnast.kit.quoting import Quoter
from gymnast.kit.task_server import EnvironmentSettings
from gymnast.types.failure import FailureDetail, Stage, bounded, kind_named
from gymnast.types.json import JsonObject
from gymnast.types.responses import message_text
from gymnast.wire.calls import Calls, Scope
from gymnast.wire.progress import AttemptProgress
from gymnast.wire.validate import validate_params

_FIRST_DELAY_S: Final = 0.5
_MAX_DELAY_S: Final = 10.0
VerdictT = TypeVar("VerdictT")
VerdictPlace = Literal["last_line", "first_label"]
"""Where a judge's verdict is: the label that ends its text, or the first one in it, as NeMo Gym reads it."""


class JudgedSettings(EnvironmentSettings):
    """Settings of every environment with a judge."""

    judge_model_server: ModelRef
    judge_responses_create_params: dict[str, Any] = {"input": []}
    """Sampling parameters of the judge's calls; items of `input` precede the question."""
    judge_endpoint_max_concurrency: PositiveInt | None = 64
    """Maximum number of calls to the judge in flight; null for no limit."""
    judge_votes: PositiveInt = 1
    """Votes per question, an odd number; the majority decides."""
    judge_max_tries: PositiveInt = 3
    """Maximum number of calls per vote: retries follow transient errors and responses without a verdict."""
    judge_timeout_s: PositiveFloat = 120.0
    """Timeout of one call."""
    judge_deadline_s: PositiveFloat = 300.0
    """Time limit per question: waiting for a slot, all votes, all tries."""

    @field_validator("judge_votes")
    @classmethod
    def _check_votes(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError("must be odd: an even number of votes may have no majority")
        return value

    @field_validator("judge_responses_create_params")
    @classmethod
    def _check_params(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(value.get("input", []), list):
            raise ValueError("`input` must be a list of items, which precede the question")  # noqa: TRY004 - pydantic's way
        validate_params({"input": [], **value})
        return value


@dataclass(frozen=True, slots=True)
class JudgeLimits:
    """The limits of the calls to a judge's model."""

    max_concurrency: int | None
    max_tries: int
    """Calls per verdict: retries follow transient errors and responses without a verdict."""
    timeout_s: float
    """Timeout of one call."""
    pause_s: float = 0.0
    """Pause before a retry that follows a response without a verdict."""


class JudgeModel:
    """A judge's model: calls within limits, retried, and recorded as the judge's."""

    def __init__(self, calls: Calls, name: str, limits: JudgeLimits) -> None:
        self.name = name
        self._calls = calls
        self._limits = limits
        limit = limits.max_concurrency
        self._slots = asyncio.Semaphore(limit) if limit is not None else contextlib.nullcontext()

    async def ask(
        self, params: JsonObject, scope: Scope, read: Callable[[JsonObject], VerdictT | None], wanted: str
    ) -> tuple[VerdictT, JsonObject]:
        """What `read` finds in a response, and the response. Raises JudgeError if there is nothing `wanted`."""
        for tries in range(1, self._limits.max_tries + 1):
            is_last = tries == self._limits.max_tries
            try:
                async with self._slots:
                    response = await self._call(params, scope)
            except CallError as error:
                if is_last or not kind_named(error.detail.kind).retryable:
                    raise JudgeError(error.detail.message, cause=error.detail.kind) from error
                await asyncio.sleep(_delay_s(error.detail, tries))
                continue
            self._check_fits(response)
            verdict = read(response)
            if verdict is not None:
                return verdict, response
            if not is_last and self._limits.pause_s:
                await asyncio.sleep(self._limits.pause_s)
        end = bounded(_visible_text(response)[-300:], 300)
        message = f"no {wanted} from {self.name} in {tries} tries; the last response ends: {end!r}"
        raise JudgeError(message, cause=UNPARSEABLE)

    def _check_fits(self, response: JsonObject) -> None:
        overflow = (response.get("incomplete_details") or {}).get("message")
        if overflow is not None and not _visible_text(response).strip():
            message = f"the question does not fit into the context of {self.name}: {overflow}"
            raise JudgeError(message, cause="judge_context_overflow")

    async def _call(self, params: JsonObject, scope: Scope) -> JsonObject:
        """One call. Its rollout id differs from the policy's, to keep their tokens apart."""
        progress = scope.progress
        own = AttemptProgress(captures=progress is not None and progress.captures)
        inner = Scope(f"{scope.rollout_id}-judge" if scope.rollout_id else None, own)
        own.spans = progress.spans if progress is not None else None
        before = progress.enter(Stage.VERIFY, self.name) if progress is not None else None
        try:
            response: JsonObject = await call_model(self._calls, self.name, params, inner, self._limits.timeout_s)
            return response
        finally:
            if progress is not None and before is not None:
                progress.leave(before)
                if own.usage_counter is not None:
                    progress.ensure_usage_counter().merge_judge(own.usage_counter)


class Judge:
    """One judge model, as used by one environment."""

    def __init__(
        self,
        calls: Calls,
        settings: JudgedSettings,
        labels: Labels,
        *,
        system: str | None = None,
        verdict: VerdictPlace = "last_line",
        find_label: Callable[[JsonObject], str | None] | None = None,
    ) -> None:
        """`verdict`: where the label of the judge's text is. `find_label` reads it from the response in another way."""
        self.labels = labels
        self.quoter = Quoter((labels.equal, labels.not_equal))
        read = labels.find_final if verdict == "last_line" else labels.find_first
        self._find_label = find_label or (lambda response: read(_visible_text(response)))
        self._calls = calls
        self._settings = settings
        self._model = JudgeModel(
            calls,
            settings.judge_model_server.name,
            JudgeLimits(settings.judge_endpoint_max_concurrency, settings.judge_max_tries, settings.judge_timeout_s),
        )
        prefix = [*settings.judge_responses_create_params.get("input", [])]
        self._prefix = [*prefix, {"role": "system", "content": system}] if system else prefix

    def quote(self, text: str) -> str:
        """A text for the judge's prompt, as a quotation that cannot be taken for the prompt; see QUOTE_NOTICE."""
        return self.quoter.quote(text)

    async def ask(self, question: str, scope: Scope) -> Opinion:
        """The judge's opinion. Raises JudgeError if there is none."""
        message = {"role": "user", "content": question}
        params = {**self._settings.judge_responses_create_params, "input": [*self._prefix, message]}
        deadline_s = self._settings.judge_deadline_s
        try:
            with self._calls.clock.deadline(deadline_s):
                pending = [self._vote(params, scope) for _ in range(self._settings.judge_votes)]
                results = await asyncio.gather(*pending, return_exceptions=True)
        except TimeoutError as error:
            raise JudgeError(
                f"{self._model.name} gave no verdict within {deadline_s:g} s", cause="judge_timeout"
            ) from error
        return self._tally(results)

    async def ask_both_orders(
        self, question_of: Callable[[str, str], str], first: str, second: str, scope: Scope
    ) -> list[Opinion]:
        """Opinions on two texts in both orders. The second order is only judged if the first finds them equal."""
        opinions = [await self.ask(question_of(first, second), scope)]
        if opinions[0].label == self.labels.equal:
            opinions.append(await self.ask(question_of(second, first), scope))
        return opinions

    def _tally(self, results: list[JudgeEvaluation | BaseException]) -> Opinion:
        votes = [vote for vote in results if isinstance(vote, JudgeEvaluation)]
        errors = [error for error in results if isinstance(error, BaseException)]
        for error in errors:
            if not isinstance(error, JudgeError):
                raise error
        label = majority([vote.verdict_label or "" for vote in votes], len(results))
        if label is None:
            raise errors[0]  # with two labels and an odd number of votes, no majority means that votes are missing
        return Opinion(label, tuple(votes))

    async def _vote(self, params: JsonObject, scope: Scope) -> JudgeEvaluation:
        wanted = f"{self.labels.equal} or {self.labels.not_equal}"
        label, response = await self._model.ask(params, scope, self._find_label, wanted)
        return JudgeEvaluation(responses_create_params=params, response=response, verdict_label=label)


def _visible_text(response: JsonObject) -> str:
    """The judge's text without its reasoning: verdicts it considers there do not count."""
    return "".join(message_text(item) for item in response["output"] if item.get("type", "message") == "message")


def _delay_s(detail: FailureDetail, tries: int) -> float:
    return min(max(_FIRST_DELAY_S * 2.0 ** (tries - 1), detail.retry_after_s or 0.0), _MAX_DELAY_S)
