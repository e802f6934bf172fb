"""Rules about complete but suspicious runs: rewards, usage, overflow, judges. And notes about harmless oddities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding, Note
from gymnast.doctor.line_readings import SATURATED_ID
from gymnast.doctor.rules.kinds import is_storm
from gymnast.doctor.rules.rewards import UNEXPLAINED, explain_study
from gymnast.doctor.rules.rule import record_rule, run_rule
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts, RecordFacts, RunFacts
    from gymnast.doctor.rules.rule import NoteRule

_MIN_TASKS: Final = 4
_OVERFLOW_SHARE: Final = 0.1
_TRUNCATED_SHARE: Final = 0.5
_MIN_ROWS: Final = 8
_DISTINCT_SHARE: Final = 0.5
_IDENTICAL_SHARE: Final = 0.9
_USAGE_SHARE: Final = 0.5
_EMPTY_SHARE: Final = 0.2
_JUDGE_FACTOR: Final = 2.0
_JUDGE_MS: Final = 100.0


@record_rule(Layer.MODEL_SERVING, 6, "Make the endpoint report usage.")
def usage_missing(run: RunFacts, records: RecordFacts) -> Finding | None:
    """Model replies do not report token usage."""
    if records.scored < _MIN_TASKS:
        return None
    with_output = records.scored - records.overflowed
    if not with_output or records.without_usage - records.overflowed < _USAGE_SHARE * with_output:
        return None
    return Finding(
        "usage_missing",
        Layer.MODEL_SERVING,
        f"{records.without_usage} of {records.scored} rollouts have no token usage",
        "the endpoint, or a proxy in front of it, does not report usage",
        "make the endpoint report it (vLLM does; when streaming: stream_options.include_usage); token budgets and "
        "profiles need it",
        (Evidence("records without usage", str(run.output), count=records.without_usage),),
        affected=records.without_usage,
        weight=15,
    )


@record_rule(
    Layer.CONFIG, 6, "Use a larger `--max-model-len`, shorter prompts or fewer turns.", name="context_overflow"
)
def context_overflow_share(run: RunFacts, records: RecordFacts) -> Finding | None:
    """At least a tenth of the rollouts have no output: the context is full."""
    if not records.scored:
        return None
    share = records.overflowed / records.scored
    if share < _OVERFLOW_SHARE or records.overflowed < 2:
        return None
    return Finding(
        "context_overflow",
        Layer.CONFIG,
        f"{records.overflowed} of {records.scored} rollouts ({share:.0%}) have no output: the context was full",
        "prompts or conversations are longer than the model's context; such rollouts are scored as wrong",
        "serve the model with a larger --max-model-len, lower max_output_tokens, or shorten prompts and tool outputs",
        (Evidence("incomplete, with no output tokens", str(run.output), count=records.overflowed),),
        affected=records.overflowed,
        weight=28,
        explains=UNEXPLAINED,
    )


@record_rule(Layer.MODEL_SERVING, 6, "Correct the endpoint's reasoning parser or chat template.")
def answers_empty(run: RunFacts, records: RecordFacts) -> Finding | None:
    """At least a fifth of the responses have no text and no tool call."""
    if records.scored < _MIN_TASKS:
        return None
    if records.empty < max(2, _EMPTY_SHARE * records.scored):
        return None
    return Finding(
        "answers_empty",
        Layer.MODEL_SERVING,
        f"{records.empty} of {records.scored} responses have no text",
        "the endpoint sends no content: a reasoning parser takes all of it, or a stop string or the chat template ends "
        "it immediately; such responses are scored as wrong",
        f"read one (gymnast report {run.output} --show {records.empty_keys[0]}), and test the endpoint itself: gymnast "
        "check endpoint URL; correct its --reasoning-parser or chat template",
        (Evidence("no output text and no tool call", str(run.output), None, tuple(records.empty_keys), records.empty),),
        affected=records.empty,
        weight=29,
        explains=UNEXPLAINED,
    )


@record_rule(Layer.CONFIG, 6, "Raise `max_output_tokens`.")
def answers_truncated(run: RunFacts, records: RecordFacts) -> Finding | None:
    """At least half of the responses are truncated."""
    if records.scored < _MIN_TASKS:
        return None
    if records.truncated < _TRUNCATED_SHARE * records.scored:
        return None
    return Finding(
        "answers_truncated",
        Layer.CONFIG,
        f"{records.truncated} of {records.scored} responses were truncated at max_output_tokens",
        "max_output_tokens is too low for these responses; they are scored as wrong",
        "raise max_output_tokens (--max-output-tokens), if the context allows it",
        (Evidence("incomplete: max_output_tokens", str(run.output), count=records.truncated),),
        affected=records.truncated,
        weight=27,
        explains=UNEXPLAINED,
    )


@run_rule(Layer.DATA_SCHEMA, 4, "Remove the copies.")
def rows_duplicated(run: RunFacts) -> Finding | None:
    """At least half of the input's rows are copies of others."""
    source = run.source
    if source is None or source.rows < _MIN_ROWS or source.changed:
        return None
    if source.distinct > _DISTINCT_SHARE * source.rows:
        return None
    return Finding(
        "rows_duplicated",
        Layer.DATA_SCHEMA,
        f"the input has {source.rows} rows, of which {source.distinct} differ: the others are copies",
        "the file was concatenated or sampled with replacement; each copy is collected and counted like another task",
        "remove the copies from the input file (sort -u), and use -n for repeats of the same row",
        (Evidence("identical lines", source.path, count=source.rows - source.distinct),),
        affected=run.scored,
        weight=13,
    )


