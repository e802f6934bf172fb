"""Rows, replies and what each scoring says of them: a reward that NeMo Gym gives is the reward that we give.

A line of `scoring_cases/ENVIRONMENT.jsonl` has the row's fields, the output (or the turns of an episode, of which the
last step's reply is compared, or the outputs of a cohort of rollouts), the server's settings where they matter,
fields of the response next to its output, what `nemo_gym` and `strict` scoring answer (the latter where it differs, and
why). `status` stands for a refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from itertools import cycle, groupby
from pathlib import Path
from typing import Any, Final

import pytest

from gymnast.builtin.resources_servers.blackjack.app import Blackjack, BlackjackSettings
from gymnast.builtin.resources_servers.calendar.app import Calendar, CalendarSettings
from gymnast.builtin.resources_servers.code_gen.app import CodeGen, CodeGenSettings
from gymnast.builtin.resources_servers.equivalence_llm_judge.app import EquivalenceJudge, EquivalenceSettings
from gymnast.builtin.resources_servers.example_multi_step.app import ExampleMultiStep, MultiStepSettings
from gymnast.builtin.resources_servers.example_multi_turn_gymnasium.app import ExampleMultiTurn, MultiTurnSettings
from gymnast.builtin.resources_servers.genrm_compare.app import GenRMCompare
from gymnast.builtin.resources_servers.genrm_compare.settings import GenRMCompareSettings
from gymnast.builtin.resources_servers.google_search.app import GoogleSearch, GoogleSearchSettings
from gymnast.builtin.resources_servers.imo_gradingbench.app import ImoGradingBench, ImoGradingBenchSettings
from gymnast.builtin.resources_servers.instruction_following.app import (
    InstructionFollowing,
    InstructionFollowingSettings,
)
from gymnast.builtin.resources_servers.math_with_code.app import MathWithCode, MathWithCodeSettings
from gymnast.builtin.resources_servers.math_with_judge.app import MathSettings, MathWithJudge
from gymnast.builtin.resources_servers.mcqa.app import MCQA, MCQASettings
from gymnast.builtin.resources_servers.multichallenge.app import MultiChallenge, MultiChallengeSettings
from gymnast.builtin.resources_servers.reasoning_gym.app import ReasoningGym, ReasoningGymSettings
from gymnast.builtin.resources_servers.ruler.app import Ruler, RulerSettings
from gymnast.builtin.resources_servers.single_step_tool_use_with_argument_comparison.app import (
    SingleStepSettings,
    SingleStepToolUse,
)
from gymnast.builtin.resources_servers.structured_outputs.app import StructuredOutputs, StructuredOutputsSettings
from gymnast.builtin.resources_servers.swerl_gen.app import SwerlGen, SwerlGenSettings
from gymnast.builtin.resources_servers.text_to_sql.app import TextToSql, TextToSqlSettings
from gymnast.builtin.resources_servers.workplace_assistant.app import WorkplaceAssistant, WorkplaceSettings
from gymnast.wire.calls import Scope
from gymnast.wire.message import Reply
from tests.helpers.environments import Subject, response, said, started
from tests.helpers.jsonl import read_jsonl
from tests.helpers.judges import judged
from tests.helpers.parts import needs

FOLDER: Final = Path(__file__).parent / "scoring_cases"
PARAMS: Final[dict[str, Any]] = {"responses_create_params": {"input": []}}
NO_JUDGE: Final[dict[str, Any]] = {
    "judge_model_server": {"type": "responses_api_models", "name": "judge"},
    "should_use_judge": False,
    "library_verifier_max_concurrency": 1,
}
JUDGE_REF: Final[dict[str, Any]] = {"judge_model_server": NO_JUDGE["judge_model_server"], "judge_max_tries": 1}
Opener = Callable[[dict[str, Any]], AbstractAsyncContextManager[Subject]]


def _judged(server_class: Any, settings_class: Any, defaults: dict[str, Any] = JUDGE_REF) -> Opener:
    """An environment whose judge gives the replies in the settings' `judge`, over and over."""

    def open_judged(settings: dict[str, Any]) -> AbstractAsyncContextManager[Subject]:
        replies = cycle(settings.get("judge", ["[[A=B]]"]))
        own = {name: value for name, value in settings.items() if name != "judge"}
        return judged(server_class, settings_class(**{**defaults, **own}), lambda _: next(replies))

    return open_judged


