"""Pairwise comparison: a generative reward model compares the rollouts of a prompt with each other.

A rollout is compared with the other rollouts of its prompt as they arrive, and waits until all are compared. The wait
is bounded: if some do not arrive in time, or cannot, those that did fail, or are compared with each other.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gymnast.kit import (
    Attempt,
    Environment,
    InvalidBody,
    JsonObject,
    JudgeError,
    Request,
    Scope,
    ServerContext,
    Task,
    Verdict,
    error_detail,
    require_object,
)

from .aggregation import aggregate, metrics_of
from .cohort import Cohort, Comparison, Member
from .judging import GenRMJudge, JudgedPair, Prompt
from .scores import Scores
from .settings import GenRMCompareSettings
from .texts import history, history_as_nemo_gym, without_untyped

_RECHECK_S: Final = 5.0
"""How often a rollout whose time is up looks whether its cohort, full by then, has lost a member."""

_REPLACED: Final = "a newer attempt with the same _ng_task_index and _ng_rollout_index took its place"


class GenRMCompareTask(Task):
    model_config = ConfigDict(populate_by_name=True)
    principle: str | None = None
    task_index: int | None = Field(default=None, alias="_ng_task_index")
    rollout_index: int | None = Field(default=None, alias="_ng_rollout_index")
    prompt_id: str | None = None
    compare_with: list[str] | None = None
    """Fixed responses that take part in the comparison."""

    @property
    def identity(self) -> Hashable | None:
        """The rollout, if the row says which it is."""
        return None if self.task_index is None or self.rollout_index is None else (self.task_index, self.rollout_index)


class ComparisonResult(BaseModel):
    """Two responses, by their numbers in the cohort or the request, and the judge's scores."""

    response_i: int
    response_j: int
    judge_idx: int
    score_1: float
    score_2: float
    ranking: float


class GenRMCompareVerdict(Verdict):
    cohort_size: int
    """The responses that were compared, fixed ones included."""
    cohort_index: int
    comparison_results: list[ComparisonResult]
    """The comparisons of this rollout."""
    num_default_comparisons: int
    """How many of them have default scores, because the judge gave none."""


class CompareRequest(BaseModel):
    conversation_history: list[dict[str, str]]
    response_objs: list[dict[str, Any]]
    principle: str | None = None


