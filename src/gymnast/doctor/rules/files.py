"""Rules about counts: fewer rollouts than requested, empty profiles, budgets, stopped runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding
from gymnast.doctor.rules.rule import run_rule
from gymnast.store.manifest import RunState
from gymnast.types.failure import Layer
from gymnast.types.nouns import count_noun

if TYPE_CHECKING:
    from gymnast.doctor.facts import RunFacts

_MISSING: Final = frozenset({"fewer_than_requested", "missing_keys"})


@run_rule(Layer.CONFIG, 6, "`--resume` with a larger budget.")
def budget_used_up(run: RunFacts) -> Finding | None:
    """`--max-tokens` or `--max-cost` ended the run (exit code 4)."""
    if "the budget of" not in run.note or run.is_running:
        return None
    return Finding(
        "budget_used_up",
        Layer.CONFIG,
        f"the run ended because its budget is used up ({count_noun(run.lost, 'rollout')} lost)",
        run.note,
        "run the same command with --resume and a larger --max-tokens or --max-cost",
        (Evidence("the manifest's note", f"{run.output.stem}_run.json", quote=run.note),),
        lost=run.unexplained,
        weight=62,
        explains=_MISSING,
    )


@run_rule(Layer.INFRA, 6, "`--resume`.")
def stopped_by_hand(run: RunFacts) -> Finding | None:
    """A signal or `gymnast ctl` ended the run."""
    phrases = ("interrupted by", "by gymnast ctl", "cancelled")
    if run.manifest is None or run.manifest.state is not RunState.INTERRUPTED or run.is_running:
        return None
    if not any(phrase in run.note for phrase in phrases):
        return None
    return Finding(
        "stopped_by_hand",
        Layer.INFRA,
        f"the run was stopped ({count_noun(run.lost, 'rollout')} lost)",
        f"{run.note}: a user, a script, or the scheduler's warning before its time limit",
        "run the same command with --resume",
        (Evidence("the manifest's note", f"{run.output.stem}_run.json", quote=run.note),),
        lost=run.unexplained,
        weight=40,
        explains=_MISSING,
    )


@run_rule(Layer.INFRA, 6, "Read its output.")
def stopped_with_error(run: RunFacts) -> Finding | None:
    """The collecting process ended with an error."""
    if "ended by an error" not in run.note or run.is_running:
        return None
    return Finding(
        "stopped_with_error",
        Layer.INFRA,
        f"the collecting process ended with an error ({count_noun(run.lost, 'rollout')} lost)",
        "a full disk or a bug; its output shows which",
        "read the command's output (doctor --logs FILE reads it), fix the error, and run again with --resume",
        (Evidence("the manifest's note", f"{run.output.stem}_run.json", quote=run.note),),
        Confidence.MEDIUM,
        lost=run.unexplained,
        weight=38,
        explains=_MISSING,
    )


@run_rule(Layer.CACHE_RESUME, 6, "Finish the run, then profile again.")
def partial_output(run: RunFacts) -> Finding | None:
    """The profile is empty although there are rollouts."""
    if run.profile_rows is None or run.is_running:
        return None
    if run.profile_rows > 0 or run.requested == 0:
        return None
    return Finding(
        "partial_output",
        Layer.CACHE_RESUME,
        f"the profile is empty, and {run.scored} of {run.requested} rollouts are scored",
        "the profile was made from a partial output: verifier errors or an early end left tasks without rollouts",
        "check the verifier's failures first, finish the run with --resume, then run gymnast profile again "
        "(--allow-partial profiles the existing rollouts)",
        (Evidence("0 rows", f"{run.output.stem}_reward_profiling.jsonl", count=run.profile_rows),),
        Confidence.MEDIUM,
        lost=run.unexplained,
        weight=39,
        explains=_MISSING,
    )


@run_rule(Layer.INFRA, 6, "Give doctor the logs; then `--resume`.")
def fewer_than_requested(run: RunFacts) -> Finding | None:
    """Rollouts are missing, and nothing else explains it."""
    if run.is_running or not run.unexplained or not run.requested:
        return None
    keys = tuple(run.records.missing_keys) if run.records is not None else ()
    if run.output.exists():
        symptom = f"{run.scored} of {run.requested} requested rollouts are scored"
    else:
        symptom = f"there is no output, although {run.requested} rollouts were planned"
    cause, action = _early_end(run)
    evidence = [Evidence(symptom, str(run.output), None, keys, run.lost)]
    if run.note:
        evidence.append(Evidence("the manifest's note", f"{run.output.stem}_run.json", quote=run.note))
    return Finding(
        "fewer_than_requested",
        Layer.INFRA,
        symptom,
        cause,
        action,
        tuple(evidence),
        Confidence.LOW,
        run.unexplained,
        is_symptom=True,
    )


def _early_end(run: RunFacts) -> tuple[str, str]:
    """Cause and next step if no record says why rollouts are missing."""
    if run.is_chunked:
        cause = f"no worker is active, and {run.unexplained} rollouts are owed: its jobs are pending or have ended"
        status = f"gymnast status {run.output} shows its jobs; if none is left, "
        return cause, status + "run the same gymnast submit command with --resume"
    cause = f"the run ended early, and {run.unexplained} rollouts have no failure record: its process was ended, "
    action = "give doctor the run's logs (--logs DIR) to see what ended it, and finish it with --resume"
    return cause + "or aborted on the first error", action


RULES: Final = (budget_used_up, stopped_by_hand, stopped_with_error, partial_output, fewer_than_requested)