def _with_rubric(settings: dict[str, Any]) -> AbstractAsyncContextManager[Subject]:
    """A judge that is asked nothing but the rubric's questions; the settings' `judge` has its answers."""
    own = {name: value for name, value in settings.items() if name != "judge"}
    known = {"judge_prompt_template": "{question}", **JUDGE_REF, **own}
    return judged(MultiChallenge, MultiChallengeSettings(**known), lambda call: settings["judge"][call.user_text])


def _comparing(settings: dict[str, Any]) -> AbstractAsyncContextManager[Subject]:
    """A judge who always says the settings' `judge`, or what that has for `FIRST | SECOND` response, or for `*`."""
    judge = settings["judge"]
    own = {name: value for name, value in settings.items() if name != "judge"}
    defaults = {"genrm_parse_retries": 0, "num_rollouts_per_prompt": 2, "genrm_responses_create_params": {"input": []}}
    known = {"genrm_model_server": JUDGE_REF["judge_model_server"], **defaults, **own}

    def compare(call: Any) -> str:
        if isinstance(judge, str):
            return judge
        shown = " | ".join(call.params["metadata"][name] for name in ("response_1", "response_2"))
        return str(judge.get(shown, judge.get("*")))

    return judged(GenRMCompare, GenRMCompareSettings(**known), compare)


ENVIRONMENTS: dict[str, Opener] = {
    "blackjack": lambda settings: started(Blackjack, BlackjackSettings(**settings)),
    "calendar": lambda settings: started(Calendar, CalendarSettings(**settings)),
    "code_gen": lambda settings: started(CodeGen, CodeGenSettings(**settings)),
    "equivalence_llm_judge": _judged(EquivalenceJudge, EquivalenceSettings),
    "example_multi_step": lambda settings: started(ExampleMultiStep, MultiStepSettings(**settings)),
    "example_multi_turn_gymnasium": lambda settings: started(ExampleMultiTurn, MultiTurnSettings(**settings)),
    "genrm_compare": _comparing,
    "imo_gradingbench": lambda settings: started(ImoGradingBench, ImoGradingBenchSettings(**settings)),
    "google_search": lambda settings: started(GoogleSearch, GoogleSearchSettings(**settings)),
    "instruction_following": lambda settings: started(
        InstructionFollowing, InstructionFollowingSettings(verify_processes=1, **settings)
    ),
    "math_with_code": lambda settings: started(MathWithCode, MathWithCodeSettings(**settings)),
    "math_with_judge": _judged(MathWithJudge, MathSettings, {**JUDGE_REF, **NO_JUDGE}),
    "mcqa": lambda settings: started(MCQA, MCQASettings(verify_processes=1, **settings)),
    "multichallenge": _with_rubric,
    "reasoning_gym": lambda settings: started(ReasoningGym, ReasoningGymSettings(verify_processes=1, **settings)),
    "ruler": lambda settings: started(Ruler, RulerSettings(**settings)),
    "single_step_tool_use_with_argument_comparison": lambda settings: started(
        SingleStepToolUse, SingleStepSettings(**settings)
    ),
    "structured_outputs": lambda settings: started(
        StructuredOutputs, StructuredOutputsSettings(verify_processes=1, **settings)
    ),
    "swerl_gen": lambda settings: started(SwerlGen, SwerlGenSettings(**settings)),
    "text_to_sql": _judged(TextToSql, TextToSqlSettings),
    "workplace_assistant": lambda settings: started(WorkplaceAssistant, WorkplaceSettings(**settings)),
}
PARTS: Final = {
    "code_gen": "bubblewrap",
    "math_with_code": "bubblewrap",
    "reasoning_gym": "reasoning-gym",
    "swerl_gen": "bubblewrap",
}
CONCURRENT: Final = {"swerl_gen": 3}
"""How many cases are scored at the same time where each takes a second; judges need their order."""
ENOUGH: Final = 60


