"""Asking a judge model: one call, n votes, both orders; a slot, a deadline and bounded retries for each.

A judge that cannot be asked, or that says nothing which is a verdict, raises JudgeError: the attempt then has no score
and can be verified again. It is never a wrong answer. What judges use goes onto the attempt's account, told apart.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from pydantic import PositiveFloat, PositiveInt, field_validator

from gymnast.errors import CallError, JudgeError
from gymnast.kit.judging import JudgeEvaluation, Labels, Opinion, majority
from gymnast.kit.settings import ModelRef
from gymnast.kit.task_server import EnvironmentSettings
from gymnast.types.failure import FailureDetail, Stage, bounded, kind_named
from gymnast.types.json import JsonObject
from gymnast.types.responses import message_text
from gymnast.wire.calls import Calls, Scope
from gymnast.wire.trail import Trail
from gymnast.wire.validate import validate_params

_FIRST_DELAY_S: Final = 0.5
_LONGEST_DELAY_S: Final = 10.0


class JudgedSettings(EnvironmentSettings):
    """Settings of every environment that asks a judge."""

    judge_model_server: ModelRef
    judge_responses_create_params: dict[str, Any] = {"input": []}
    """Sampling parameters of the judge's calls; items of `input` come before the question."""
    judge_endpoint_max_concurrency: PositiveInt | None = 64
    """Calls to the judge in flight at most; null does not bound them."""
    judge_votes: PositiveInt = 1
    """How often a question is asked; the majority decides. An odd number."""
    judge_max_tries: PositiveInt = 3
    """Calls for one vote at most: after errors that may pass, and after answers without a verdict."""
    judge_timeout_s: PositiveFloat = 120.0
    """For one call."""
    judge_deadline_s: PositiveFloat = 300.0
    """For one question: waiting for a slot, all votes, all tries."""

    @field_validator("judge_votes")
    @classmethod
    def _odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError("an even number of votes may have no majority: give an odd one")
        return value

    @field_validator("judge_responses_create_params")
    @classmethod
    def _are_params(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(value.get("input", []), list):
            raise ValueError("`input` is a list of items that come before the question")  # noqa: TRY004 - pydantic's way
        validate_params({"input": [], **value})
        return value


class Judge:
    """Asks one judge model on behalf of one environment."""

    def __init__(self, calls: Calls, settings: JudgedSettings, labels: Labels, *, system: str | None = None) -> None:
        self.labels = labels
        self._calls = calls
        self._settings = settings
        self._model = settings.judge_model_server.name
        before = [*settings.judge_responses_create_params.get("input", [])]
        self._before = [*before, {"role": "system", "content": system}] if system else before
        bound = settings.judge_endpoint_max_concurrency
        self._slots = asyncio.Semaphore(bound) if bound is not None else contextlib.nullcontext()

    async def ask(self, question: str, scope: Scope) -> Opinion:
        """The judge's opinion. Raises JudgeError where there is none."""
        message = {"role": "user", "content": question}
        params = {**self._settings.judge_responses_create_params, "input": [*self._before, message]}
        deadline_s, number = self._settings.judge_deadline_s, self._settings.judge_votes
        try:
            with self._calls.clock.deadline(deadline_s):
                voting = [self._vote(params, scope) for _ in range(number)]
                found = await asyncio.gather(*voting, return_exceptions=True)
        except TimeoutError as error:
            raise JudgeError(f"{self._model} gave no verdict within {deadline_s:g} s", cause="judge_timeout") from error
        return self._counted(found)

    async def ask_both_orders(
        self, question_of: Callable[[str, str], str], first: str, second: str, scope: Scope
    ) -> list[Opinion]:
        """Opinions on two things in both orders. The second is only asked for if the first says they are equal."""
        opinions = [await self.ask(question_of(first, second), scope)]
        if opinions[0].label == self.labels.equal:
            opinions.append(await self.ask(question_of(second, first), scope))
        return opinions

    def _counted(self, found: list[JudgeEvaluation | BaseException]) -> Opinion:
        votes = [vote for vote in found if isinstance(vote, JudgeEvaluation)]
        problems = [problem for problem in found if isinstance(problem, BaseException)]
        for problem in problems:
            if not isinstance(problem, JudgeError):
                raise problem
        label = majority([vote.verdict_label or "" for vote in votes], len(found))
        if label is None:
            raise problems[0]  # an odd number of votes for two labels: without a majority some are missing
        return Opinion(label, tuple(votes))

    async def _vote(self, params: JsonObject, scope: Scope) -> JudgeEvaluation:
        """One verdict, with as many tries as there are."""
        for tried in range(1, self._settings.judge_max_tries + 1):
            is_last = tried == self._settings.judge_max_tries
            try:
                async with self._slots:
                    response = await self._call(params, scope)
            except CallError as error:
                if is_last or not kind_named(error.detail.kind).retryable:
                    raise JudgeError(error.detail.message, cause=error.detail.kind) from error
                await asyncio.sleep(_delay_s(error.detail, tried))
                continue
            text = _said(response)
            label = self.labels.first_in(text)
            if label is not None:
                return JudgeEvaluation(responses_create_params=params, response=response, verdict_label=label)
        wanted = f"{self.labels.equal} or {self.labels.not_equal}"
        said = f"{self._model} said neither {wanted} in {tried} tries, at last: {bounded(text[-300:], 300)!r}"
        raise JudgeError(said, cause="judge_unparseable")

    async def _call(self, params: JsonObject, scope: Scope) -> JsonObject:
        """One call, accounted as the judge's. Its rollout id is not the policy's: their tokens must not mix."""
        trail = scope.trail
        own = Trail(captures=trail is not None and trail.captures)
        inner = Scope(f"{scope.rollout_id}-judge" if scope.rollout_id else None, own)
        before = trail.enter(Stage.VERIFY, self._model) if trail is not None else None
        try:
            timeout_s = self._settings.judge_timeout_s
            response = await self._calls.expect(
                self._model, "/v1/responses", params, inner, stage=Stage.MODEL, timeout_s=timeout_s, validated=True
            )
        finally:
            if trail is not None and before is not None:
                trail.leave(before)
                if own.account is not None:
                    trail.open_account().merge_judge(own.account)
        if isinstance(response, dict) and isinstance(response.get("output"), list):
            return response
        text = f"{self._model} answered with something that is no response object"
        raise CallError(FailureDetail("model_bad_reply", Stage.MODEL, text, instance=self._model))


def _said(response: JsonObject) -> str:
    """What a judge says aloud: verdicts it considers while it thinks do not count."""
    return "".join(message_text(item) for item in response["output"] if item.get("type", "message") == "message")


def _delay_s(detail: FailureDetail, tried: int) -> float:
    return min(max(_FIRST_DELAY_S * 2.0 ** (tried - 1), detail.retry_after_s or 0.0), _LONGEST_DELAY_S)