class GenRMCompare(Environment[GenRMCompareTask, None]):
    """Scores rollouts by comparison; no session, no tools."""

    settings: GenRMCompareSettings

    def __init__(self, name: str, settings: GenRMCompareSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._judge = GenRMJudge(settings, context)
        self._open: dict[Hashable, Cohort] = {}
        """Cohorts that miss members, by prompt."""
        self._unsettled: set[Cohort] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self.route("POST", "/compare", self._compare)

    async def stop(self) -> None:
        for task in self._ending:
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)
        for cohort in list(self._unsettled):
            self._fail(cohort, JudgeError("the environment was stopped", cause="cohort_incomplete"))
        await super().stop()

    async def verify(self, attempt: Attempt[GenRMCompareTask, None]) -> GenRMCompareVerdict:
        fixed = [Member(_as_response(text)) for text in attempt.task.compare_with or ()]
        size = max(1, self.settings.num_rollouts_per_prompt)
        if size + len(fixed) < 2:
            return _verdict(self.settings.default_score, 1, 0, {})
        member = Member(attempt.response, attempt.task.identity, asyncio.get_running_loop().create_future())
        key = _key_of(attempt)
        cohort = self._join(key, member, lambda: self._make_cohort(attempt, size, fixed))
        try:
            await self._judge_all(cohort, cohort.comparisons_with(member), attempt.scope)
            if cohort in self._unsettled and cohort.is_compared:
                self._settle(cohort)
            outcome = await self._wait(key, cohort, member, attempt.scope)
        finally:
            self._leave(key, cohort, member)
        if isinstance(outcome, JudgeError):
            raise outcome
        return outcome

    # --- cohorts -----------------------------------------------------------------------------------------------------

    def _make_cohort(self, attempt: Attempt[GenRMCompareTask, None], size: int, fixed: list[Member]) -> Cohort:
        settings, value = self.settings, attempt.params["input"]
        messages = history(value) if settings.scoring == "strict" else history_as_nemo_gym(value)
        prompt = Prompt(messages, attempt.task.principle)
        return Cohort(prompt, size, fixed, settings.comparison_strategy, settings.num_judges_per_comparison)

    def _join(self, key: Hashable, member: Member, make: Callable[[], Cohort]) -> Cohort:
        cohort = self._open.get(key)
        if cohort is None:
            cohort = self._open[key] = make()
            self._unsettled.add(cohort)
        older = cohort.join(member)
        if older is not None:
            older.end(JudgeError(_REPLACED, cause="cohort_replaced"))
        if cohort.is_full:
            del self._open[key]
        return cohort

    def _leave(self, key: Hashable, cohort: Cohort, member: Member) -> None:
        """Free the place of a rollout that was cancelled. A cohort that was full waits for another again."""
        if cohort not in self._unsettled:
            return
        cohort.leave(member)
        if not cohort.present:
            self._unsettled.discard(cohort)
            if self._open.get(key) is cohort:
                del self._open[key]
        elif not cohort.is_over and not cohort.is_full:
            self._open.setdefault(key, cohort)

    async def _wait(
        self, key: Hashable, cohort: Cohort, member: Member, scope: Scope
    ) -> GenRMCompareVerdict | JudgeError:
        def end(why: str) -> None:
            self._end_waits(key, cohort, scope, why)

        if scope.progress is not None:
            scope.progress.end_wait = lambda: end("and no other rollout of the run can come")
        timeout_s = self.settings.cohort_timeout_s
        try:
            while not await member.wait(timeout_s):
                end(f"within {self.settings.cohort_timeout_s:g} s")
                timeout_s = _RECHECK_S
        finally:
            if scope.progress is not None:
                scope.progress.end_wait = None
        outcome: GenRMCompareVerdict | JudgeError = member.outcome
        return outcome

    def _end_waits(self, key: Hashable, cohort: Cohort, scope: Scope, why: str) -> None:
        """Continue without the rollouts that did not arrive. Does nothing if all have."""
        if cohort.is_full or cohort.is_over or cohort not in self._unsettled:
            return
        cohort.is_over = True
        if self._open.get(key) is cohort:
            del self._open[key]
        if self.settings.incomplete_cohorts == "compare" and len(cohort.present) + len(cohort.fixed) > 1:
            self.log.warning(
                "%d of %d rollouts of a prompt came %s: comparing them", len(cohort.present), cohort.size, why
            )
            task = asyncio.create_task(self._compare_present(cohort, scope))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        else:
            text = f"{len(cohort.present)} of {cohort.size} rollouts of this prompt came {why}"
            hint = "collect num_rollouts_per_prompt rollouts of each row, or set incomplete_cohorts: compare"
            self._fail(cohort, JudgeError(f"{text}; {hint}", cause="cohort_incomplete"))

    async def _compare_present(self, cohort: Cohort, scope: Scope) -> None:
        try:
            cohort.drop_empty_slots()
            while missing := [comparison for comparison in cohort.plan() if comparison not in cohort.outcomes]:
                await self._judge_all(cohort, missing, scope)
                cohort.drop_empty_slots()
            if cohort in self._unsettled:
                self._settle(cohort)
        except BaseException as error:
            self._fail(cohort, JudgeError(f"comparing failed: {error!r}", cause="cohort_incomplete"))
            raise

    def _fail(self, cohort: Cohort, error: JudgeError) -> None:
        self._unsettled.discard(cohort)
        for member in cohort.present:
            member.end(JudgeError(str(error), cause=error.cause))

    def _settle(self, cohort: Cohort) -> None:
        """Give every member its reward, or the failure of the judge."""
        errors = [result for result in cohort.results().values() if isinstance(result, JudgeError)]
        if errors:
            self._fail(cohort, errors[0])
            return
        judged = {key: result for key, result in cohort.results().items() if isinstance(result, JudgedPair)}
        rewards = self._rewards(judged, [member.response for member in cohort.members])
        self._unsettled.discard(cohort)
        for at, member in enumerate(cohort.members):
            member.end(_verdict(rewards[at], len(cohort.members), at, judged))

    # --- comparing ---------------------------------------------------------------------------------------------------

    async def _judge_all(self, cohort: Cohort, comparisons: Iterable[Comparison], scope: Scope) -> None:
        async def judge(comparison: Comparison) -> None:
            first, second = comparison.first.response, comparison.second.response
            try:
                cohort.outcomes[comparison] = await self._judge.compare(cohort.prompt, first, second, scope)
            except JudgeError as error:
                cohort.outcomes[comparison] = error

        await asyncio.gather(*map(judge, comparisons))

    def _rewards(self, judged: Mapping[tuple[int, int, int], JudgedPair], responses: list[Any]) -> list[float]:
        scores = {key: result.scores for key, result in judged.items()}
        rewards = aggregate(scores, responses, self.settings.default_score, self.settings.bonuses)
        if self.settings.debug_logging:
            self.log.info("comparisons %s, rewards %s", scores, rewards)
        return rewards

    async def _compare(self, request: Request) -> JsonObject:
        """Compare the responses of a request, without waiting for anything."""
        try:
            body = CompareRequest.model_validate(require_object(request.body))
        except ValidationError as error:
            raise InvalidBody(error_detail(error)) from error
        if len(body.response_objs) < 2:
            return {"rewards": [self.settings.default_score], "comparison_results": None, "metrics": None}
        settings, responses = self.settings, body.response_objs
        if settings.scoring != "strict":
            responses = list(map(without_untyped, responses))
        members = [Member(response) for response in responses]
        prompt = Prompt(body.conversation_history, body.principle)
        cohort = Cohort(prompt, len(members), (), settings.comparison_strategy, settings.num_judges_per_comparison)
        for member in members:
            cohort.join(member)
        await self._judge_all(cohort, cohort.plan(), Scope(request.rollout_id, request.progress))
        judged = {}
        for key, result in cohort.results().items():
            if isinstance(result, JudgeError):
                raise result
            judged[key] = result
        scores = {key: result.scores for key, result in judged.items()}
        return {
            "rewards": self._rewards(judged, responses),
            "comparison_results": [result.model_dump() for result in _results(scores)],
            "metrics": metrics_of(scores),
        }