@run_rule(Layer.CONFIG, 6, "Set a temperature above 0, or collect each task once.")
def repeats_identical(run: RunFacts) -> Finding | None:
    """All repeats of the tasks are the same text, at a temperature of 0."""
    repeats = run.repeats
    if repeats is None or repeats.tasks < _MIN_TASKS or not repeats.is_greedy:
        return None
    if repeats.identical < _IDENTICAL_SHARE * repeats.tasks:
        return None
    return Finding(
        "repeats_identical",
        Layer.CONFIG,
        f"the repeats of {repeats.identical} of {repeats.tasks} tasks are identical texts: "
        f"{repeats.repeats} of each say the same",
        "the requests ask for a temperature of 0, so repeats carry no information",
        "set a temperature above 0 (--temperature 1) for repeats, or collect each task once (-n 1)",
        (Evidence("the first of them", str(run.output), None, (repeats.example,), repeats.identical),),
        affected=run.scored,
        weight=13,
    )


@run_rule(Layer.THROUGHPUT, 6, "Give the judge more capacity.")
def judge_slow(run: RunFacts) -> Finding | None:
    """A judge call takes at least twice as long as a policy call."""
    spent = run.manifest.spent if run.manifest is not None else None
    judge = spent.judge if spent is not None else None
    if spent is None or judge is None or not judge.calls or spent.calls <= judge.calls:
        return None
    judge_ms = judge.latency_ms / judge.calls
    policy_ms = (spent.latency_ms - judge.latency_ms) / (spent.calls - judge.calls)
    if judge_ms < _JUDGE_MS or judge_ms < _JUDGE_FACTOR * policy_ms:
        return None
    return Finding(
        "judge_slow",
        Layer.THROUGHPUT,
        f"a judge call takes {judge_ms:.0f} ms, a policy call {policy_ms:.0f} ms: the judge is the bottleneck",
        "the judge model has too little capacity for this many rollouts, or writes long verdicts",
        "give the judge more replicas or a smaller model, or limit its max_output_tokens; a faster policy won't help",
        (Evidence(f"{judge.calls} judge calls of {spent.calls}", f"{run.output.stem}_run.json", count=judge.calls),),
        Confidence.MEDIUM,
        affected=run.scored,
        weight=14,
    )


# --- notes -----------------------------------------------------------------------------------------------------------


def recovered(facts: Facts) -> Note | None:
    """Failed attempts that a retry fixed."""
    groups = [group for group in (facts.run.failures if facts.run is not None else ()) if not group.lost]
    groups = [group for group in groups if not is_storm(facts, group)]
    if not groups:
        return None
    kinds = ", ".join(f"{group.attempts} × {group.kind}" for group in groups[:4])
    return Note("recovered", f"failed attempts that a retry fixed: {kinds}")


def perfect(facts: Facts) -> Note | None:
    """All rewards are 1: nothing is wrong, but there is nothing to learn."""
    records = facts.run.records if facts.run is not None else None
    if records is None or records.scored < _MIN_TASKS or not facts.is_complete:
        return None
    if any(explain_study(study)[0] for study in (facts.run.studies if facts.run is not None else ())):
        return None
    if all(rewards.low == rewards.high == 1.0 for rewards in records.rewards.values()):
        return Note("all_perfect", "all rewards are 1: nothing is wrong, but these tasks are too easy to learn from")
    return None


def saturated(facts: Facts) -> Note | None:
    """A saturated endpoint with steady output and no errors is normal."""
    hit = facts.logs.hits.get(SATURATED_ID)
    if hit is None or (facts.run is not None and facts.run.failures):
        return None
    return Note(
        "saturated",
        f"the model server is saturated ({hit.first.text[-100:]}): steady output without errors is normal full load",
    )


def some_truncated(facts: Facts) -> Note | None:
    """Some truncated responses are the policy's own outcome."""
    records = facts.run.records if facts.run is not None else None
    truncated = records.truncated + records.overflowed if records is not None else 0
    if (
        records is None
        or not truncated
        or answers_truncated.apply(facts) is not None
        or context_overflow_share.apply(facts) is not None
    ):
        return None
    return Note(
        "some_truncated", f"{truncated} of {records.scored} responses were truncated, which is an outcome of the policy"
    )


RULES: Final = (
    rows_duplicated,
    repeats_identical,
    usage_missing,
    context_overflow_share,
    answers_empty,
    answers_truncated,
    judge_slow,
)


def same_repeats(facts: Facts) -> Note | None:
    """Repeats that are the same text although the temperature is not known to be 0."""
    repeats = facts.run.repeats if facts.run is not None else None
    if repeats is None or repeats.tasks < _MIN_TASKS or repeats.is_greedy:
        return None
    if repeats.identical < _IDENTICAL_SHARE * repeats.tasks:
        return None
    return Note(
        "same_repeats",
        f"the repeats of {repeats.identical} of {repeats.tasks} tasks are identical texts: they carry no information; "
        "check the endpoint's temperature and seed, and caches in between",
    )


NOTES: Final[tuple[NoteRule, ...]] = (same_repeats, recovered, perfect, saturated, some_truncated)
