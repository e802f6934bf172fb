"""The child process of `verifier_probe`: loads an environment as `gymnast check env` does, and scores answers."""

from __future__ import annotations

import asyncio
import contextlib
import string
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.checks.conformance.subject import assistant_message, play, response_to
from gymnast.checks.environment import find_environment, open_subject
from gymnast.checks.verifier_probe import ProbeResult, expected_of
from gymnast.errors import GymnastError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.checks.conformance.cases import Case
    from gymnast.checks.conformance.subject import Subject

_MAX_TEMPLATES: Final = 14
_MAX_TEMPLATE_CHARS: Final = 2000
_SLOT: Final = "\x00"
_FORMS: Final = (
    *(_SLOT, f"\\boxed{{{_SLOT}}}", f"The answer is {_SLOT}.", f"Answer: {_SLOT}", f"<answer>{_SLOT}</answer>"),
    *(f"#### {_SLOT}", f"The final answer is \\boxed{{{_SLOT}}}.", f"```\n{_SLOT}\n```", f"[[{_SLOT}]]"),
)
"""Common ways to state an answer."""


async def probe(name: str, settings: dict[str, Any], rows: Sequence[dict[str, Any]]) -> ProbeResult:
    """Probe the environment `name` with rows until one is told apart."""
    target = find_environment(name)
    instance = target.instance
    if instance.refs:
        return ProbeResult(problem="it needs other servers, such as a judge")
    target = replace(target, instance=replace(instance, settings={**instance.settings, **settings}))
    result = ProbeResult(problem="no row has an expected answer to make a correct answer from")
    with tempfile.TemporaryDirectory(prefix="gymnast-doctor-") as logs:
        async with open_subject(target, Path(logs)) as subject:
            if subject.form == "step":
                return ProbeResult(problem="it scores step by step")
            for row in rows:
                if expected_of(row) is None:
                    continue
                result = await _probe_row(subject, row, list(_templates(target.cases)))
                if result.tells_apart:
                    break
    return result


async def _probe_row(subject: Subject, row: dict[str, Any], templates: list[tuple[str, bool]]) -> ProbeResult:
    """Try every way to state the answer. The first that is told apart counts, else the last one."""
    expected = str(expected_of(row))
    result = ProbeResult(problem="it returns no reward")
    for template, is_known in templates:
        right = await _reward(subject, row, template.replace(_SLOT, expected))
        wrong = await _reward(subject, row, template.replace(_SLOT, _other_than(expected)))
        if right is None or wrong is None:
            continue
        known = is_known or result.is_known_form
        result = ProbeResult(right, wrong, is_known_form=known)
        if result.tells_apart:
            return result
    return result


async def _reward(subject: Subject, row: dict[str, Any], text: str) -> float | None:
    outcome = await play(subject, {**row, "response": response_to(row, [assistant_message(text)])})
    return outcome.reward


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


def main() -> None:
    """Read a request from stdin, and write the result as the last line of stdout."""
    request = orjson.loads(sys.stdin.buffer.read())
    try:
        with contextlib.redirect_stdout(sys.stderr):
            result = asyncio.run(probe(request["name"], request["settings"], request["rows"]))
    except GymnastError as error:
        result = ProbeResult(problem=str(error).partition("\n")[0][:200])
    except Exception as error:  # noqa: BLE001 - the environment's code may raise anything
        result = ProbeResult(problem=f"{type(error).__name__}: {error}"[:200])
    sys.stdout.buffer.write(orjson.dumps(result) + b"\n")


if __name__ == "__main__":
    main()
