"""Runs that are whole and still suspicious: rewards, usage, overflow, judges. And what is odd and no fault at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding, Note
from gymnast.doctor.read_logs import SATURATED_ID
from gymnast.doctor.rules.kinds import is_storm
from gymnast.doctor.rules.rule import Rule
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.doctor.facts import Facts, RecordFacts
    from gymnast.doctor.rules.rule import NoteRule

_ENOUGH_ROLLOUTS: Final = 16
_ENOUGH_TASKS: Final = 4
_OVERFLOW_SHARE: Final = 0.1
_TRUNCATED_SHARE: Final = 0.5
_USAGE_SHARE: Final = 0.5
_EMPTY_SHARE: Final = 0.2
_JUDGE_FACTOR: Final = 2.0
_JUDGE_MS: Final = 100.0


def rewards_equal(facts: Facts) -> Finding | None:
    """Every reward is the same, and it is not full marks."""
    run = facts.run
    records = run.records if run is not None else None
    if run is None or records is None or records.scored < _ENOUGH_ROLLOUTS or records.reward_min != records.reward_max:
        return None
    tasks = run.plan.tasks if run.plan is not None else _ENOUGH_TASKS
    if tasks < _ENOUGH_TASKS or records.reward_max == 1.0 or records.overflowed > _TRUNCATED_SHARE * records.scored:
        return None
    return Finding(
        "rewards_equal",
        Layer.VERIFIER,
        f"all {records.scored} rewards are {records.reward_max:g}",
        "the verifier never sees an answer it takes: another answer format than the prompt asks for, wrong expected "
        "answers, or the wrong environment for these rows",
        f"read three transcripts (gymnast report {run.output} --show 0:0) beside what the verifier extracted; hold the "
        "rows against the environment: gymnast check rows DATA --against ENV",
        _of_equal_rewards(run.output, records),
        Confidence.MEDIUM,
        affected=records.scored,
        weight=25,
    )


def _of_equal_rewards(output: Path, records: RecordFacts) -> tuple[Evidence, ...]:
    seen = (Evidence(f"minimum and maximum are {records.reward_max:g}", str(output), count=records.scored),)
    if not records.unextracted:
        return seen
    said = (
        f"in {records.unextracted} of {records.scored} records the verifier found no answer (extracted_answer is null)"
    )
    return (*seen, Evidence(said, str(output), count=records.unextracted))


def usage_missing(facts: Facts) -> Finding | None:
    """Replies without a word about tokens."""
    run = facts.run
    records = run.records if run is not None else None
    if run is None or records is None or records.scored < _ENOUGH_TASKS:
        return None
    spoke = records.scored - records.overflowed
    if not spoke or records.without_usage - records.overflowed < _USAGE_SHARE * spoke:
        return None
    return Finding(
        "usage_missing",
        Layer.MODEL_SERVING,
        f"{records.without_usage} of {records.scored} rollouts have no token usage",
        "the endpoint, or a proxy before it, does not report usage",
        "let the endpoint report it (vLLM does; with streams: stream_options.include_usage); budgets and profiles "
        "of tokens need it",
        (Evidence("records without usage", str(run.output), count=records.without_usage),),
        affected=records.without_usage,
        weight=15,
    )


def context_overflow_share(facts: Facts) -> Finding | None:
    """Many rollouts ended without a word because the context was full."""
    run = facts.run
    records = run.records if run is not None else None
    if run is None or records is None or not records.scored:
        return None
    share = records.overflowed / records.scored
    if share < _OVERFLOW_SHARE or records.overflowed < 2:
        return None
    return Finding(
        "context_overflow",
        Layer.CONFIG,
        f"{records.overflowed} of {records.scored} rollouts ({share:.0%}) have no answer: the context was full",
        "prompts, or conversations, are longer than the model's context; such rollouts are scored as wrong answers",
        "serve the model with a larger --max-model-len, lower max_output_tokens, or shorten prompts and tool outputs",
        (Evidence("incomplete, with no output tokens", str(run.output), count=records.overflowed),),
        affected=records.overflowed,
        weight=28,
    )


def answers_empty(facts: Facts) -> Finding | None:
    """Many answers have no word in them."""
    run = facts.run
    records = run.records if run is not None else None
    if run is None or records is None or records.scored < _ENOUGH_TASKS:
        return None
    if records.empty < max(2, _EMPTY_SHARE * records.scored):
        return None
    return Finding(
        "answers_empty",
        Layer.MODEL_SERVING,
        f"{records.empty} of {records.scored} answers have no text",
        "the endpoint sends no content: a reasoning parser takes all of it, a stop string or the chat template ends it "
        "at once; such answers are scored as wrong",
        f"read one (gymnast report {run.output} --show {records.empty_keys[0]}), and ask the endpoint itself: gymnast "
        "check endpoint URL; correct its --reasoning-parser or chat template",
        (Evidence("no output text and no tool call", str(run.output), None, tuple(records.empty_keys), records.empty),),
        affected=records.empty,
        weight=29,
        explains=frozenset({"rewards_equal"}),
    )


def answers_truncated(facts: Facts) -> Finding | None:
    """Most answers were cut off at the output limit."""
    run = facts.run
    records = run.records if run is not None else None
    if run is None or records is None or records.scored < _ENOUGH_TASKS:
        return None
    if records.truncated < _TRUNCATED_SHARE * records.scored:
        return None
    return Finding(
        "answers_truncated",
        Layer.CONFIG,
        f"{records.truncated} of {records.scored} answers were cut off at max_output_tokens",
        "max_output_tokens is shorter than the answers; they are scored as wrong",
        "raise max_output_tokens (--max-output-tokens), if the context allows it",
        (Evidence("incomplete: max_output_tokens", str(run.output), count=records.truncated),),
        affected=records.truncated,
        weight=27,
    )


def judge_slow(facts: Facts) -> Finding | None:
    """The judge takes longer than the policy it judges."""
    run = facts.run
    spent = run.manifest.spent if run is not None and run.manifest is not None else None
    judge = spent.judge if spent is not None else None
    if run is None or spent is None or judge is None or not judge.calls or spent.calls <= judge.calls:
        return None
    judged_ms = judge.latency_ms / judge.calls
    asked_ms = (spent.latency_ms - judge.latency_ms) / (spent.calls - judge.calls)
    if judged_ms < _JUDGE_MS or judged_ms < _JUDGE_FACTOR * asked_ms:
        return None
    return Finding(
        "judge_slow",
        Layer.THROUGHPUT,
        f"a judge call takes {judged_ms:.0f} ms, a policy call {asked_ms:.0f} ms: the judge sets the pace",
        "the judge model has too little capacity for this many rollouts, or writes long verdicts",
        "give the judge replicas or a smaller model, or bound its max_output_tokens; a faster policy gains nothing",
        (Evidence(f"{judge.calls} judge calls of {spent.calls}", f"{run.output.stem}_run.json", count=judge.calls),),
        Confidence.MEDIUM,
        affected=run.scored,
        weight=14,
    )


# --- no faults -------------------------------------------------------------------------------------------------------


def recovered(facts: Facts) -> Note | None:
    """Attempts that failed and were made good by a retry."""
    groups = [group for group in (facts.run.failures if facts.run is not None else ()) if not group.lost]
    groups = [group for group in groups if not is_storm(facts, group)]
    if not groups:
        return None
    said = ", ".join(f"{group.attempts} × {group.kind}" for group in groups[:4])
    return Note("recovered", f"attempts that failed and were made good by a retry: {said}")


def perfect(facts: Facts) -> Note | None:
    """All rewards are full marks: nothing is broken, and nothing is to be learned."""
    records = facts.run.records if facts.run is not None else None
    if records is None or records.scored < _ENOUGH_TASKS or not facts.is_whole:
        return None
    if records.reward_min == records.reward_max == 1.0:
        return Note("all_perfect", "all rewards are 1: these tasks are too easy to learn from, and nothing is wrong")
    return None


def saturated(facts: Facts) -> Note | None:
    """A full endpoint with steady output and no errors is how it should be."""
    hit = facts.logs.hits.get(SATURATED_ID)
    if hit is None or (facts.run is not None and facts.run.failures):
        return None
    return Note(
        "saturated",
        f"the model server is saturated ({hit.first.text[-100:]}): steady output without errors is full load, no "
        "fault; change nothing",
    )


def some_truncated(facts: Facts) -> Note | None:
    """Some answers at the output limit are the policy's doing."""
    records = facts.run.records if facts.run is not None else None
    cut = records.truncated + records.overflowed if records is not None else 0
    if records is None or not cut or answers_truncated(facts) is not None or context_overflow_share(facts) is not None:
        return None
    return Note("some_truncated", f"{cut} of {records.scored} answers were cut off: an outcome of the policy")


