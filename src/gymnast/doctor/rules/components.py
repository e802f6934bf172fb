"""Components of a job that ended before its work did: a policy server that crashed, a server beside the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Evidence, Finding
from gymnast.doctor.rules.rule import Rule
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
"""The job ends with the component, and Slurm cancels what is left of it."""


def policy_ended(facts: Facts) -> Finding | None:
    """The policy server in a job ended before the worker did."""
    deaths = [death for death in facts.logs.deaths if death.component == _POLICY]
    what = "the policy server of the job ended before its work did"
    return _finding(facts, deaths, "engine_dead", Layer.MODEL_SERVING, what)


def component_ended(facts: Facts) -> Finding | None:
    """Another component of a job ended before the worker did."""
    deaths = [death for death in facts.logs.deaths if death.component != _POLICY]
    what = f"{deaths[0].component}, a component of the job, ended before its work did" if deaths else ""
    return _finding(facts, deaths, "process_crashed", Layer.INFRA, what)


def _finding(facts: Facts, deaths: list[ComponentDeath], name: str, layer: Layer, symptom: str) -> Finding | None:
    if not deaths or facts.is_whole:
        return None
    first = next((death for death in deaths if death.last_words is not None), deaths[0])
    words = first.last_words
    log = first.log or f"logs/{first.component}.*.log in the job's folder"
    seen = [Evidence("the job's log", first.said.file, first.said.line, count=len(deaths), quote=first.said.text)]
    if words is not None:
        seen.append(Evidence("its last words", words.file, words.line, quote=words.text))
    return Finding(
        name,
        layer,
        symptom,
        f"it says: {words.text}" if words is not None else "its own log says why",
        f"read its log ({log}), mend that, then run again with --resume",
        tuple(seen),
        lost=facts.unexplained if facts.run is not None and not facts.run.is_running else 0,
        weight=76,
        explains=_EXPLAINS,
    )


RULES: Final = (
    Rule(
        *("engine_dead", Layer.MODEL_SERVING, 1, "The policy server in a job ended before the worker did."),
        *("Read its log in the job's folder.", policy_ended),
    ),
    Rule(
        *("process_crashed", Layer.INFRA, 1, "A component of a job ended before the worker did."),
        *("Read its log in the job's folder.", component_ended),
    ),
)