def _key_of(attempt: Attempt[GenRMCompareTask, None]) -> Hashable:
    """The prompt: of rows without an index or an id, those with the same input and principle are rollouts of one."""
    task = attempt.task
    content = orjson.dumps([attempt.params["input"], task.principle, task.compare_with], option=orjson.OPT_SORT_KEYS)
    name = ("task", task.task_index) if task.task_index is not None else ("prompt", task.prompt_id)
    return (*name, hashlib.sha256(content).digest())


def _as_response(text: str) -> JsonObject:
    return {"output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}]}


def _results(scores: Mapping[tuple[int, int, int], Scores]) -> list[ComparisonResult]:
    return [
        ComparisonResult(response_i=first, response_j=second, judge_idx=vote, **result._asdict())
        for (first, second, vote), result in scores.items()
    ]


def _verdict(
    reward: float, size: int, index: int, judged: Mapping[tuple[int, int, int], JudgedPair]
) -> GenRMCompareVerdict:
    own = {key: result for key, result in judged.items() if index in key[:2]}
    return GenRMCompareVerdict(
        reward=reward,
        cohort_size=size,
        cohort_index=index,
        comparison_results=_results({key: result.scores for key, result in own.items()}),
        num_default_comparisons=sum(result.is_default for result in own.values()),
    )
