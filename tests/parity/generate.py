"""Makes requests: the n-th of an environment is a function of the seed and n, so a run can go on where it ended.

A request is JSON: `environment`, `settings`, `judge` (the scripted replies), `steps` (pairs of path and body, sent in
one session) and `together` (whether they are sent at once, each in a session of its own).
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any, Final

from tests.helpers.environments import response, said
from tests.parity.odd_code import mutate_program
from tests.parity.odd_documents import make_document
from tests.parity.odd_math import make_answers
from tests.parity.odd_output import Output, mutate_output, mutate_shape
from tests.parity.odd_replies import make_edit, make_judge_reply, make_reply
from tests.parity.odd_requests import make_run, mutate_params, mutate_response
from tests.parity.odd_rows import change_row
from tests.parity.odd_text import mutate_text
from tests.parity.odd_values import mutate_value
from tests.parity.seeds import Seed

Request = dict[str, Any]
_PARAMS: Final[dict[str, Any]] = {"responses_create_params": {"input": []}}
_MAX_TURNS: Final = 6
_JUDGE_PARAMS: Final[tuple[Any, ...]] = (
    {"input": [], "temperature": 0.0, "max_output_tokens": 512},
    {"input": [], "top_p": 0.5, "reasoning": {"effort": "low"}},
)
_OF_JUDGES: Final[tuple[tuple[str, tuple[Any, ...]], ...]] = (
    ("judge_responses_create_params", _JUDGE_PARAMS),
    ("judge_endpoint_max_concurrency", (None, 1)),
)
_VERDICTS: Final = (
    "They agree.\n[[A=B]]",
    "They differ.\n[[A!=B]]",
    "[[A=B]]",
    "[[A!=B]] or [[A=B]]",
    "Both are fine.",
)
"""What the judge of math_with_judge says."""
_SETTINGS: Final[dict[str, tuple[tuple[str, tuple[Any, ...]], ...]]] = {
    "code_gen": (("reasoning_format_penalty", (0.0, -1.0, 0.5)),),
    "equivalence_llm_judge": (
        ("check_twice_swap", (True, False)),
        ("reward_if_swap_fails", (-1.0, 0.0, 0.25)),
        ("check_full_generation_on_fail", (True, False)),
        ("extraction_length_threshold", (None, 0, 5, 120)),
        ("use_per_record_regex", (True, False)),
        ("response_extract_regex", (None, r"Answer:\s*(.*)", r"\\boxed\{(.*?)\}", "(", r"(a)|(b)|.", "")),
        ("msg_extraction_failure", ("", "nothing")),
        ("reward_if_full_generation_succeeds", (0.0, 1.0, -0.5)),
        ("judge_equal_label", ("SAME", "A", "[[A=B]]\n")),
        ("judge_not_equal_label", ("", "DIFFERENT", "=")),
        ("question_extract_regex", (r"(?s)(.{5})", r"Q: (.*)", "(", r"(a)|(e)|.")),
        ("judge_system_message", (None, "", "Be brief.")),
        *_OF_JUDGES,
    ),
    "genrm_compare": (
        ("answer_bonus", (0.0, 0.5)),
        ("reasoning_bonus", (0.0, 0.5)),
        ("group_style_penalty_coeff", (0.0, 0.3)),
        ("group_answer_length_penalty_coeff", (0.0, 0.2)),
        ("group_reasoning_length_penalty_coeff", (0.0, 0.2)),
        ("comparison_strategy", ("circular", "all_pairs")),
        ("top_percentile", (0.2, 1.0, 0.0)),
        ("use_principle", (True,)),
        ("default_principle", ("Be kind.", "")),
        ("default_score", (0.0, -1.0, 3)),
        ("default_ranking", (0.0, 6)),
        ("num_judges_per_comparison", (1, 2, 3)),
        ("genrm_responses_create_params", _JUDGE_PARAMS),
    ),
    "math_with_judge": (("should_use_judge", (True,)), *_OF_JUDGES),
    "mcqa": (
        (
            "grading_mode",
            ("strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"),
        ),
    ),
    "multichallenge": (
        ("aggregation_mode", ("mean", "min", "max", "all", "any", "weighted")),
        ("parallel_evaluation", (False,)),
        ("judge_system_message", (None, "")),
        ("yes_label", ("YES", "[[Y]]", "")),
        ("no_label", ("NO", "N", "")),
        *_OF_JUDGES,
    ),
    "single_step_tool_use_with_argument_comparison": (
        (
            "tool_call_comparator_config",
            (
                {"word_count_similarity_threshold": 0.0},
                {"word_count_similarity_threshold": 0.3},
                {"word_count_similarity_threshold": 1.0},
                *(
                    {
                        "word_count_similarity_threshold": 0.1,
                        "parallel_tool_call_rewarding": True,
                        "parallel_tool_call_reward_mode": mode,
                        "allow_subset": subset,
                        "allow_superset": superset,
                    }
                    for mode in ("binary_strict", "fractional", "f1")
                    for subset in (False, True)
                    for superset in (False, True)
                ),
                {"word_count_similarity_threshold": 0.5, "floating_point_comparison_threshold": 0.01},
            ),
        ),
    ),
    "structured_outputs": (("xml_coerce_types", (True, False)),),
    "swerl_gen": (("relaxed_formatting", (True, False)),),
    "text_to_sql": (
        ("check_twice_swap", (True, False)),
        ("reward_if_swap_fails", (-1.0, 0.0, 0.5)),
        ("judge_system_message", ("",)),
        ("judge_equal_label", ("SAME", "A")),
        ("judge_not_equal_label", ("", "DIFFERENT", "=")),
        *_OF_JUDGES,
    ),
}
"""Values of settings that are tried, next to those of the seeds."""
_WITH_PROCESSES: Final = frozenset({"instruction_following", "mcqa", "reasoning_gym", "structured_outputs"})
_RUNS: Final = 0.02
"""The share of requests for the metrics of a run, next to those for a verdict."""
_BLOCK: Final = 100
"""Servers that verify in processes of their own start slowly: their settings change after so many requests."""
_ANSWERS: Final = (
    *(
        "{0}",
        "\\boxed{{{0}}}",
        "Answer: {0}",
        "<answer>{0}</answer>",
        "The answer is **{0}**.",
        "$\\boxed{{{0}}}$",
        "({0})",
    ),
    *(
        "<answer>{1}</answer><answer>{0}</answer>",
        "\\boxed{{{1}}} … \\boxed{{{0}}}",
        "Answer: {1}\nAnswer: {0}",
        "```\n{0}\n```",
    ),
    *(
        '{{"answer": "{0}"}}',
        "<think>{1}</think>{0}",
        "{0}\n{1}",
        "{0}, {1}",
        "**Answer**: {0}",
        "Final Answer:\n\n{0}",
        "{0}.",
    ),
    *(
        "\\boxed{{\\text{{{0}}}}}",
        "[{0}]",
        "<final>{0}</final>",
        "Answer: \\boxed{{{0}}}",
        "\\boxed{{{0}, {1}}}",
        "answer = {0}",
    ),
)


def make_request(environment: str, seeds: list[Seed], run_seed: int, number: int) -> Request:
    """The n-th request: a seed with some things changed."""
    chance = random.Random(f"{run_seed}/{environment}/{number}")
    seed = chance.choice(seeds)
    if seed.verdict and chance.random() < _RUNS:
        run = {"verify_responses": make_run([{**one.row, **one.verdict} for one in seeds if one.verdict], chance)}
        return {"environment": environment, "settings": {}, "steps": [["/aggregate_metrics", run]]}
    texts = _texts_of(seeds, seed, chance)
    row = _vary_row(environment, seed, number, texts, chance)
    row, outputs = _vary_outputs(environment, seed, row, seeds, texts, chance)
    request: Request = {"environment": environment, "settings": _choose_settings(environment, seed, chance)}
    if environment in _WITH_PROCESSES:
        block = random.Random(f"{run_seed}/{environment}/{number // _BLOCK}")
        request["settings"] = _choose_settings(environment, block.choice(seeds), block)
    if environment == "math_with_judge" and chance.random() < 0.6:
        request["settings"] = {"should_use_judge": True, **request["settings"]}
        seed = replace(seed, judge=[chance.choice(_VERDICTS) for _ in range(2)])
    if seed.judge is not None:
        request["judge"] = _reshape_judge(_choose_judge(environment, seed, seeds, chance), chance)
    if seed.way == "episode":
        while len(outputs) < _MAX_TURNS and chance.random() < 0.5:
            outputs.append(_choose_output(environment, outputs[-1], row, seeds, texts, chance))
        return {**request, "steps": [["/reset", row], *(["/step", _with(row, output)] for output in outputs)]}
    if seed.way == "cohort" and chance.random() < 0.1:
        return {**request, "steps": [["/compare", _make_comparison(row, outputs, texts, chance)]]}
    if seed.way == "cohort":
        bodies = [
            {**_with(row, output), "_ng_task_index": number, "_ng_rollout_index": at}
            for at, output in enumerate(outputs)
        ]
        return {**request, "steps": [["/verify", body] for body in bodies], "together": True}
    body = _with(row, outputs[0])
    body["response"].update(seed.response)
    if chance.random() < 0.05:
        body["response"] = mutate_response(body["response"], chance)
    return {**request, "steps": [*_tool_steps(environment, row, outputs[0], chance), ["/verify", body]]}


def _vary_row(environment: str, seed: Seed, number: int, texts: list[str], chance: random.Random) -> dict[str, Any]:
    row = {**_PARAMS, **seed.row}
    if environment == "blackjack":
        row = {"seed": number, **row}  # without one, each side deals its own cards
    if chance.random() < 0.12:
        row = change_row(environment, row, chance)
    if chance.random() < 0.12:
        row = _mutate_row(row, chance)
    if chance.random() < 0.06:
        row["responses_create_params"] = mutate_params(row["responses_create_params"], texts, chance)
    return row


def _vary_outputs(
    environment: str, seed: Seed, row: dict[str, Any], seeds: list[Seed], texts: list[str], chance: random.Random
) -> tuple[dict[str, Any], list[Output]]:
    """The outputs, and the row, which has another answer if the outputs were made for it."""
    outputs = [_choose_output(environment, output, row, seeds, texts, chance) for output in seed.outputs]
    if environment == "math_with_judge" and chance.random() < 0.4:
        expected, reply = make_answers(chance)
        return {**row, "expected_answer": expected}, [[said(reply)]]
    if environment == "structured_outputs" and chance.random() < 0.3 and row.get("response_mode") != "tool_call":
        fields, reply = make_document(chance)
        return {**row, **fields}, [[said(reply if chance.random() < 0.8 else mutate_text(reply, chance))]]
    if environment == "code_gen" and chance.random() < 0.5:
        return row, [_mutate_programs(output, chance) for output in seed.outputs]
    return row, outputs


def _with(row: dict[str, Any], output: Output) -> dict[str, Any]:
    return {**row, "response": response(*output)}


def _mutate_programs(output: Output, chance: random.Random) -> Output:
    """The output with other programs in its messages."""
    return [
        {**item, "content": [_mutate_part(part, chance) for part in item["content"]]}
        if item.get("type") == "message" and isinstance(item.get("content"), list)
        else item
        for item in output
    ]


def _mutate_part(part: Any, chance: random.Random) -> Any:
    is_text = isinstance(part, dict) and isinstance(part.get("text"), str)
    return {**part, "text": mutate_program(part["text"], chance)} if is_text else part


def _mutate_row(row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    names = [name for name in row if name not in ("responses_create_params", "_ng_task_index", "seed")]
    if not names:
        return row
    name = chance.choice(names)
    if chance.random() < 0.1:
        return {key: value for key, value in row.items() if key != name}
    return {**row, name: mutate_value(row[name], chance)}


def _texts_of(seeds: list[Seed], seed: Seed, chance: random.Random) -> list[str]:
    """Texts that could be answers to a row: those of some other seeds, and the row's own values."""
    items = [item for other in chance.sample(seeds, min(8, len(seeds))) for output in other.outputs for item in output]
    parts = [part for item in items if isinstance(item.get("content"), list) for part in item["content"]]
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return [*texts, *_leaves({name: value for name, value in seed.row.items() if name != "responses_create_params"})]