def _with_marks(name: str) -> Any:
    return pytest.param(name, marks=needs(PARTS[name])) if name in PARTS else name


def test_every_file_has_its_environment_and_enough_cases() -> None:
    files = {path.stem: len(read_jsonl(path)) for path in FOLDER.glob("*.jsonl")}
    assert files.keys() == ENVIRONMENTS.keys()
    assert {name: count for name, count in files.items() if count < ENOUGH} == {}


def test_a_difference_of_the_scorings_is_explained() -> None:
    for path in FOLDER.glob("*.jsonl"):
        assert [case for case in read_jsonl(path) if ("strict" in case) != ("why" in case)] == [], path.name


@pytest.mark.parametrize("scoring", ["nemo_gym", "strict"])
@pytest.mark.parametrize("name", [*map(_with_marks, ENVIRONMENTS)])
async def test_scoring(name: str, scoring: str) -> None:
    wrong = []
    for settings, cases in groupby(read_jsonl(FOLDER / f"{name}.jsonl"), key=lambda case: case.get("settings", {})):
        async with ENVIRONMENTS[name]({**settings, "scoring": scoring}) as subject:
            slots = asyncio.Semaphore(CONCURRENT.get(name, 1))
            for case, found in await asyncio.gather(*[_score(subject, case, slots) for case in cases]):
                wanted = case.get(scoring, case["nemo_gym"])
                if {field: found.get(field) for field in wanted} != wanted:
                    wrong.append((case, found))
    assert wrong == []


def _find_way(case: dict[str, Any]) -> Callable[[Subject, dict[str, Any]], Awaitable[dict[str, Any]]]:
    if "cohort" in case:
        return _compare
    return _play if "turns" in case else _answer


async def _compare(subject: Subject, case: dict[str, Any]) -> dict[str, Any]:
    """The rewards of rollouts that come in this order, or the failure of all."""
    bodies = [
        {**PARAMS, **case["row"], "_ng_rollout_index": at, "response": _response(output)}
        for at, output in enumerate(case["cohort"])
    ]
    replies = await asyncio.gather(*[subject.calls.call("env", "/verify", body) for body in bodies])
    found = [_read(reply) for reply in replies]
    if len({reply.get("_ng_failure_class") for reply in found}) == 1 and "_ng_failure_class" in found[0]:
        return found[0]
    return {"rewards": [reply["reward"] for reply in found]}


async def _score(subject: Subject, case: dict[str, Any], slots: asyncio.Semaphore) -> tuple[Any, dict[str, Any]]:
    async with slots:
        return case, await _find_way(case)(subject, case)


async def _answer(subject: Subject, case: dict[str, Any]) -> dict[str, Any]:
    body = {**PARAMS, **case["row"], "response": {**_response(case["output"]), **case.get("response", {})}}
    return _read(await subject.calls.call("env", "/verify", body))


async def _play(subject: Subject, case: dict[str, Any]) -> dict[str, Any]:
    row, scope = {**PARAMS, **case["row"]}, Scope()
    found = _read(await subject.calls.call("env", "/reset", row, scope))
    for turn in case["turns"]:
        body = {**row, "response": _response(turn if isinstance(turn, list) else [turn])}
        found = _read(await subject.calls.call("env", "/step", body, scope))
        if found.get("terminated") or "status" in found:
            break
    return found


def _response(output: list[Any]) -> dict[str, Any]:
    return response(*[said(item) if isinstance(item, str) else item for item in output])


def _read(reply: Reply) -> dict[str, Any]:
    if reply.status != 200:
        return {"status": reply.status}
    found: dict[str, Any] = reply.body
    return found
