"""Whether two verdicts on a request are equal, and which differences are deliberate.

Equal: every field of the original's verdict has the same value here. The repeated request, durations and the calls of
judges are left out. Deliberate differences are rules with a name; docs/scoring.md explains each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from gymnast.types.task import FAILURE_CLASS, ROLLOUT_INDEX, TASK_INDEX

_IGNORED: Final = frozenset(
    {"responses_create_params", "response", "unit_tests_time_taken", "verification_time", "verification_result"}
)
_METRICS: Final = frozenset({"agent_metrics", "key_metrics", "group_level_metrics"})
_MAX_INT: Final = 2**63
_REFUSED_ROW: Final = re.compile(
    "unknown task|more than a plain expression|the row cannot be scored|images do not run here"
    "|missing: (?:instance_id|repo)|missing for mode|'eval' or 'repro-gen'"
    "|'expected_answer'.*should be a valid string|should be a finite number|'follow_ups'.*should be a valid string"
)
_LACKING: Final = re.compile(r"No module named \W*(pandas|scipy|sklearn|sympy|networkx|psutil|requests|yaml)\b")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
_DEEP: Final = 900
_CODE: Final = re.compile(r"[^\W\d]|['\"]")


class Kind(StrEnum):
    """How a comparison ended."""

    EQUAL = "equal"
    BY_DESIGN = "by design"
    REFUSED = "refused by the original"
    DIFFERENT = "different"


@dataclass(frozen=True)
class Comparison:
    """What was found: the fields that differ, with both values, and the rule that allows it."""

    kind: Kind
    fields: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    rule: str | None = None

    @property
    def signature(self) -> str:
        """Differences with the same signature are probably one."""
        names = {name.rpartition(".")[2] for name in self.fields}
        return ", ".join(sorted(names))


Replies = list[dict[str, Any]]
Rule = Callable[[dict[str, Any], dict[str, tuple[Any, Any]], Replies, Replies], bool]


def compare(request: dict[str, Any], original: Replies, ours: Replies) -> Comparison:
    """Compare the replies of both sides to a request."""
    if not original or any(reply["status"] != 200 for reply in original if not _is_tool(request, original, reply)):
        return Comparison(Kind.REFUSED)
    if any(FAILURE_CLASS in (reply["body"] or {}) for reply in original if isinstance(reply["body"], dict)):
        return Comparison(Kind.REFUSED)
    fields = find_differences(original, ours)
    if not fields:
        return Comparison(Kind.EQUAL)
    for (environment, name), applies in RULES.items():
        if environment in ("*", request["environment"]) and applies(request, fields, original, ours):
            return Comparison(Kind.BY_DESIGN, fields, name)
    return Comparison(Kind.DIFFERENT, fields)


def _is_tool(request: dict[str, Any], replies: Replies, reply: dict[str, Any]) -> bool:
    path = request["steps"][replies.index(reply)][0]
    return path not in ("/verify", "/reset", "/step", "/seed_session", "/aggregate_metrics", "/compare")


def find_differences(original: Replies, ours: Replies) -> dict[str, tuple[Any, Any]]:
    """The fields of the original's replies that have another value here."""
    fields: dict[str, tuple[Any, Any]] = {}
    for at, theirs in enumerate(original):
        mine = ours[at] if at < len(ours) else {"status": None, "body": None}
        prefix = f"{at}." if len(original) > 1 else ""
        if theirs["status"] != mine["status"]:
            fields[prefix + "status"] = (theirs["status"], mine["status"])
        if isinstance(theirs["body"], dict) and isinstance(mine["body"], dict):
            if FAILURE_CLASS in mine["body"]:
                fields[prefix + FAILURE_CLASS] = (None, mine["body"][FAILURE_CLASS])
            for name, value in theirs["body"].items():
                own = mine["body"].get(name)
                rounded = name in _METRICS
                if name in _IGNORED or (name == "judge_evaluations" and _have_same_labels(value, own)):
                    continue
                if not is_same(_readable(name, value), _readable(name, own), rounded=rounded):
                    fields[prefix + name] = (value, own)
        elif not is_same(theirs["body"], mine["body"]):
            fields[prefix + "body"] = (theirs["body"], mine["body"])
        if theirs.get("asked") != mine.get("asked"):
            fields[prefix + "asked"] = (theirs.get("asked"), mine.get("asked"))
    return fields