def _leaves(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _leaves(item)]
    if isinstance(value, list):
        return [text for item in value for text in _leaves(item)]
    return [str(value)] if isinstance(value, str | int | float) else []


def _choose_output(
    environment: str, output: Output, row: dict[str, Any], seeds: list[Seed], texts: list[str], chance: random.Random
) -> Output:
    kind = chance.random()
    if kind < 0.12:
        output = chance.choice(chance.choice(seeds).outputs or [output])
    elif kind < 0.35 and texts:
        gold = _leaves({name: value for name, value in row.items() if name != "responses_create_params"}) or texts
        output = [said(chance.choice(_ANSWERS).format(chance.choice(gold), chance.choice(texts)))]
    elif kind < 0.55:
        reply = _make_own_reply(environment, row, texts or [""], chance)
        if reply is not None:
            output = [said(reply)]
            return output if chance.random() < 0.6 else mutate_output(output, chance, texts)
    return output if chance.random() < 0.06 else mutate_output(output, chance, texts)


def _make_own_reply(environment: str, row: dict[str, Any], texts: list[str], chance: random.Random) -> str | None:
    """A reply in a form that the environment has a reason to look at."""
    gold = _leaves({name: value for name, value in row.items() if name != "responses_create_params"}) or texts
    reply = make_reply(environment, chance.choice(gold), chance.choice(texts), chance)
    if environment != "swerl_gen" or reply is None:
        return reply
    try:
        files = json.loads(row["metadata"]["relevant_file_contents"])
    except (KeyError, TypeError, ValueError):
        return None
    is_usable = isinstance(files, dict) and files and all(isinstance(text, str) for text in files.values())
    return make_edit(reply, files, chance) if is_usable else None