RULES: Final = (
    Rule(
        *("rewards_equal", Layer.VERIFIER, 6, "All rewards are the same, and not 1."),
        *("Read three transcripts beside what the verifier extracted.", rewards_equal),
    ),
    Rule(
        *("usage_missing", Layer.MODEL_SERVING, 6, "Replies come without token usage."),
        *("Let the endpoint report usage.", usage_missing),
    ),
    Rule(
        *(
            "context_overflow",
            Layer.CONFIG,
            6,
            "A tenth or more of the rollouts end without a word: the context is full.",
        ),
        *("A larger `--max-model-len`, shorter prompts, fewer turns.", context_overflow_share),
    ),
    Rule(
        *("answers_empty", Layer.MODEL_SERVING, 6, "A fifth or more of the answers have no text and no tool call."),
        *("Correct the endpoint's reasoning parser or chat template.", answers_empty),
    ),
    Rule(
        *("answers_truncated", Layer.CONFIG, 6, "Half or more of the answers are cut off."),
        *("Raise `max_output_tokens`.", answers_truncated),
    ),
    Rule(
        *("judge_slow", Layer.THROUGHPUT, 6, "A judge call takes at least twice as long as a policy call."),
        *("Give the judge more capacity.", judge_slow),
    ),
)
NOTES: Final[tuple[NoteRule, ...]] = (recovered, perfect, saturated, some_truncated)