def _have_same_labels(theirs: Any, ours: Any) -> bool:
    """Whether two lists of a judge's calls are as long, and have the same verdicts where the original's have any."""
    if not isinstance(theirs, list) or not isinstance(ours, list) or len(theirs) != len(ours):
        return False
    pairs = zip(theirs, ours, strict=True)
    labels = [(one["verdict_label"], other["verdict_label"]) for one, other in pairs if "verdict_label" in one]
    return all(one == other for one, other in labels)


def _readable(name: str, value: Any) -> Any:
    """Of an error's details all but traceback, time and addresses of objects; of a step NeMo Gym's keys."""
    if name == "metadata" and isinstance(value, dict):
        return {
            key: _ADDRESS.sub(" at 0x", item) if isinstance(item, str) else item
            for key, item in value.items()
            if key not in ("traceback", "error_traceback", "execution time")
        }
    if name == "info" and isinstance(value, dict):
        return {key: item for key, item in value.items() if key != "supports_explicit_close"}
    return value


def is_same(one: Any, other: Any, *, rounded: bool = False) -> bool:
    """JSON equality in which 1 is 1.0, true is not 1, NaN is NaN and an integer of more than 64 bits may be text.

    `rounded`: fractions may differ as much as sums in another order do.
    """
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return bool(one == other) or (math.isnan(one) and math.isnan(other)) or (rounded and _is_close(one, other))
    if isinstance(one, int) and abs(one) >= _MAX_INT:
        return bool(str(one) == other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            is_same(value, other[name], rounded=rounded) for name, value in one.items()
        )
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(is_same(*pair, rounded=rounded) for pair in pairs)
    return type(one) is type(other) and bool(one == other)


def _is_close(one: float, other: float) -> bool:
    return not (isinstance(one, int) and isinstance(other, int)) and math.isclose(
        one, other, rel_tol=1e-9, abs_tol=1e-9
    )


def _judge_failed(
    _request: dict[str, Any], fields: dict[str, tuple[Any, Any]], _original: Replies, _ours: Replies
) -> bool:
    return any("judge" in str(ours) for name, (_, ours) in fields.items() if name.endswith(FAILURE_CLASS))


def _row_is_refused(
    _request: dict[str, Any], _fields: dict[str, tuple[Any, Any]], _original: Replies, ours: Replies
) -> bool:
    return any(reply["status"] == 422 and _REFUSED_ROW.search(str(reply["body"])) for reply in ours)


def _params_are_refused(
    _request: dict[str, Any], _fields: dict[str, tuple[Any, Any]], _original: Replies, ours: Replies
) -> bool:
    """An input without a type that is not a message is a list of MCP tools for the original: no model sees it."""
    refused = [str(reply["body"]) for reply in ours if reply["status"] == 422]
    return any("'responses_create_params'" in body for body in refused)


def _has_no_tests(
    _request: dict[str, Any], _fields: dict[str, tuple[Any, Any]], original: Replies, ours: Replies
) -> bool:
    """The original looks at the tests of a row only if there is a reply."""
    is_empty = original[-1]["body"].get("extracted_model_output") is None
    return is_empty and ours[-1]["status"] == 422 and "'unit_tests'" in str(ours[-1]["body"])


def _lacks_a_package(
    _request: dict[str, Any], _fields: dict[str, tuple[Any, Any]], _original: Replies, ours: Replies
) -> bool:
    return _LACKING.search(str(ours[-1]["body"].get("metadata"))) is not None


def _ran_out_of_time(
    _request: dict[str, Any], _fields: dict[str, tuple[Any, Any]], _original: Replies, ours: Replies
) -> bool:
    return any("math-verify did not finish" in str(reply["body"]) for reply in ours)