def _choose_settings(environment: str, seed: Seed, chance: random.Random) -> dict[str, Any]:
    settings = dict(seed.settings)
    choices = _SETTINGS.get(environment, ())
    if choices and chance.random() < 0.25:
        name, values = chance.choice(choices)
        settings[name] = chance.choice(values)
    return settings


def _choose_judge(environment: str, seed: Seed, seeds: list[Seed], chance: random.Random) -> Any:
    """The judge's replies of the seed or of another one; one of them with a change in a quarter of cases."""
    judge = seed.judge
    other = chance.choice(seeds).judge
    if chance.random() < 0.2 and type(other) is type(judge) and not isinstance(judge, dict):
        judge = other
    if chance.random() > 0.25:
        return judge
    own = make_judge_reply(environment, chance) if chance.random() < 0.5 else None
    if isinstance(judge, str):
        return own if own is not None else mutate_text(judge, chance)
    if isinstance(judge, dict) and judge:
        name = chance.choice(list(judge))
        return {**judge, name: own if own is not None else mutate_text(str(judge[name]), chance)}
    if own is not None:
        return [own, *judge[1:]] if chance.random() < 0.5 else [*judge, own]
    return [mutate_text(str(reply), chance) for reply in judge]


def _reshape_judge(judge: Any, chance: random.Random) -> Any:
    """Now and then one of the replies as another output: reasoning, parts, several messages, roles, a refusal."""
    if not judge or chance.random() > 0.12:
        return judge
    if isinstance(judge, str):
        return [mutate_shape([said(judge)], chance)]
    key = chance.choice(list(judge) if isinstance(judge, dict) else range(len(judge)))
    copied = judge.copy()
    copied[key] = mutate_shape([said(str(judge[key]))], chance)
    return copied


