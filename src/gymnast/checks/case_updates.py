"""Updates the expected rewards of an environment's verifier cases to those that it gives now."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from gymnast.checks.conformance import parse_cases
from gymnast.checks.conformance.subject import play
from gymnast.checks.environment import open_subject
from gymnast.config.roots import BUILTIN
from gymnast.errors import DataError, UserError
from gymnast.store.atomic import atomic_write

if TYPE_CHECKING:
    from gymnast.checks.conformance import Case
    from gymnast.checks.environment import CheckTarget


async def update_cases(target: CheckTarget) -> list[str]:
    """Score the cases that expect a reward and rewrite the file; returns the names of those that changed.

    Nothing is written if a case gets no reward, or if a full reward would not be more than a zero reward.
    """
    path = target.config.roots.require(target.cases_path, "the file of verifier cases")
    if path.is_relative_to(BUILTIN):
        raise UserError("the cases of a shipped environment cannot be updated", next="copy it into your checkout")
    if target.problems:
        raise DataError(str(target.problems[0]), where=str(path))
    rewards = await _score(target)
    changed = [
        case.name for case in target.cases if rewards.get(case.name, case.expected_reward) != case.expected_reward
    ]
    if changed:
        lines = [_line(case, rewards) for case in target.cases]
        _, problems = parse_cases(lines, target.cases_path)
        if problems:
            raise DataError(f"the observed rewards break a rule: {problems[0]}", next="nothing was written")
        atomic_write(path, b"".join(line + b"\n" for line in lines))
    return changed


async def _score(target: CheckTarget) -> dict[str, float]:
    rewards: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="gymnast-check-") as logs:
        async with open_subject(target, Path(logs)) as subject:
            for case in target.cases:
                if case.expected_reward is None:
                    continue
                outcome = await play(subject, case.request)
                if outcome.reward is None:
                    raise DataError(f"case '{case.name}' got no reward: {outcome}", where=target.cases_path)
                rewards[case.name] = outcome.reward
    return rewards


def _line(case: Case, rewards: dict[str, float]) -> bytes:
    if case.name in rewards:
        case = case.model_copy(update={"expected_reward": rewards[case.name]})
    return orjson.dumps(case.model_dump(mode="json", exclude_none=True))
