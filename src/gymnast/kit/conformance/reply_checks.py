"""Checks of what comes in from outside: broken bodies are refused, broken outputs are scored, tools answer nonsense."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gymnast.kit.conformance import hostile
from gymnast.kit.conformance.data_checks import with_output
from gymnast.kit.conformance.findings import Finding
from gymnast.kit.conformance.subject import Outcome, play, post, said
from gymnast.kit.tools import RESERVED_NAMES
from gymnast.types.task import PARAMS
from gymnast.wire.calls import Scope

if TYPE_CHECKING:
    from gymnast.kit.conformance.subject import Subject
    from gymnast.types.json import JsonObject


async def check_bodies(subject: Subject, base: JsonObject) -> list[Finding]:
    """Bodies that are no requests get a 4xx; rows with odd fields at least no crash."""
    begin, end = ("/reset", "/step") if subject.form == "step" else ("/seed_session", "/verify")
    row = {key: value for key, value in base.items() if key != "response"}
    findings: list[Finding] = []
    for name, body in hostile.broken_verify_bodies(base):
        scope = Scope()
        await post(subject, begin, row, scope)
        outcome = await post(subject, end, body, scope)
        if not 400 <= outcome.status < 500:
            findings.append(_body_finding(subject, end, name, outcome, "refuse it with 422"))
        await post(subject, "/close" if subject.form == "step" else "/close_session", {}, scope)
    for name, body in hostile.broken_rows(base):
        outcome = await play(subject, body)
        if outcome.status >= 500 or outcome.status == 0:
            findings.append(_body_finding(subject, outcome.path, name, outcome, "declare the field's type in the task"))
    return findings


def _body_finding(subject: Subject, path: str, name: str, outcome: Outcome, step: str) -> Finding:
    return Finding(f"{name} is answered with {outcome}", f"{subject.instance}{path}", step)


async def check_outputs(subject: Subject, base: JsonObject) -> list[Finding]:
    """Whatever a model says is scored: empty, broken, strange. And it is not worth the full reward."""
    best = _full_reward(subject)
    findings: list[Finding] = []
    tools = base[PARAMS].get("tools") if isinstance(base.get(PARAMS), dict) else None
    for name, output in [*hostile.broken_outputs(), *hostile.broken_calls(tools)]:
        outcome = await play(subject, with_output(base, output))
        findings += _scored(subject, name, outcome, best)
    return findings


async def check_huge(subject: Subject, base: JsonObject) -> list[Finding]:
    """A megabyte of output is scored like any other."""
    best = _full_reward(subject)
    findings: list[Finding] = []
    for name, request, is_answer in huge_requests(base):
        findings += _scored(subject, name, await play(subject, request), None if is_answer else best)
    return findings


def huge_requests(base: JsonObject) -> Iterator[tuple[str, JsonObject, bool]]:
    """Requests with a megabyte of output, and whether the right answer is in it."""
    for name, text in hostile.huge_texts():
        yield name, with_output(base, [said(text)]), False
    for name, output in hostile.huge_answers(base["response"]["output"]):
        yield name, with_output(base, output), True


def _scored(subject: Subject, name: str, outcome: Outcome, best: float | None) -> list[Finding]:
    where = f"{subject.instance}{outcome.path}"
    if outcome.reward is None and not outcome.is_judge_failure:
        step = "score it; an exception fails the attempt and the rollout is tried again"
        return [Finding(f"{name} is answered with {outcome}", where, step)]
    if best is not None and outcome.reward is not None and outcome.reward >= best:
        return [Finding(f"{name} earns the full reward ({outcome.reward:g})", where, "a policy would learn just that")]
    return []


def _full_reward(subject: Subject) -> float | None:
    """The reward of the best case, where others are worth less."""
    rewards = [case.expected_reward for case in subject.cases if case.expected_reward is not None]
    return max(rewards) if rewards and min(rewards) < max(rewards) else None


async def check_tools(subject: Subject, base: JsonObject) -> list[Finding]:
    """A tool nobody declared is a 404; the row's own tools answer nonsense with words, not with a crash."""
    findings: list[Finding] = []
    unknown = await _in_session(subject, base, "no_such_tool", {})
    if unknown.status != 404 or unknown.failure is not None:
        text = f"a tool that does not exist is answered with {unknown}"
        findings.append(Finding(text, f"{subject.instance}/no_such_tool", "answer 404 so that the model can be told"))
    missing: list[str] = []
    declared = _declared(subject)
    for tool in declared:
        if tool["name"] in RESERVED_NAMES:
            text = f"the tool '{tool['name']}' has the name of a route"
            findings.append(Finding(text, subject.rows_at, "give the tool another name"))
            continue
        outcomes = [(kind, await _in_session(subject, base, tool["name"], a)) for kind, a in _arguments(tool)]
        if all(outcome.status == 404 for _, outcome in outcomes):
            missing.append(tool["name"])
        findings += _tool_findings(subject, tool["name"], outcomes)
    if missing and len(missing) < len(declared):
        text = f"rows declare tools that the environment does not have: {', '.join(missing)}"
        findings.append(Finding(text, subject.rows_at, "correct the rows' tools, or add the tools"))
    return findings


def _arguments(tool: JsonObject) -> list[tuple[str, Any]]:
    return list(hostile.wrong_arguments(tool))


def _tool_findings(subject: Subject, name: str, outcomes: list[tuple[str, Outcome]]) -> Iterator[Finding]:
    for kind, outcome in outcomes:
        if outcome.status >= 500 or outcome.status == 0:
            text = f"the tool {name} called with {kind} is answered with {outcome}"
            step = "raise ToolError with words for the model; a crash fails the attempt"
            yield Finding(text, f"{subject.instance}/{name}", step)


async def _in_session(subject: Subject, base: JsonObject, name: str, arguments: Any) -> Outcome:
    scope = Scope()
    row = {key: value for key, value in base.items() if key != "response"}
    if subject.stateful:
        await post(subject, "/reset" if subject.form == "step" else "/seed_session", row, scope)
    outcome = await post(subject, f"/{name}", arguments, scope)
    if subject.stateful:
        await post(subject, "/close" if subject.form == "step" else "/close_session", {}, scope)
    return outcome


def _declared(subject: Subject) -> list[JsonObject]:
    """The function tools of all rows and cases, each name once."""
    found: dict[str, JsonObject] = {}
    given: list[Any] = [*subject.rows, *(case.request for case in subject.cases)]
    for row in given:
        params = row.get(PARAMS) if isinstance(row, dict) else None
        for tool in (params.get("tools") if isinstance(params, dict) else None) or ():
            if isinstance(tool, dict) and tool.get("type") == "function" and isinstance(tool.get("name"), str):
                found.setdefault(tool["name"], tool)
    return list(found.values())
