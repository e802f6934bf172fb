"""Mathematics with a known answer: math-verify compares in worker processes; a judge may be asked where it says no."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any, Final

from pydantic import PositiveFloat, PositiveInt, field_validator

from gymnast.errors import CallError
from gymnast.hub.cpu_time import GRACE_S
from gymnast.hub.resources_servers.math_with_judge.excerpt import excerpt
from gymnast.hub.resources_servers.math_with_judge.prompt import SYSTEM, question_of
from gymnast.kit import Attempt, Environment, Task, Verdict
from gymnast.kit.judge import Judge, JudgedSettings
from gymnast.kit.judging import JudgeEvaluation, Labels, shortened
from gymnast.kit.packages import require_package
from gymnast.kit.work_pool import WorkCrashedError, WorkPool, WorkTimeoutError
from gymnast.types.failure import FailureDetail, Stage

if TYPE_CHECKING:
    from gymnast.wire.server import Surroundings

_SCORE: Final = f"{__package__}.library:score"
_EXPRESSION_TOO_MUCH: Final = {-signal.SIGPROF, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS}
"""How a worker ends of what it was given to compare. Anything else (e.g. the system ran out of memory) is a failure."""


class MathSettings(JudgedSettings):
    should_use_judge: bool = True
    """Ask the judge where math-verify says no."""
    library_verifier_timeout_seconds: PositiveFloat = 10.0
    """CPU time for one comparison."""
    library_verifier_max_concurrency: PositiveInt = 32
    """Worker processes at most; never more than there are cores."""


class MathTask(Task):
    question: str
    expected_answer: str

    @field_validator("expected_answer")
    @classmethod
    def _says_something(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("expected_answer is blank: nothing could be right")
        return value


class MathVerdict(Verdict):
    expected_answer: str
    extracted_answer: str | None
    library_reward: float
    judge_evaluations: list[JudgeEvaluation] | None


class MathWithJudge(Environment[MathTask, None]):
    """Scores one answer; there is no session and there are no tools."""

    settings: MathSettings

    def __init__(self, name: str, settings: MathSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        require_package("math_verify", extra="math", where=name)
        self._judge = Judge(self.calls, settings, Labels(), system=SYSTEM)
        cpu_s = settings.library_verifier_timeout_seconds
        size = min(settings.library_verifier_max_concurrency, os.cpu_count() or 1)
        self._workers = WorkPool(_SCORE, size=size, cpu_s=cpu_s + GRACE_S)

    async def stop(self) -> None:
        await self._workers.close()
        await super().stop()

    async def verify(self, attempt: Attempt[MathTask, None]) -> MathVerdict:
        task = attempt.task
        compared = await self._compared(task.expected_answer, excerpt(attempt.text))
        reward = library_reward = float(compared["reward"])
        evaluations = None
        if library_reward <= 0.5 and self.settings.should_use_judge:
            reward, evaluations = await self._judge_says(attempt)
        return MathVerdict(
            reward=reward,
            expected_answer=task.expected_answer,
            extracted_answer=compared["extracted"],
            library_reward=library_reward,
            judge_evaluations=evaluations,
        )

    async def _judge_says(self, attempt: Attempt[MathTask, None]) -> tuple[float, list[JudgeEvaluation]]:
        labels, task = self._judge.labels, attempt.task
        generated = labels.defused(shortened(attempt.text))

        def ask(first: str, second: str) -> str:
            return question_of(task.question, first, second)

        opinions = await self._judge.ask_both_orders(ask, task.expected_answer, generated, attempt.scope)
        agreed = len(opinions) == 2 and all(opinion.label == labels.equal for opinion in opinions)
        return float(agreed), [evaluation for opinion in opinions for evaluation in opinion.evaluations]

    async def _compared(self, expected: str, text: str) -> dict[str, Any]:
        """What math-verify says. An answer that is too much for it is not the expected one."""
        try:
            found: dict[str, Any] = await self._workers.call(
                expected, text, self.settings.library_verifier_timeout_seconds
            )
        except WorkTimeoutError as error:
            raise self._failure("verifier_timeout", f"a worker got too little of a core: {error}") from error
        except WorkCrashedError as error:
            if error.code not in _EXPRESSION_TOO_MUCH:
                raise self._failure("verifier_error", str(error)) from error
            return {"reward": 0.0, "extracted": None}
        return found

    def _failure(self, kind: str, text: str) -> CallError:
        return CallError(FailureDetail(kind, Stage.VERIFY, f"{self.name}: {text}", instance=self.name))
