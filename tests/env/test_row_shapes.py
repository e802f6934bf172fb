"""Rows of existing datasets work as they are: every field that such rows have, optional ones set, null or left out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gymnast.checks.conformance.subject import play
from gymnast.checks.environment import find_environment, open_subject
from tests.helpers.environments import called, response, said

AGENT = {"type": "responses_api_agents", "name": "some_agent"}
ALL_PARAMS = {
    **dict.fromkeys(("background", "include", "instructions", "max_output_tokens", "max_tool_calls", "metadata")),
    **dict.fromkeys(("model", "previous_response_id", "prompt", "reasoning", "service_tier", "store", "text", "user")),
    "temperature": 0.7,
    "top_logprobs": None,
    "top_p": 0.95,
    "truncation": None,
    "stream": None,
    "parallel_tool_calls": True,
    "tool_choice": "auto",
}
ORDER = {"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]}
BUY = {"type": "function", "name": "purchase_tickets", "description": "Buy.", "parameters": ORDER, "strict": None}
KNIGHTS = {
    "source_dataset": "knights_knaves",
    "source_index": 3,
    "statements": [["telling-truth", 1]],
    "solution": [True, False],
    "names": ["Zoey", "Riley"],
    "knight_knave_terms": {
        "knight": "sage",
        "knave": "fool",
        "a_knight": "a sage",
        "a_knave": "a fool",
        "Knight": "Sage",
        "Knave": "Fool",
    },
    "difficulty": {"n_people": 2, "depth_constraint": 2, "width_constraint": 2},
}
MAIL = {"name": "email_send_email", "arguments": json.dumps({"recipient": "a@b.example", "subject": "S", "body": "B"})}
OFFICE = {"id": 7, "category": "email", "environment_name": "workplace_assistant"}
STRUCTURED = {
    "schema_str": json.dumps(ORDER),
    "schema_type": "json",
    "problem_type": "p",
    "schema_repr": "json",
    "source_format": "json",
    "source_schema_type": "json",
    "tool_schema_mode": "strict",
    "tool_name_style": "x",
    "distractor_style": "none",
    "tool_union_mode": None,
    "num_turns": 1,
    "num_tools": 1,
    "num_distractors": 0,
    "has_distractors": False,
    "instruction_layout": "l",
    "instruction_detail_level": "d",
    "source_record_id": "r",
    "system_instruction_style": "s",
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "agent_ref": AGENT,
}
SQL = {
    "sql": "SELECT name FROM t",
    "sql_prompt": "Which names are there?",
    "uuid": "u-1",
    "sql_dialect": "sqlite",
    "sql_context": "CREATE TABLE t (name TEXT); INSERT INTO t VALUES ('x'), ('y');",
}
NTH = {"num_paragraphs": 1, "nth_paragraph": 1, "first_word": "hello", "keywords": None}
SLOTS = {"0": {"event_id": 0, "duration": 30, "constraint": "at 9am", "min_time": "9am", "max_time": "17:00"}}
MEETING = json.dumps([{"event_id": 0, "event_name": "x", "start_time": "09:00", "duration": 30}])
RUBRIC = [{"question": "Does the reply call the user Captain?", "pass_criteria": "YES"}]

ROWS: list[tuple[str, dict[str, Any], Any, float]] = [
    ("mcqa", {"options": [{"A": "x"}, {"B": "y"}], "expected_answer": "B", "uuid": "u-1"}, r"\boxed{B}", 1.0),
    (
        "mcqa",
        {
            "options": [{"A": None}, {"B": "y"}],
            "expected_answer": "A",
            "uuid": None,
            "metadata": {"k": [1]},
            "grading_mode": "lenient_answer_colon",
            "template_metadata": {"output_regex": [r"choose (\w)"]},
        },
        "I choose A",
        1.0,
    ),
    ("google_search", {"expected_answer": "C", "task_difficulty_qwen3_32b_avg_8": 0.25}, r"\boxed{C}", 1.0),
    ("ruler", {"outputs": ["4415888", "ABCDE"], "length": 262065, "subset": "vt"}, "VAR ABCDE", 0.5),
    ("math_with_judge", {"question": "1 + 1?", "expected_answer": "2"}, r"\boxed{2}", 1.0),
    ("math_with_judge/dapo17k", {"question": "1 + 1?", "expected_answer": "2"}, "Answer: $2$", 1.0),
    (
        "code_gen",
        {
            "verifier_metadata": {"unit_tests": {"inputs": ["1\n"], "outputs": ["1\n"]}},
            "hash_id": "h",
            "dataset": "d",
            "source": "s",
            "difficulty": "easy",
        },
        "```python\nprint(input())\n```",
        1.0,
    ),
    (
        "instruction_following",
        {
            "id": 3,
            "prompt": "Say hello.",
            "kwargs": [NTH],
            "instruction_id_list": ["length_constraints:nth_paragraph_first_word"],
        },
        "Hello there.",
        1.0,
    ),
    (
        "instruction_following",
        {
            "id": 3,
            "verifier_metadata": {
                "instruction_id_list": ["punctuation:no_comma", "detectable_format:title"],
                "kwargs": [{}, {}],
                "prompt": "Say hello.",
                "grading_mode": "fraction",
            },
        },
        "Hello there.",
        0.5,
    ),
    ("workplace_assistant", {**OFFICE, "ground_truth": [MAIL]}, called(MAIL["name"], MAIL["arguments"]), 1.0),
    # A reference stored as text is none with NeMo Gym's rules.
    ("workplace_assistant", {**OFFICE, "ground_truth": str([MAIL])}, called(MAIL["name"], MAIL["arguments"]), 0.0),
    ("structured_outputs", {**STRUCTURED, "response_mode": "text"}, '{"seats": 2}', 1.0),
    ("structured_outputs", {"schema_str": json.dumps(ORDER), "schema_type": "yaml"}, "seats: 2", 1.0),
    (
        "structured_outputs",
        {**STRUCTURED, "response_mode": "tool_call", "tool_name": "response_tool_1", "tool_payload_key": "payload"},
        called("response_tool_1", {"payload": {"seats": 2}}),
        1.0,
    ),
    (
        "reasoning_gym",
        {"question": "Caller is who?", "answer": "Zoey is a sage, and Riley is a fool.", "metadata": KNIGHTS},
        "<answer>Zoey is a sage, and Riley is a fool.</answer>",
        1.0,
    ),
    ("math_with_code", {"id": 1, "expected_result": "4", "expected_code_contains": "2 + 2"}, r"\boxed{4}", 1.0),
    ("math_with_code", {"id": 1, "expected_result": "4"}, r"\boxed{4}", 1.0),
    ("equivalence_llm_judge", {"question": "Which?", "expected_answer": "air"}, "air", 1.0),
    (
        "equivalence_llm_judge",
        {"uuid": 5, "expected_answer": "air", "options": [{"A": "x"}], "metadata": {"m": 1}},
        "air",
        1.0,
    ),
    ("calendar", {"exp_cal_state": SLOTS, "agent_ref": AGENT}, MEETING, 1.0),
    ("calendar/calendar_v2", {"exp_cal_state": {}, "mode": "hard", "grade": None}, "Hello.", 1.0),
    ("multichallenge", {"uuid": "u", "task_id": 1, "rubric": RUBRIC, "context": "[USER]: q"}, "Aye, Captain", 1.0),
    ("multichallenge", {"uuid": 7, "rubric": None, "metadata": {"rubric": RUBRIC, "topic": "t"}}, "Captain", 1.0),
    ("multichallenge/multichallenge_nrl", {"rubric": RUBRIC, "context": None, "metadata": None}, "Captain", 1.0),
    ("imo_gradingbench", {"expected_answer": "Partial", "grading_id": "g", "problem_id": None}, "So: partial", 1.0),
    ("genrm_compare", {"principle": None, "prompt_id": None, "agent_ref": AGENT}, "Yes.", 3.0),
    ("genrm_compare", {"principle": "p", "prompt_id": "i", "compare_with": ["no"]}, "Please.", 1.0),
    ("text_to_sql", SQL, "```sql\nSELECT name FROM t\n```", 1.0),
    ("text_to_sql", {**SQL, "uuid": 7, "sql_context": "", "metadata": None}, "```sql\nSELECT name FROM t\n```", 1.0),
    ("text_to_sql/text_to_sql_execution", SQL, "```sql\nSELECT t.name FROM t\n```", 1.0),
    ("blackjack", {"agent_ref": AGENT, "seed": 2}, "<action>stand</action>", 1.0),
    (
        "example_multi_turn_gymnasium",
        {"follow_ups": [], "expected_answer": "12", "agent_ref": AGENT},
        "It is 12.",
        1.0,
    ),
    (
        "single_step_tool_use_with_argument_comparison",
        {"expected_action": {"type": "function_call", "name": "purchase_tickets", "arguments": '{"seats": 2}'}},
        called("purchase_tickets", {"seats": 2}),
        1.0,
    ),
]


@pytest.mark.parametrize(
    ("name", "row", "output", "reward"), ROWS, ids=lambda value: value if isinstance(value, str) else ""
)
async def test_a_row_of_this_shape_is_scored(name: str, row: dict[str, Any], output: Any, reward: float) -> None:
    tools = [BUY] if name.startswith("single_step") else []
    params = {"input": [{"role": "user", "content": "Please."}], **ALL_PARAMS, "tools": tools}
    item = said(output) if isinstance(output, str) else output
    request = {**row, "responses_create_params": params, "response": response(item), "_ng_task_index": 0, "new": {}}
    async with open_subject(find_environment(name), None) as subject:
        outcome = await play(subject, request)
    assert outcome.reward == reward, str(outcome)
