"""Rules about rewards that are all the same. The answer is the one with the strongest check behind it.

Direct observations come first (rollouts of other inputs, tool calls in the text, refusals), then what the verifier
itself says about a correct and a wrong answer, then the remaining one: the model's answers are wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from gymnast.doctor.facts import Verdict
from gymnast.doctor.findings import Confidence, Evidence, Finding
from gymnast.doctor.rules.rule import Rule
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts, RewardCheck, RewardStudy

REWARDS_EQUAL: Final = "rewards_equal"
UNEXPLAINED: Final = frozenset({REWARDS_EQUAL, "answers_wrong", "answer_not_extracted", "answers_same", "labels_wrong"})
"""Explanations that a finding about the responses makes superfluous."""
_REPORTED: Final = frozenset({"answers_empty"})
"""Other rules report these, with exact counts."""
_PASSED: Final = {
    "rollouts_foreign": "prompts differ from the plan",
    "rows_foreign": "rows of another environment",
    "expected_missing": "no expected answers",
    "rows_same": "duplicate rows",
    "tool_calls_in_text": "tool calls in text",
    "tools_fail": "failing tools",
    "steps_exhausted": "step limit",
    "reasoning_open": "open thoughts",
    "answers_refused": "refusals",
    "answers_repeat": "repeated tokens",
    "control_tokens": "control tokens",
    "prompt_echoed": "echoed prompts",
    "answers_same": "one response to all",
    "answers_empty": "empty responses",
    "verifier": "a verifier that rejects correct answers",
}
"""What a check that passed excludes."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One explanation of equal rewards."""

    id: str
    layer: Layer
    weight: int
    symptom: str
    cause: str
    action: str
    about: str


