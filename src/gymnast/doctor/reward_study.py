"""Studies rollouts whose rewards are all the same: asks a sample of records, their rows and the verifier itself.

Equal rewards are a question, not an answer. Every check says what it saw; the rules pick the strongest one that failed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.checks.verifier_probe import ProbeResult, expected_of, probe_verifier
from gymnast.config.roots import BUILTIN
from gymnast.doctor import transcripts
from gymnast.doctor.facts import RewardCheck, RewardStudy, Verdict
from gymnast.doctor.label_check import label_check
from gymnast.doctor.transcripts import Rollout
from gymnast.store.keys import key_of_line
from gymnast.store.records import record_file
from gymnast.types.task import AGENT_REF, PARAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gymnast.doctor.facts import RecordFacts
    from gymnast.store.manifest import Manifest
    from gymnast.store.paths import RunPaths

MIN_ROLLOUTS: Final = 16
MIN_TASKS: Final = 4
_MAX_SAMPLE: Final = 192
_MAX_PROBED: Final = 3
_MAX_KEYS: Final = 3
_MOST: Final = 0.8
_HALF: Final = 0.5
_BEHAVIORS: Final[tuple[tuple[str, float, Callable[[Rollout], bool], str], ...]] = (
    ("tool_calls_in_text", _HALF, transcripts.writes_tool_call, "have a tool call in their text and made none"),
    ("tools_fail", _HALF, transcripts.only_failing_tools, "used tools that returned nothing but errors"),
    ("steps_exhausted", _MOST, transcripts.reaches_step_limit, "ended at the agent's limit of steps or time"),
    ("reasoning_open", _HALF, transcripts.leaves_reasoning_open, "start a <think> block and never close it"),
    ("answers_refused", _MOST, transcripts.refuses, "refuse to answer"),
    ("answers_repeat", _MOST, transcripts.repeats_itself, "repeat one token or phrase"),
    (
        "control_tokens",
        _HALF,
        transcripts.leaks_control_tokens,
        "have control tokens of the chat template in their text",
    ),
    ("prompt_echoed", _MOST, transcripts.echoes_prompt, "start with the prompt itself"),
)
"""What responses may have in common: the finding, the share that makes it one, the test, and its words."""


def study_rewards(paths: RunPaths, manifest: Manifest | None, records: RecordFacts) -> list[RewardStudy]:
    """Study every agent whose rollouts all have the same reward."""
    equal = {
        agent: rewards
        for agent, rewards in records.rewards.items()
        if rewards.low == rewards.high and rewards.count >= MIN_ROLLOUTS and len(rewards.tasks) >= MIN_TASKS
    }
    samples = _read_samples(paths, set(equal)) if equal else {}
    return [
        RewardStudy(
            agent,
            _environment_of(manifest, agent),
            rewards.low,
            rewards.count,
            len(records.rewards) == 1,
            tuple(_checks(samples[agent], manifest, agent)),
        )
        for agent, rewards in equal.items()
        if samples.get(agent)
    ]


def _read_samples(paths: RunPaths, agents: set[str]) -> dict[str, list[Rollout]]:
    """The first records of each agent, with their planned rows."""
    samples: dict[str, list[dict[str, Any]]] = {agent: [] for agent in agents}
    with record_file(paths.output).open() as stream:
        for raw in stream:
            if all(len(records) >= _MAX_SAMPLE for records in samples.values()):
                break
            try:
                record = orjson.loads(raw)
            except orjson.JSONDecodeError:
                continue
            records = samples.get(_agent_of(record))
            if records is not None and len(records) < _MAX_SAMPLE:
                records.append(record)
    wanted = {Rollout(record, None).key for records in samples.values() for record in records}
    rows = _read_rows(paths.materialized_inputs, wanted)
    return {
        agent: [Rollout(record, rows.get(Rollout(record, None).key)) for record in records]
        for agent, records in samples.items()
    }


def _agent_of(record: Any) -> str:
    reference = record.get(AGENT_REF) if isinstance(record, dict) else None
    return str(reference.get("name") or "") if isinstance(reference, dict) else ""


def _read_rows(plan: Path, keys: set[str]) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    if not plan.exists():
        return rows
    with plan.open("rb", buffering=1 << 20) as stream:
        for raw in stream:
            key = str(key_of_line(raw.rstrip(b"\r\n")))
            if key in keys:
                rows[key] = orjson.loads(raw)
                if len(rows) == len(keys):
                    break
    return rows


def _checks(sample: list[Rollout], manifest: Manifest | None, agent: str) -> Iterator[RewardCheck]:
    yield _share_check(
        "rollouts_foreign",
        sample,
        transcripts.differs_from_plan,
        _HALF,
        "have a different prompt from their planned row",
    )
    yield from _row_checks(sample, manifest, agent)
    for name, limit, test, words in _BEHAVIORS:
        yield _share_check(name, sample, test, limit, words)
    yield _same_text(sample)
    yield _share_check("answers_empty", sample, transcripts.is_empty, _HALF, "are empty")
    yield _share_check(
        "answer_not_extracted",
        sample,
        transcripts.contains_expected,
        _HALF,
        "contain the expected answer",
        is_direct=False,
    )
    yield _share_check(
        "nothing_extracted",
        sample,
        transcripts.has_no_extraction,
        _MOST,
        "have text, but the verifier extracted nothing from it",
        is_direct=False,
    )
    yield label_check(sample)
    yield _probe(sample, manifest, agent)


def _share_check(
    name: str,
    sample: list[Rollout],
    test: Callable[[Rollout], bool],
    limit: float,
    words: str,
    *,
    is_direct: bool = True,
) -> RewardCheck:
    """Failed if the test holds for at least this share of the sample."""
    matching = [rollout for rollout in sample if test(rollout)]
    has_failed = len(matching) >= max(1, limit * len(sample))
    keys = tuple(rollout.key for rollout in matching[:_MAX_KEYS])
    detail = f"{len(matching)} of {len(sample)} rollouts {words}"
    return RewardCheck(name, Verdict.FAILED if has_failed else Verdict.PASSED, detail, keys, is_direct)


def _same_text(sample: list[Rollout]) -> RewardCheck:
    texts = {rollout.text.strip() for rollout in sample}
    prompts = {rollout.prompt for rollout in sample}
    text = next(iter(texts))
    is_same = len(texts) == 1 and len(prompts) >= MIN_TASKS and not transcripts.is_short(text)
    detail = f"{len(texts)} different responses to {len(prompts)} different prompts"
    return RewardCheck("answers_same", Verdict.FAILED if is_same else Verdict.PASSED, detail)


# --- rows ------------------------------------------------------------------------------------------------------------


def _row_checks(sample: list[Rollout], manifest: Manifest | None, agent: str) -> Iterator[RewardCheck]:
    rows = [rollout.row if rollout.row is not None else rollout.record for rollout in sample]
    tasks, prompts = {rollout.task for rollout in sample}, {rollout.prompt for rollout in sample}
    is_same = len(prompts) == 1 and len(tasks) >= MIN_TASKS
    yield RewardCheck(
        "rows_same",
        Verdict.FAILED if is_same else Verdict.PASSED,
        f"{len(tasks)} tasks have {len(prompts)} different prompts",
    )
    model = task_model_of(manifest, _environment_of(manifest, agent))
    fields = set(getattr(model, "model_fields", ())) - {PARAMS}
    if not fields:
        yield RewardCheck("rows_foreign", Verdict.NOT_MADE, "the environment's task model is not known")
        return
    known = sum(any(row.get(name) is not None for name in fields) for row in rows)
    yield RewardCheck(
        "rows_foreign",
        Verdict.PASSED if known else Verdict.FAILED,
        f"{known} of {len(rows)} rows have a field that the environment reads ({', '.join(sorted(fields)[:6])})",
    )
    if "expected_answer" in fields:
        answered = sum(expected_of(row) is not None for row in rows)
        yield RewardCheck(
            "expected_missing",
            Verdict.PASSED if answered > _HALF * len(rows) else Verdict.FAILED,
            f"{answered} of {len(rows)} rows have an expected answer",
        )


# --- the verifier ----------------------------------------------------------------------------------------------------


def _environment_of(manifest: Manifest | None, agent: str) -> str:
    block = manifest.settings.get(agent) if manifest is not None else None
    settings = block.get("settings") if isinstance(block, dict) else None
    reference = settings.get("resources_server") if isinstance(settings, dict) else None
    return str(reference.get("name") or "") if isinstance(reference, dict) else ""


def _probe(sample: list[Rollout], manifest: Manifest | None, agent: str) -> RewardCheck:
    """Does the verifier give a correct and a wrong answer different rewards?"""
    block = manifest.settings.get(_environment_of(manifest, agent)) if manifest is not None else None
    implementation = block.get("implementation") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(implementation, str):
        return RewardCheck("verifier", Verdict.NOT_MADE, "the run does not say which environment scored it")
    rows = list({rollout.task: rollout.row or rollout.record for rollout in sample}.values())[:_MAX_PROBED]
    result = probe_verifier(implementation.rpartition("/")[2], dict(block.get("settings") or {}), rows)
    return describe_probe(result)


def describe_probe(result: ProbeResult) -> RewardCheck:
    """The probe as a check: failed if correct and wrong answers get the same reward."""
    if result.right is None or result.wrong is None:
        return RewardCheck("verifier", Verdict.NOT_MADE, f"the verifier could not be probed: {result.problem}")
    detail = f"a correct answer made from the row gets {result.right:g}, a wrong one {result.wrong:g}"
    verdict = Verdict.PASSED if result.tells_apart else Verdict.FAILED
    return RewardCheck("verifier", verdict, detail, is_direct=result.is_known_form)


def task_model_of(manifest: Manifest | None, instance: str) -> Any:
    """The task model of a run's instance, or None."""
    settings = manifest.settings.get(instance) if manifest is not None else None
    implementation = settings.get("implementation") if isinstance(settings, dict) else None
    if not isinstance(implementation, str) or not (BUILTIN / implementation / "app.py").is_file():
        return None
    name = f"gymnast.builtin.{implementation.replace('/', '.')}.app"
    try:
        __import__(name)
    except Exception:  # noqa: BLE001 - the diagnosis continues without it
        return None
    members = vars(sys.modules[name]).values()
    servers = [member for member in members if isinstance(member, type) and member.__module__ == name]
    return next((server.task_type for server in servers if hasattr(server, "task_type")), None)
