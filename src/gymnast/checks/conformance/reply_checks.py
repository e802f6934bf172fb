"""Checks of untrusted input: broken bodies are rejected, broken outputs scored, bad tool calls answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gymnast.checks.conformance import hostile_inputs
from gymnast.checks.conformance.data_checks import with_output
from gymnast.checks.conformance.subject import Outcome, assistant_message, play, post, row_of
from gymnast.errors import Problem
from gymnast.kit.tools import RESERVED_NAMES
from gymnast.types.task import PARAMS
from gymnast.wire.calls import Scope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.checks.conformance.subject import Subject
    from gymnast.types.json import JsonObject

_UNKNOWN_TOOL: Final = "no_such_tool"


async def check_bodies(subject: Subject, base: JsonObject) -> list[Problem]:
    """Malformed bodies get a 4xx; rows with odd fields do not crash."""
    problems: list[Problem] = []
    for name, body in hostile_inputs.broken_verify_bodies(base):
        scope = Scope()
        await post(subject, subject.open_path, row_of(base), scope)
        outcome = await post(subject, subject.score_path, body, scope)
        if not 400 <= outcome.status < 500:
            problems.append(_body_problem(subject, subject.score_path, name, outcome, "reject it with 422"))
        await post(subject, subject.close_path, {}, scope)
    for name, body in hostile_inputs.broken_rows(base):
        outcome = await play(subject, body)
        if outcome.status >= 500 or outcome.status == 0:
            problems.append(_body_problem(subject, outcome.path, name, outcome, "declare the field's type in the task"))
    return problems


def _body_problem(subject: Subject, path: str, name: str, outcome: Outcome, step: str) -> Problem:
    return Problem(f"{name} returns {outcome}", f"{subject.instance}{path}", step)


async def check_outputs(subject: Subject, base: JsonObject) -> list[Problem]:
    """Empty, broken and odd outputs are scored, and do not earn the full reward."""
    best = _full_reward(subject)
    problems: list[Problem] = []
    tools = base[PARAMS].get("tools") if isinstance(base.get(PARAMS), dict) else None
    for name, output in [*hostile_inputs.broken_outputs(), *hostile_inputs.broken_calls(tools)]:
        outcome = await play(subject, with_output(base, output))
        problems += _score_problems(subject, name, outcome, best)
    return problems


async def check_huge(subject: Subject, base: JsonObject) -> list[Problem]:
    """A megabyte of output is scored like any other."""
    best = _full_reward(subject)
    problems: list[Problem] = []
    for name, request, is_answer in huge_requests(base):
        problems += _score_problems(subject, name, await play(subject, request), None if is_answer else best)
    return problems


def huge_requests(base: JsonObject) -> Iterator[tuple[str, JsonObject, bool]]:
    """Requests with a megabyte of output, and whether it contains the right answer."""
    for name, text in hostile_inputs.huge_texts():
        yield name, with_output(base, [assistant_message(text)]), False
    for name, output in hostile_inputs.huge_answers(base["response"]["output"]):
        yield name, with_output(base, output), True


def _score_problems(subject: Subject, name: str, outcome: Outcome, best: float | None) -> list[Problem]:
    where = f"{subject.instance}{outcome.path}"
    if outcome.reward is None and not outcome.is_judge_failure:
        step = "score it; an exception fails the attempt, and the rollout is retried"
        return [Problem(f"{name} returns {outcome}", where, step)]
    if best is not None and outcome.reward is not None and outcome.reward >= best:
        return [
            Problem(
                f"{name} earns the full reward ({outcome.reward:g})",
                where,
                "a policy would learn to exploit it",
            )
        ]
    return []


def _full_reward(subject: Subject) -> float | None:
    """The reward of the best case, or None if all cases have the same."""
    rewards = [case.expected_reward for case in subject.cases if case.expected_reward is not None]
    return max(rewards) if rewards and min(rewards) < max(rewards) else None


async def check_tools(subject: Subject, base: JsonObject) -> list[Problem]:
    """An undeclared tool is a 404 or a message that names it; bad arguments get a message, not a crash."""
    problems: list[Problem] = []
    unknown = await _call_tool(subject, base, _UNKNOWN_TOOL, {})
    is_message = unknown.status == 200 and _UNKNOWN_TOOL in str(unknown.body)
    if not (unknown.status == 404 or is_message) or unknown.failure is not None:
        text = f"a call to a tool that does not exist returns {unknown}"
        step = "return 404, which agents pass on, or a message that names the tool"
        problems.append(Problem(text, f"{subject.instance}/{_UNKNOWN_TOOL}", step))
    missing: list[str] = []
    declared = _declared_tools(subject)
    for tool in declared:
        if tool["name"] in RESERVED_NAMES:
            text = f"the tool '{tool['name']}' has a reserved name (a route)"
            problems.append(Problem(text, subject.rows_path, "rename the tool"))
            continue
        outcomes = [
            (kind, await _call_tool(subject, base, tool["name"], arguments))
            for kind, arguments in hostile_inputs.wrong_arguments(tool)
        ]
        if all(outcome.status == 404 for _, outcome in outcomes):
            missing.append(tool["name"])
        problems += _tool_problems(subject, tool["name"], outcomes)
    if missing and len(missing) < len(declared):
        text = f"rows declare tools that the environment lacks: {', '.join(missing)}"
        problems.append(Problem(text, subject.rows_path, "correct the rows' tools, or add the tools"))
    return problems


def _tool_problems(subject: Subject, name: str, outcomes: list[tuple[str, Outcome]]) -> Iterator[Problem]:
    for kind, outcome in outcomes:
        if outcome.status >= 500 or outcome.status == 0:
            text = f"the tool {name} called with {kind} returns {outcome}"
            step = "raise ToolError with a message for the model; a crash fails the attempt"
            yield Problem(text, f"{subject.instance}/{name}", step)


async def _call_tool(subject: Subject, base: JsonObject, name: str, arguments: Any) -> Outcome:
    scope = Scope()
    if subject.stateful:
        await post(subject, subject.open_path, row_of(base), scope)
    outcome = await post(subject, f"/{name}", arguments, scope)
    if subject.stateful:
        await post(subject, subject.close_path, {}, scope)
    return outcome


def _declared_tools(subject: Subject) -> list[JsonObject]:
    """The function tools of all rows and cases and of the environment, without duplicate names."""
    tools: dict[str, JsonObject] = {}
    rows: list[Any] = [*subject.rows, *(case.request for case in subject.cases)]
    for row in rows:
        params = row.get(PARAMS) if isinstance(row, dict) else None
        for tool in (params.get("tools") if isinstance(params, dict) else None) or ():
            if isinstance(tool, dict) and tool.get("type") == "function" and isinstance(tool.get("name"), str):
                tools.setdefault(tool["name"], tool)
    for tool in subject.tools:
        tools.setdefault(tool["name"], tool)
    return list(tools.values())
