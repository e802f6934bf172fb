"""Plays a correct and a wrong answer, made from a row, to an environment that is up, and compares their rewards."""

from __future__ import annotations

import contextlib
import string
from typing import TYPE_CHECKING, Any, Final

from gymnast.checks.conformance.subject import assistant_message, play, response_to
from gymnast.checks.verifier_probe import ProbeResult, expected_of
from gymnast.types.task import JUDGE_ERROR

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.checks.conformance.cases import Case
    from gymnast.checks.conformance.subject import Outcome, Subject

_MAX_TEMPLATES: Final = 14
_MAX_TEMPLATE_CHARS: Final = 2000
_SLOT: Final = "\x00"
_FORMS: Final = (
    *(_SLOT, f"\\boxed{{{_SLOT}}}", f"The answer is {_SLOT}.", f"Answer: {_SLOT}", f"<answer>{_SLOT}</answer>"),
    *(f"#### {_SLOT}", f"The final answer is \\boxed{{{_SLOT}}}.", f"```\n{_SLOT}\n```", f"[[{_SLOT}]]"),
)
"""Common ways to state an answer."""


async def probe_subject(
    subject: Subject, rows: Sequence[dict[str, Any]], *, max_templates: int = _MAX_TEMPLATES
) -> ProbeResult:
    """Probe an environment until it distinguishes the answers to one row. Each way to state one costs two verdicts."""
    if subject.form == "step":
        return ProbeResult(problem="it scores step by step")
    result = ProbeResult(problem="no row has an expected answer to make a correct answer from")
    templates = list(_templates(subject.cases))[:max_templates]
    for row in rows:
        if expected_of(row) is None:
            continue
        result = await _probe_row(subject, row, templates)
        if result.tells_apart or result.judge_error:
            break
    return result


async def _probe_row(subject: Subject, row: dict[str, Any], templates: list[tuple[str, bool]]) -> ProbeResult:
    """Try every way to state the answer. The first one that it distinguishes counts, else the last one."""
    expected = str(expected_of(row))
    result = ProbeResult(problem="it returns no reward")
    for template, is_known in templates:
        right = await _play(subject, row, template.replace(_SLOT, expected))
        if right.is_judge_failure:
            return ProbeResult(problem="its judge gave no verdict", judge_error=str(right.body.get(JUDGE_ERROR)))
        wrong = await _play(subject, row, template.replace(_SLOT, _other_than(expected)))
        if right.reward is None or wrong.reward is None or wrong.is_judge_failure:
            continue
        known = is_known or result.is_known_form
        result = ProbeResult(right.reward, wrong.reward, is_known_form=known)
        if result.tells_apart:
            return result
    return result


async def _play(subject: Subject, row: dict[str, Any], text: str) -> Outcome:
    return await play(subject, {**row, "response": response_to(row, [assistant_message(text)])})


def _templates(cases: Sequence[Case]) -> Iterator[tuple[str, bool]]:
    """Ways to state an answer: those of the environment's own cases with full reward first."""
    known: dict[str, bool] = {}
    for case in cases:
        text = _text_of(case.request) if case.kind == "full_reward" else ""
        expected = str(expected_of(case.request) or "")
        if expected and expected in text and len(text) <= _MAX_TEMPLATE_CHARS:
            before, _, after = text.rpartition(expected)
            known[before + _SLOT + after] = True
    templates = {**dict(list(known.items())[:5]), **{form: False for form in _FORMS if form not in known}}
    yield from list(templates.items())[:_MAX_TEMPLATES]


def _text_of(request: dict[str, Any]) -> str:
    output = (request.get("response") or {}).get("output") or []
    parts = [part for item in output if isinstance(item, dict) for part in item.get("content") or ()]
    return "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


def _other_than(expected: str) -> str:
    """A wrong answer of the same kind."""
    value = expected.strip()
    if len(value) == 1 and value.upper() in string.ascii_uppercase:
        return "B" if value.upper() != "B" else "C"
    with contextlib.suppress(ValueError):
        return str(int(value) + 7)
    with contextlib.suppress(ValueError):
        return str(float(value) * 3 + 7)
    return "none of this is right"