def _make_comparison(
    row: dict[str, Any], outputs: list[Output], texts: list[str], chance: random.Random
) -> dict[str, Any]:
    """A request to compare some outputs at once."""
    texts = texts or [""]
    roles = ("user", "assistant", "system", "developer", "tool")
    history = [{"role": roles[min(at, chance.randrange(9)) % 5], "content": chance.choice(texts)} for at in range(2)]
    chosen = [chance.choice(outputs) for _ in range(chance.choice((0, 1, 2, 3, 3, 4)))]
    body: dict[str, Any] = {"conversation_history": history, "response_objs": [response(*output) for output in chosen]}
    if chance.random() < 0.3:
        body["principle"] = chance.choice((None, "", *texts))
    changed = mutate_value(body, chance) if chance.random() < 0.2 else body
    return changed if isinstance(changed, dict) else body


def _tool_steps(environment: str, row: dict[str, Any], output: Output, chance: random.Random) -> list[list[Any]]:
    """The calls that an agent would make before the verdict, in an order or with bodies that it would not."""
    seeding = ["/seed_session", row]
    if environment == "example_multi_step" and chance.random() < 0.3:
        return [seeding, _call_multi_step(row, chance)]
    if environment == "workplace_assistant" and chance.random() < 0.7:
        steps = _call_office(row, output)
        if steps and chance.random() < 0.15:
            at = chance.randrange(len(steps))
            call = steps[at]
            odd = (["/seed_session", {}], ["/no_such_tool", {}], call, [call[0], mutate_value(call[1], chance)])
            steps.insert(at, chance.choice(odd))
        return steps
    return [seeding] if chance.random() < 0.03 else []


def _call_multi_step(row: dict[str, Any], chance: random.Random) -> list[Any]:
    values = row.get("expected_synonym_values")
    if chance.random() < 0.5:
        return ["/extract_synonym_values", {"synonym_values": mutate_value(values, chance)}]
    return ["/get_synonym_value", {"synonym": mutate_value(str(row.get("minefield_label")), chance)}]


def _call_office(row: dict[str, Any], output: Output) -> list[list[Any]]:
    steps: list[list[Any]] = [["/seed_session", row]]
    for item in output:
        if item.get("type") != "function_call" or not isinstance(item.get("name"), str):
            continue
        try:
            arguments = json.loads(item.get("arguments") or "")
        except (TypeError, ValueError):
            continue
        if isinstance(arguments, dict) and item["name"].isidentifier():
            steps.append([f"/{item['name']}", arguments])
    return steps if len(steps) > 1 else []