def _answer_is_code(
    request: dict[str, Any], fields: dict[str, tuple[Any, Any]], original: Replies, _ours: Replies
) -> bool:
    """The original evaluates answers to countdown tasks as Python, so that one may call functions or quote a number."""
    metadata, verdict = request["steps"][-1][1].get("metadata"), original[-1]["body"]
    is_countdown = isinstance(metadata, dict) and metadata.get("source_dataset") == "countdown"
    names = {name.rpartition(".")[2] for name in fields}
    return is_countdown and names <= {"reward", "score"} and bool(_CODE.search(str(verdict["extracted_answer"])))


def _reward_is_null(
    _request: dict[str, Any], fields: dict[str, tuple[Any, Any]], _original: Replies, _ours: Replies
) -> bool:
    """Of one response, or of several that `/compare` gets: its figures are made of the same scores."""
    rewards = next((theirs for name, (theirs, _) in fields.items() if name.endswith("rewards")), None)
    if isinstance(rewards, list) and None in rewards:
        return {name.rpartition(".")[2] for name in fields} <= {"rewards", "comparison_results", "metrics"}
    return all(name.endswith("reward") and theirs is None for name, (theirs, _) in fields.items())


def _labels_are_broken_up(
    _request: dict[str, Any], fields: dict[str, tuple[Any, Any]], _original: Replies, _ours: Replies
) -> bool:
    """The judge was asked the same, but for blanks inside of labels that an answer has."""
    return all(
        name.endswith("asked") and str(theirs).replace(" ", "") == str(ours).replace(" ", "")
        for name, (theirs, ours) in fields.items()
    )


def _input_is_a_text(
    request: dict[str, Any], fields: dict[str, tuple[Any, Any]], _original: Replies, _ours: Replies
) -> bool:
    """The original shows its judge an empty message for each character."""
    values = [body.get("responses_create_params", {}).get("input") for _, body in request["steps"]]
    return all(name.endswith("asked") for name in fields) and any(isinstance(value, str) for value in values)


def _session_is_refused(
    request: dict[str, Any], fields: dict[str, tuple[Any, Any]], _original: Replies, _ours: Replies
) -> bool:
    """The original does not look at the row before the verdict."""
    paths = [path for path, _ in request["steps"]]
    return all(
        name.endswith(".status") and paths[int(name.split(".")[0])] == "/seed_session" and values == (200, 422)
        for name, values in fields.items()
    )


def _session_is_missing(
    _request: dict[str, Any], fields: dict[str, tuple[Any, Any]], original: Replies, ours: Replies
) -> bool:
    """Both refuse the call, with texts of their own."""
    at = len(original) - 1
    return (
        len(ours) > at
        and original[at]["status"] == ours[at]["status"] == 400
        and all(name.endswith("detail") and "session" in str(own) for name, (_, own) in fields.items())
    )


def _recurs_without_end(
    _request: dict[str, Any], fields: dict[str, tuple[Any, Any]], _original: Replies, _ours: Replies
) -> bool:
    """A schema that is its own reference; the rest of the message is of the Python that runs it."""
    return all(
        name.endswith("error_message")
        and str(theirs).startswith("RecursionError")
        and str(own).startswith("RecursionError")
        for name, (theirs, own) in fields.items()
    )


def _has_agent_names(
    request: dict[str, Any], _fields: dict[str, tuple[Any, Any]], _original: Replies, _ours: Replies
) -> bool:
    """The original takes a number of that name for the agent's name, and keeps the metrics of one of the agents."""
    return any(_is_number(row.get("agent_name")) for row in _metric_rows(request))


def _has_no_number(
    request: dict[str, Any], fields: dict[str, tuple[Any, Any]], _original: Replies, _ours: Replies
) -> bool:
    """The original's sums over a reward that is NaN are null."""
    names = {name.rpartition(".")[2] for name in fields}
    return names <= {"agent_metrics", "key_metrics"} and any(
        isinstance(value, float) and math.isnan(value) for row in _metric_rows(request) for value in row.values()
    )


