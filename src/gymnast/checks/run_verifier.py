"""The verifier part of `check run`: a correct and a wrong answer made from a row must get different rewards.

The environment runs in this process with its real judge, if it has one, as it does in the run.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gymnast.checks.environment import configured_target, open_subject
from gymnast.checks.verifier_answers import probe_subject
from gymnast.checks.verifier_probe import ProbeResult
from gymnast.errors import GymnastError
from gymnast.types.failure import FailureKind, bounded, message_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gymnast.checks.run_result import RunCheckResult
    from gymnast.config import Config, Environ, Instance
    from gymnast.types.json import JsonObject

_TIMEOUT_S: Final = 60.0
_MAX_JUDGED: Final = 2
"""Ways to state an answer that a judge is asked about: each costs two of its verdicts."""


async def check_verifier(
    config: Config,
    environ: Environ,
    environment: Instance,
    rows: Sequence[JsonObject],
    log_dir: Path,
    result: RunCheckResult,
) -> None:
    """Probe the verifier of an environment, and its judge."""
    judges = [ref.name for ref in environment.refs.values() if config.instance(ref.name).kind == "responses_api_models"]
    limits = {"max_templates": _MAX_JUDGED} if judges else {}
    try:
        async with (
            asyncio.timeout(_TIMEOUT_S),
            open_subject(configured_target(config, environ, environment), log_dir) as subject,
        ):
            probe = await probe_subject(subject, rows[:1] if judges else rows, **limits)
    except TimeoutError:
        probe = ProbeResult(problem=f"it took more than {_TIMEOUT_S:g} s")
    except GymnastError as error:
        probe = ProbeResult(problem=str(error).partition("\n")[0])
    except Exception as error:  # noqa: BLE001 - the environment's code may raise anything
        probe = ProbeResult(problem=f"{type(error).__name__}: {message_of(error)}")
    if judges:
        _add_judge(judges, probe, result)
    _add_verifier(environment.name, probe, result)


def _add_judge(judges: list[str], probe: ProbeResult, result: RunCheckResult) -> None:
    names = ", ".join(judges)
    if probe.judge_error:
        step = f"check the endpoint and the prompt of {names}; gymnast check env shows what the judge is sent"
        observed = f"{names} gave no verdict: {bounded(probe.judge_error, 300)}"
        result.add("judge", "warn" if _is_temporary(probe.judge_error) else "fail", observed, step)
    elif probe.right is not None:
        result.add("judge", "pass", f"answers are scored, by {names} where a judge is needed")
    else:
        result.add("judge", "skip", f"not asked: {probe.problem}")


def _is_temporary(judge_error: str) -> bool:
    words = ("rate_limit", "overloaded", FailureKind.MODEL_TIMEOUT.value, "loading", "429", "503")
    return any(word in judge_error for word in words)


def _add_verifier(name: str, probe: ProbeResult, result: RunCheckResult) -> None:
    rewards = f"a correct answer made from a row gets {probe.right}, a wrong one {probe.wrong}"
    if probe.right is None or probe.wrong is None:
        result.add("verifier", "skip", f"{name} was not probed: {probe.problem}")
    elif probe.tells_apart:
        result.add("verifier", "pass", rewards)
    elif probe.is_known_form:
        step = "compare the rows with the environment's examples (gymnast check rows); gymnast check env tests it"
        result.add("verifier", "warn", f"{name} does not tell right from wrong: {rewards}", step)
    else:
        result.add("verifier", "skip", f"{name} was not probed: its answers have none of the usual forms")