_SHOW: Final = "gymnast report {run} --show {key}"
HYPOTHESES: Final = (
    Hypothesis(
        *("rollouts_foreign", Layer.CACHE_RESUME, 55, "the rollouts were made from other inputs than the planned ones"),
        "records and plan share their indices, but not their prompts: the output is of another run or another input "
        "file",
        "collect these inputs into a new --output, or put back the input file that the rollouts were made from",
        "The records' prompts differ from the planned rows'.",
    ),
    Hypothesis(
        *("rows_foreign", Layer.DATA_SCHEMA, 54, "the rows do not belong to this environment"),
        "no row has any field that {environment} reads, so it cannot score an answer",
        "gymnast check rows DATA --against {environment} lists the fields; use the rows' own environment, or map "
        "the fields",
        "No row has a field that the environment reads.",
    ),
    Hypothesis(
        *("expected_missing", Layer.DATA_SCHEMA, 53, "the rows have no expected answer"),
        "{environment} compares with expected_answer, and the rows have none, so every answer is wrong",
        "add expected_answer to the rows (gymnast check rows DATA --against {environment}), then collect again",
        "Rows have no expected answer, which the environment compares with.",
    ),
    Hypothesis(
        *("rows_same", Layer.DATA_SCHEMA, 52, "all tasks are the same row"),
        "the input file has one prompt many times: it was duplicated, or a template drops what differs",
        "check the input file and its prompt template: gymnast data validate DATA",
        "All tasks have the same prompt.",
    ),
    Hypothesis(
        *("tool_calls_in_text", Layer.MODEL_SERVING, 48, "tool calls arrive as text and are not made"),
        "the endpoint does not parse its model's tool calls: no tool-call parser, or the wrong one",
        "serve the model with its parser (vLLM: --enable-auto-tool-choice --tool-call-parser NAME; SGLang: "
        "--tool-call-parser "
        "NAME); gymnast check endpoint URL --require tools_auto tests it",
        "Responses contain tool calls as text.",
    ),
    Hypothesis(
        *("tools_fail", Layer.VERIFIER, 47, "every tool call returns an error"),
        "the environment's tools fail: a service they need is down, or their data is missing",
        "read one ({show}), fix the tool or what it needs (gymnast check env {environment}), then collect again",
        "All tool outputs are errors.",
    ),
    Hypothesis(
        *("steps_exhausted", Layer.CONFIG, 46, "rollouts end at the agent's step limit, without an answer"),
        "max_steps (or the agent's time limit) is too small for these tasks, or the model never stops calling tools",
        "read one ({show}); raise the agent's max_steps, or tell the model in the prompt when to answer",
        "Rollouts end at the agent's limit of steps or time.",
    ),
    Hypothesis(
        *("reasoning_open", Layer.MODEL_SERVING, 45, "responses start to think and never answer"),
        "the thought takes all of max_output_tokens, or the endpoint's reasoning parser does not fit the model",
        "raise max_output_tokens, and serve the model with its --reasoning-parser; read one: {show}",
        "Responses have a <think> block that never ends.",
    ),
    Hypothesis(
        *("answers_refused", Layer.MODEL_SERVING, 44, "the model refuses to answer"),
        "the model, its system prompt or a filter in front of it declines these prompts",
        "read one ({show}); change the prompt or system prompt, or use a model without this filter",
        "Responses are refusals.",
    ),
    Hypothesis(
        *("answers_repeat", Layer.MODEL_SERVING, 43, "responses repeat one token or phrase"),
        "generation is broken: wrong weights, dtype or quantization, a wrong chat template, or a temperature of 0",
        "ask the endpoint directly (gymnast check endpoint URL); compare weights, template and sampling with the "
        "model card",
        "Responses repeat one token or phrase.",
    ),
    Hypothesis(
        *("control_tokens", Layer.MODEL_SERVING, 42, "control tokens of the chat template leak into the text"),
        "the endpoint uses the wrong chat template or does not stop at the model's end-of-turn token",
        "serve the model with its own chat template and stop tokens (generation_config.json, --chat-template); read "
        "one: {show}",
        "Responses contain control tokens.",
    ),
    Hypothesis(
        *("prompt_echoed", Layer.MODEL_SERVING, 41, "responses repeat the prompt instead of answering it"),
        "the model is a base model without a chat template, or the endpoint returns the prompt with the completion",
        "use an instruction-tuned model with its chat template; turn off echo at the endpoint",
        "Responses start with the prompt.",
    ),
    Hypothesis(
        *("answers_same", Layer.MODEL_SERVING, 40, "every prompt gets the same response"),
        "the endpoint does not see the prompt: a cache or mock answers, or the chat template drops the user's message",
        "send two different prompts yourself (gymnast check endpoint URL); turn off response caching in proxies",
        "All prompts get the same response.",
    ),
    Hypothesis(
        *("verifier_rejects_right", Layer.VERIFIER, 39, "the verifier rejects correct answers"),
        "{environment} gives a correct answer, made from the row, the same reward as a wrong one: its comparison is "
        "broken, or "
        "the rows' expected answers have a form that it never matches",
        "debug verify() with one row (gymnast check env {environment}) and compare it with the row's expected "
        "answer; then "
        "gymnast reverify {run} scores the rollouts again",
        "A correct answer made from a row gets the same reward as a wrong one.",
    ),
    Hypothesis(
        *("verifier_accepts_wrong", Layer.VERIFIER, 39, "the verifier accepts wrong answers"),
        "{environment} gives a wrong answer the same full reward as a correct one",
        "fix verify() so that it compares with the row's expected answer (gymnast check env {environment}); then "
        "gymnast "
        "reverify {run} scores the rollouts again",
        "All rewards are 1, and a wrong answer gets 1, too.",
    ),
    Hypothesis(
        *("verifier_constant", Layer.VERIFIER, 39, "the verifier gives every answer the same reward"),
        "{environment} does not tell a correct answer from a wrong one: verify() returns a constant or a default",
        "fix verify() (gymnast check env {environment}); then gymnast reverify {run} scores the rollouts again",
        "All rewards are equal and not 1, and a correct and a wrong answer get the same one as well.",
    ),
    Hypothesis(
        *(
            "answer_not_extracted",
            Layer.CONFIG,
            33,
            "the verifier finds no answer in the responses: they are not in the required format",
        ),
        "the verifier works, and extracts nothing from these responses: the prompt does not ask for the format that "
        "it reads, or the model does not keep to it",
        "compare one transcript with the format that {environment} reads ({show}); ask for that format in the "
        "prompt, then "
        "collect again",
        "The verifier extracts no answer from the responses, although they have one.",
    ),
    Hypothesis(
        *("labels_wrong", Layer.DATA_SCHEMA, 34, "the expected answers do not belong to their rows"),
        "the model's answers are readable and follow the labels of other rows or another notation: the labels are "
        "shifted, permuted or written in another form",
        "compare the expected_answer of a few rows with their questions in the input file, correct it, then gymnast "
        "reverify {run} scores the rollouts again",
        "Answers match the labels of other rows, or miss their own more often than guessing would.",
    ),
    Hypothesis(
        *("answers_wrong", Layer.MODEL_SERVING, 31, "the model's answers are wrong; the verifier works"),
        "a correct answer gets its reward, and none of these responses has one: the tasks are too hard for this "
        "model, or it is "
        "not the model you meant",
        "check which model answered (gymnast check endpoint URL) and read three transcripts ({show}); use easier "
        "tasks or a "
        "stronger model",
        "The verifier tells right from wrong, and no response is right.",
    ),
    Hypothesis(
        *(REWARDS_EQUAL, Layer.VERIFIER, 25, "all rewards are the same, and no check explains why"),
        "unknown: the verifier, the rows, the prompt's answer format or the model",
        "compare three transcripts ({show}) with what the verifier extracted, and check the rows: gymnast check "
        "rows DATA "
        "--against {environment}",
        "All rewards are equal, and not 1, and no check explains it.",
    ),
)
_BY_ID: Final = {hypothesis.id: hypothesis for hypothesis in HYPOTHESES}


