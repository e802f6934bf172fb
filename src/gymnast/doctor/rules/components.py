"""Rules about components of a job that ended before its work, such as the policy server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Evidence, Finding
from gymnast.doctor.rules.rule import rule
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from gymnast.doctor.facts import ComponentDeath, Facts

_POLICY: Final = "policy"
_EXPLAINS: Final = frozenset(
    {
        *("job_cancelled", "task_refused", "job_failed", "job_with_error", "endpoint_down", "not_ready"),
        *("collector_killed", "fewer_than_requested", "missing_keys", "refused_to_start"),
    }
)
"""The job ends with the component, and Slurm cancels the rest of it."""


@rule(Layer.MODEL_SERVING, 1, "Read its log in the job's folder.", name="engine_dead")
def policy_ended(facts: Facts) -> Finding | None:
    """The policy server in a job ended before the worker did."""
    deaths = [death for death in facts.logs.deaths if death.component == _POLICY]
    what = "the job's policy server ended before its workers had finished"
    return _finding(facts, deaths, "engine_dead", Layer.MODEL_SERVING, what)


@rule(Layer.INFRA, 1, "Read its log in the job's folder.", name="process_crashed")
def component_ended(facts: Facts) -> Finding | None:
    """A component of a job ended before the worker did."""
    deaths = [death for death in facts.logs.deaths if death.component != _POLICY]
    what = f"{deaths[0].component}, a component of the job, ended before its workers had finished" if deaths else ""
    return _finding(facts, deaths, "process_crashed", Layer.INFRA, what)


def _finding(facts: Facts, deaths: list[ComponentDeath], name: str, layer: Layer, symptom: str) -> Finding | None:
    if not deaths or facts.is_complete:
        return None
    first = next((death for death in deaths if death.last_output is not None), deaths[0])
    output, message = first.last_output, first.message
    log = first.log or f"logs/{first.component}.*.log in the job's folder"
    evidence = [Evidence("the job's log", message.file, message.line, count=len(deaths), quote=message.text)]
    if output is not None:
        evidence.append(Evidence("the end of its log", output.file, output.line, quote=output.text))
    return Finding(
        name,
        layer,
        symptom,
        f"its log ends with: {output.text}" if output is not None else "its own log shows why",
        f"read its log ({log}), fix the error, then run again with --resume",
        tuple(evidence),
        lost=facts.unexplained if facts.run is not None and not facts.run.is_running else 0,
        weight=76,
        explains=_EXPLAINS,
    )


RULES: Final = (policy_ended, component_ended)
