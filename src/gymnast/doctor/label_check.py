"""Compares the answers of a sample with the labels of other rows: are the labels shifted, or written in another form?

A model that guesses is right now and then. Answers that are readable and never right have a system.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from gymnast.doctor.facts import RewardCheck, Verdict

if TYPE_CHECKING:
    from gymnast.doctor.transcripts import Rollout

ID: Final = "labels_wrong"
_MIN_TASKS: Final = 8
_MIN_SHARE: Final = 0.9
_OFFSETS: Final = (1, -1, 2, -2)
_CHANCE: Final = 0.05
_MIN_LABEL: Final = 3
"""Characters of a label that does not occur in a text by chance."""
_MIN_DIFFERENT: Final = 0.8
"""Labels that nearly all differ are answers to questions, not classes that a weak model confuses."""


def label_check(sample: list[Rollout]) -> RewardCheck:
    """Failed if the labels belong to other rows, follow a fixed mapping, or are missed more often than by guessing."""
    answers = _answers(sample)
    labels = {task: _text(rollout.expected) for rollout in sample if isinstance(task := rollout.task, int)}
    labels = {task: label for task, label in labels.items() if label}
    tasks = sorted(set(answers) & set(labels))
    if len(tasks) < _MIN_TASKS or len({labels[task] for task in tasks}) < 2:
        return _mention_check(sample, labels)
    detail = _shift(answers, labels, tasks) or _mapping(answers, labels, tasks) or _below_chance(answers, labels, tasks)
    return RewardCheck(
        ID,
        Verdict.FAILED if detail else Verdict.PASSED,
        detail or f"the answers of {len(tasks)} tasks are not those of other rows",
        tuple(f"{task}:0" for task in tasks[:3]),
    )


def _mention_check(sample: list[Rollout], labels: dict[int, str]) -> RewardCheck:
    """Without extracted answers: failed if the texts name the labels of other rows, and never their own."""
    own = {task: label for task, label in labels.items() if len(label) >= _MIN_LABEL}
    if len(own) < _MIN_TASKS or len(set(own.values())) < _MIN_DIFFERENT * len(own):
        return RewardCheck(ID, Verdict.NOT_MADE, "too few extracted answers to compare with the labels")
    patterns = {label: re.compile(rf"(?<!\w){re.escape(label)}(?!\w)") for label in set(own.values())}
    rollouts = [rollout for rollout in sample if rollout.task in own]
    texts = [(own[rollout.task], rollout.text.casefold(), rollout.prompt.casefold()) for rollout in rollouts]
    named = sum(patterns[label].search(text) is not None for label, text, _ in texts)
    foreign = sum(
        any(
            other != label and pattern.search(text) is not None and pattern.search(prompt) is None
            for other, pattern in patterns.items()
        )
        for label, text, prompt in texts
    )
    has_failed = foreign >= _MIN_SHARE * len(texts) and named <= (1 - _MIN_SHARE) * len(texts)
    detail = f"{foreign} of {len(texts)} responses name the expected answer of another row, {named} that of their own"
    return RewardCheck(
        ID, Verdict.FAILED if has_failed else Verdict.PASSED, detail, tuple(rollout.key for rollout in rollouts[:3])
    )


def _answers(sample: list[Rollout]) -> dict[int, str]:
    """The most common extracted answer of each task."""
    answers: dict[int, Counter[str]] = defaultdict(Counter)
    for rollout in sample:
        answer = _text(rollout.record.get("extracted_answer"))
        if answer and isinstance(rollout.task, int):
            answers[rollout.task][answer] += 1
    return {task: counts.most_common(1)[0][0] for task, counts in answers.items()}


def _text(value: object) -> str:
    return str(value).strip().casefold() if isinstance(value, (str, int, float)) else ""


def _shift(answers: dict[int, str], labels: dict[int, str], tasks: list[int]) -> str:
    for offset in _OFFSETS:
        pairs = [(answers[task], labels[task + offset]) for task in tasks if task + offset in labels]
        right = sum(answer == label for answer, label in pairs)
        if len(pairs) >= _MIN_TASKS - 2 and right >= _MIN_SHARE * len(pairs):
            return f"{right} of {len(pairs)} answers match the expected answer of the row {offset:+d} from their own"
    return ""


def _mapping(answers: dict[int, str], labels: dict[int, str], tasks: list[int]) -> str:
    """A fixed mapping from labels to answers, such as letters against numbers."""
    by_label: dict[str, Counter[str]] = defaultdict(Counter)
    for task in tasks:
        by_label[labels[task]][answers[task]] += 1
    usual = {label: counts.most_common(1)[0][0] for label, counts in by_label.items()}
    fitting = sum(by_label[label][answer] for label, answer in usual.items())
    is_fixed = len(set(usual.values())) == len(usual) and fitting >= _MIN_SHARE * len(tasks)
    repeated = len(tasks) >= 2 * len(usual)
    pairs = ", ".join(f"{label} is answered {answer}" for label, answer in list(usual.items())[:3])
    return f"the answers follow the labels by a fixed rule: {pairs}" if is_fixed and repeated else ""


def _below_chance(answers: dict[int, str], labels: dict[int, str], tasks: list[int]) -> str:
    options = {*(answers[task] for task in tasks), *(labels[task] for task in tasks)}
    if len(options) * 2 > len(tasks) or not set(answers.values()) <= set(labels.values()):
        return ""
    chance = (1 - 1 / len(options)) ** len(tasks)
    if chance > _CHANCE:
        return ""
    return (
        f"{len(tasks)} tasks have {len(options)} possible answers, and none of theirs is right: guessing would miss "
        f"all of them with a probability of {chance:.1%}"
    )