def explain_study(study: RewardStudy) -> tuple[str, RewardCheck | None]:
    """The explanation with the strongest check behind it, and that check."""
    failed = {check.id: check for check in study.checks if check.verdict is Verdict.FAILED}
    probe = next((check for check in study.checks if check.id == "verifier"), None)
    if study.reward == 1.0:
        is_blind = probe is not None and probe.verdict is Verdict.FAILED
        return ("verifier_accepts_wrong", probe) if is_blind else ("", None)
    observed = [name for name in _BY_ID if name in failed and failed[name].is_direct and name != "labels_wrong"]
    if observed:
        return observed[0], failed[observed[0]]
    if any(name in failed for name in _REPORTED):
        return "", None
    return _explain_by_verifier(study, probe, failed.get("answer_not_extracted") or failed.get("nothing_extracted"))


def _explain_by_verifier(
    study: RewardStudy, probe: RewardCheck | None, unread: RewardCheck | None
) -> tuple[str, RewardCheck | None]:
    """The remaining explanations if the responses show nothing: the verifier, the answer's format, the model."""
    if probe is not None and probe.verdict is Verdict.FAILED:
        return ("verifier_rejects_right" if study.reward == 0.0 else "verifier_constant"), probe
    labels = next((check for check in study.checks if check.id == "labels_wrong"), None)
    if labels is not None and labels.verdict is Verdict.FAILED and study.reward == 0.0:
        return "labels_wrong", labels
    if unread is not None:
        return "answer_not_extracted", unread
    if probe is not None and probe.verdict is Verdict.PASSED:
        return "answers_wrong", probe
    return REWARDS_EQUAL, None


def explain_equal_rewards(name: str, facts: Facts) -> Finding | None:
    """The finding `name`, if it is the strongest explanation for an agent's equal rewards."""
    run = facts.run
    for study in run.studies if run is not None else ():
        explanation, check = explain_study(study)
        if explanation == name and run is not None:
            return _finding(facts, study, _BY_ID[name], check)
    return None


def _finding(facts: Facts, study: RewardStudy, hypothesis: Hypothesis, check: RewardCheck | None) -> Finding:
    assert facts.run is not None
    key = check.keys[0] if check is not None and check.keys else "0:0"
    run, environment = str(facts.run.output), study.environment or "the environment"
    show = _SHOW.format(run=run, key=key)
    whose = "" if study.is_whole_run else f" of {study.agent}"
    return Finding(
        hypothesis.id,
        hypothesis.layer,
        f"{hypothesis.symptom} (all {study.scored} rewards{whose} are {study.reward:g})",
        hypothesis.cause.format(environment=environment),
        hypothesis.action.format(run=run, environment=environment, show=show),
        _evidence(run, study, check),
        _confidence(hypothesis, study, check),
        affected=study.scored,
        weight=hypothesis.weight,
        explains=frozenset({REWARDS_EQUAL}) if hypothesis.id != REWARDS_EQUAL else frozenset(),
    )


def _confidence(hypothesis: Hypothesis, study: RewardStudy, check: RewardCheck | None) -> Confidence:
    if check is None:
        return Confidence.LOW
    if hypothesis.id == "verifier_rejects_right":
        answered = next((other for other in study.checks if other.id == "answer_not_extracted"), None)
        is_seen = answered is not None and answered.verdict is Verdict.FAILED
        return Confidence.HIGH if check.is_direct or is_seen else Confidence.MEDIUM
    return (
        Confidence.MEDIUM
        if hypothesis.id in {"answers_wrong", "answer_not_extracted", "answers_same", "labels_wrong"}
        else Confidence.HIGH
    )


def _evidence(run: str, study: RewardStudy, check: RewardCheck | None) -> tuple[Evidence, ...]:
    evidence = [Evidence(check.detail, run, None, check.keys)] if check is not None else []
    others = [other for other in study.checks if other is not check]
    also = [other.detail for other in others if other.verdict is Verdict.FAILED]
    evidence += [Evidence(f"also: {detail}") for detail in also[:2]]
    passed = [_PASSED[other.id] for other in others if other.verdict is Verdict.PASSED and other.id in _PASSED]
    if passed:
        evidence.append(Evidence("checked, and not the reason: " + ", ".join(passed)))
    missing = [other.detail for other in others if other.verdict is Verdict.NOT_MADE]
    if missing:
        evidence.append(Evidence("not checked: " + "; ".join(missing)))
    return tuple(evidence)


RULES: Final = tuple(
    Rule(
        *(hypothesis.id, hypothesis.layer, 6, hypothesis.about),
        hypothesis.action,
        partial(explain_equal_rewards, hypothesis.id),
    )
    for hypothesis in HYPOTHESES
)