def _is_out_of_order(
    request: dict[str, Any], fields: dict[str, tuple[Any, Any]], _original: Replies, _ours: Replies
) -> bool:
    """The original's own runner sorts rollouts before their metrics; its servers take them as they come."""
    keys = [(row.get(TASK_INDEX, 0), row.get(ROLLOUT_INDEX, 0)) for row in _metric_rows(request)]
    return fields.keys() <= {"agent_metrics", "key_metrics"} and keys != sorted(keys)


def _nests_deeply(
    request: dict[str, Any], fields: dict[str, tuple[Any, Any]], _original: Replies, _ours: Replies
) -> bool:
    """How deep JSON may be depends on the Python that reads it; only the names of errors differ."""
    names = {name.rpartition(".")[2] for name in fields}
    output = str(request["steps"][-1][1].get("response"))
    return names <= {"category", "error_type", "error_message"} and output.count("[") + output.count("{") > _DEEP


def _has_no_hand(
    request: dict[str, Any], fields: dict[str, tuple[Any, Any]], _original: Replies, ours: Replies
) -> bool:
    """The original plays a step without a reset from an empty state."""
    at = len(ours) - 1
    starts = [path for path, _ in request["steps"][: at + 1]]
    return ours[-1]["status"] == 400 and starts[at] == "/step" and "/reset" not in starts


def _closed_its_output(
    _request: dict[str, Any], fields: dict[str, tuple[Any, Any]], _original: Replies, _ours: Replies
) -> bool:
    """The error of the next test is that of the stream that stands in for the output."""
    ((name, (theirs, ours)),) = fields.items() if len(fields) == 1 else [("", ("", ""))]
    return name == "metadata" and "Capturing.__enter__" in str(theirs) and "closed file" in str(ours)


def _metric_rows(request: dict[str, Any]) -> list[dict[str, Any]]:
    path, body = request["steps"][-1]
    return [row for row in body["verify_responses"] if isinstance(row, dict)] if path == "/aggregate_metrics" else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


RULES: dict[tuple[str, str], Rule] = {
    ("*", "a number called agent_name is one number of many in metrics"): _has_agent_names,
    ("*", "the first k rollouts of a task are those with the lowest indices"): _is_out_of_order,
    ("*", "how deep JSON may be nested depends on the Python that reads it"): _nests_deeply,
    ("*", "a step of a session that was not reset is refused"): _has_no_hand,
    ("*", "a score that is NaN is left out of metrics"): _has_no_number,
    ("*", "a session for a row that cannot be scored is refused"): _session_is_refused,
    ("genrm_compare", "the judge sees an input that is a text"): _input_is_a_text,
    ("multichallenge", "a row with a weight that is not finite is refused"): _row_is_refused,
    ("workplace_assistant", "a tool that is called without a session is refused, in other words"): _session_is_missing,
    ("*", "labels of verdicts inside answers are broken up before a judge reads them"): _labels_are_broken_up,
    ("*", "a judge without a verdict is a failure"): _judge_failed,
    ("reasoning_gym", "a row with an unknown task, or with more than arithmetic, is refused"): _row_is_refused,
    (
        "swerl_gen",
        "a row without instance, scripts or mode, or with a repository that is only in an image, is refused",
    ): _row_is_refused,
    ("*", "an input that is not a message is refused"): _params_are_refused,
    ("structured_outputs", "an endless recursion has the text of the Python that runs it"): _recurs_without_end,
    ("code_gen", "a program that closes its output has another error"): _closed_its_output,
    ("code_gen", "a row without tests is refused"): _has_no_tests,
    ("code_gen", "programs find numpy, and not all packages of the original"): _lacks_a_package,
    ("example_multi_turn_gymnasium", "a row that fails in a later step is refused at once"): _row_is_refused,
    ("math_with_judge", "running out of time is a failure"): _ran_out_of_time,
    ("reasoning_gym", "answers are not run as code"): _answer_is_code,
    ("genrm_compare", "a score that is not finite counts as none"): _reward_is_null,
}
"""By environment (`*` for all) and name."""
