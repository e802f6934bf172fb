"""Runs whose rewards are all the same, each for another reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.doctor.synthetic import (
    LOOK,
    Case,
    Run,
    call,
    cut,
    did,
    mcqa_row,
    message,
    said,
    tool_output,
    verifier,
    write_compact,
)


def tool_row(task: int) -> dict[str, Any]:
    row = mcqa_row(task)
    row["responses_create_params"]["tools"] = [LOOK]
    return row


def own_row(task: int) -> dict[str, Any]:
    prompt = f"What is {task} + {task + 3}?"
    return {
        "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
        "expected_answer": str(2 * task + 3),
    }


def right(task: int, rollout: int) -> dict[str, Any]:
    return {"output": [message(f"Let me see ({rollout}). It is \\boxed{{{'ABCD'[task % 4]}}}")]}


def wrong(task: int, rollout: int) -> dict[str, Any]:
    return {"output": [message(f"Thinking about it, try {rollout}: \\boxed{{{'ABCD'[(task + 1 + rollout % 3) % 4]}}}")]}


def sums(task: int, rollout: int) -> dict[str, Any]:
    return {"output": [message(f"Adding both (way {rollout}) gives {2 * task + 3}.")]}


def bad_sums(task: int, rollout: int) -> dict[str, Any]:
    return {"output": [message(f"Adding both gives {90 + 5 * task + rollout}.")]}


def always(value: float) -> str:
    return verifier(f"return {value}")


def one(task: int, rollout: int) -> float:
    return 1.0


def half(task: int, rollout: int) -> float:
    return 0.5


def two_agents(folder: Path) -> tuple[str, ...]:
    """One environment's rollouts are all refused; the other's are mixed."""
    first, second = folder / "a", folder / "b"
    first.mkdir()
    second.mkdir()
    Run(said("I'm sorry, but I can't help with that.", "I cannot assist with this request."), agent="one").write(first)
    Run(right, lambda _task, rollout: float(rollout % 2), agent="two").write(second)
    rows: list[Any] = []
    records: list[Any] = []
    for offset, part in ((0, first), (100, second)):
        for name, lines in (("x_materialized_inputs.jsonl", rows), ("x.jsonl", records)):
            for line in (part / name).read_text().splitlines():
                row = json.loads(line)
                lines.append({**row, "_ng_task_index": row["_ng_task_index"] + offset})
    write_compact(folder / "x_materialized_inputs.jsonl", rows)
    write_compact(folder / "x.jsonl", records)
    write_compact(folder / "x_failures.jsonl", [])
    manifest = json.loads((first / "x_run.json").read_text())
    manifest["settings"].update(json.loads((second / "x_run.json").read_text())["settings"])
    manifest["counts"] = {"requested": len(records), "scored": len(records)}
    manifest["plan"] = {"rows": len(rows)}
    (folder / "x_run.json").write_text(json.dumps(manifest))
    return (str(folder / "x.jsonl"),)


def foreign_inputs(task: int) -> dict[str, Any]:
    row = mcqa_row(task)
    row["responses_create_params"]["input"][0]["content"] = f"Translate sentence {task} into French."
    return row


def without_answer(task: int) -> dict[str, Any]:
    return {key: value for key, value in mcqa_row(task).items() if key != "expected_answer"}


def sql_row(task: int) -> dict[str, Any]:
    row = {key: value for key, value in mcqa_row(task).items() if key == "responses_create_params"}
    return {**row, "sql_context": "CREATE TABLE t (a int)", "sql": f"SELECT {task}", "sql_prompt": "all rows"}


def same_row(task: int) -> dict[str, Any]:
    return mcqa_row(0)


def number_row(task: int) -> dict[str, Any]:
    return {**own_row(task), "expected_answer": 2 * task + 3}


SERVING, CONFIG, DATA, VERIFIER = "model_serving", "config", "data_schema", "verifier"
TOOL_TEXT = r"(?i)tool calls? .*(?:text|parsed)|--tool-call-parser"
CASES = (
    Case(
        "tool calls as hermes text",
        Run(said('<tool_call>\n{"name": "look", "arguments": {"at": 1}}\n</tool_call>'), row=tool_row).write,
        (SERVING, CONFIG),
        TOOL_TEXT,
    ),
    Case(
        "tool calls as fenced json",
        Run(
            said(
                'I will look.\n```json\n{"name": "look", "arguments": {"at": 1}}\n```',
                '```json\n{"name": "look", "parameters": {}}\n```',
            ),
            row=tool_row,
        ).write,
        (SERVING, CONFIG),
        TOOL_TEXT,
    ),
    Case(
        "tool calls as python",
        Run(said("<|python_tag|>look(at=1)", "<|python_tag|>look(at=2)"), row=tool_row).write,
        (SERVING, CONFIG),
        TOOL_TEXT,
    ),
    Case("all cut off", Run(cut("So first we consider")).write, (CONFIG,), "max.output.tokens"),
    Case("all empty", Run(did(message(""))).write, (SERVING,), "no text|empty"),
    Case(
        "all refused",
        Run(
            said(
                "I'm sorry, but I can't help with that.",
                "I can't assist with that request.",
                "Sorry, I am unable to answer this.",
            )
        ).write,
        (SERVING, CONFIG, DATA),
        r"(?i)refus",
    ),
    Case(
        "all declined without an apology",
        Run(
            said(
                "Grinding rye is against my guidelines.",
                "That being so, I must decline.",
                "After some thought I have to refuse this one.",
            )
        ).write,
        (SERVING, CONFIG, DATA),
        r"(?i)refus",
    ),
    Case(
        "answers in tags that the verifier does not read",
        Run(
            lambda task, rollout: {"output": [message(f"Way {rollout}. <result>{'ABCD'[task % 4]}</result>")]},
        ).write,
        (VERIFIER, CONFIG, DATA),
        r"(?i)format|extract",
    ),
    Case("one token forever", Run(said("!" * 400, "the " * 300)).write, (SERVING,), r"(?i)repeat"),
    Case(
        "leaked turn markers",
        Run(
            said(
                "It is A.<|im_end|>\n<|im_start|>user\nand B?<|im_end|>\n<|im_start|>assistant\n",
                "B<|im_end|>\n<|im_start|>user\n",
            )
        ).write,
        (SERVING, CONFIG),
        r"(?i)control token|template|stop",
    ),
    Case(
        "step limit",
        Run(did(call("look", "{}"), tool_output("a room"), call("look", "{}", "c2")), row=tool_row).write,
        (CONFIG, "agent", "throughput"),
        r"max_steps|step limit",
    ),
    Case(
        "tools only fail",
        Run(
            did(call("look", "{}"), tool_output('{"error": "database is locked"}'), message("I could not look it up.")),
            row=tool_row,
        ).write,
        (VERIFIER, "infra", CONFIG),
        r"(?i)tool.*(?:error|fail)",
    ),
    Case(
        "arguments are not JSON",
        Run(
            did(
                call("look", "{at: 1"),
                tool_output("Invalid tool call arguments: not a JSON object: {at: 1"),
                message("hm"),
            ),
            row=tool_row,
        ).write,
        (SERVING,),
        r"(?i)arguments",
    ),
    Case("no expected answer", Run(right, row=without_answer).write, (DATA,), r"(?i)expected.answer"),
    Case(
        "expected answer of the wrong type",
        Run(
            sums,
            row=number_row,
            environment="own",
            code=verifier(
                "return float(attempt.text.strip().rstrip('.').split()[-1] == attempt.task.expected_answer)",
                "expected_answer: object = None",
            ),
        ).write,
        (DATA, VERIFIER),
        r"(?i)type|number|never accept|reject",
    ),
    Case(
        "right, but not in a box",
        Run(
            lambda t, r: {"output": [message(f"Answer ({r}): {'ABCD'[t % 4]}")]}, record={"extracted_answer": None}
        ).write,
        (CONFIG, DATA, VERIFIER),
        r"(?i)format|extract",
    ),
    Case(
        "verifier always 0",
        Run(sums, row=own_row, environment="own", code=always(0.0)).write,
        (VERIFIER,),
        r"(?i)verifier.*(?:correct|right) answer|rejects",
    ),
    Case(
        "weak model",
        Run(wrong, record={"extracted_answer": "X"}).write,
        (SERVING,),
        r"(?i)answers are wrong|model.*wrong|too hard|weak",
    ),
    Case(
        "rows of another environment",
        Run(wrong, row=sql_row).write,
        (DATA, CONFIG),
        r"(?i)rows.*environment|expected.answer",
    ),
    Case(
        "one answer to every question",
        Run(said("The sky is blue.")).write,
        (SERVING,),
        r"(?i)same (?:text|response|answer)|identical",
    ),
    Case("one row many times", Run(wrong, row=same_row).write, (DATA,), r"(?i)duplicat|same (?:prompt|row|question)"),
    Case(
        "rollouts of other inputs",
        Run(wrong, recorded_row=foreign_inputs).write,
        ("cache_resume", DATA),
        r"(?i)other (?:inputs|rows)|do(?:es)? not (?:belong|match)|differ",
    ),
    Case(
        "verifier accepts everything",
        Run(bad_sums, one, row=own_row, environment="own", code=always(1.0)).write,
        (VERIFIER,),
        r"(?i)accepts|wrong answer",
    ),
    Case(
        "empty but rewarded",
        Run(did(message("")), one, row=own_row, environment="own", code=always(1.0)).write,
        (VERIFIER, SERVING),
        r"(?i)empty|no text|accepts",
    ),
    Case(
        "constant half",
        Run(sums, half, row=own_row, environment="own", code=always(0.5)).write,
        (VERIFIER,),
        r"(?i)verifier.*same|correct and|does not tell",
    ),
    Case("one of two environments", two_agents, (SERVING, CONFIG, DATA), r"(?i)refus"),
    Case(
        "thinking never ends",
        Run(cut("<think>\nOkay, so the question asks")).write,
        (CONFIG, SERVING),
        r"(?i)reasoning|think|max.output.tokens",
    ),
    Case(
        "thinking left open",
        Run(said("<think>\nOkay, so let me see. Maybe A.", "<think>\nHmm, wait, B?")).write,
        (CONFIG, SERVING),
        r"(?i)reasoning|think",
    ),
    Case(
        "prompt echoed",
        Run(
            lambda t, r: {"output": [message(f"Question {t}: which one? Question {t}: which one?" + " and" * r)]}
        ).write,
        (SERVING, CONFIG),
        r"(?i)echo|repeats? (?:the|its) prompt|template",
    ),
    Case(
        "verifier raises to itself",
        Run(
            sums,
            row=own_row,
            environment="own",
            code=verifier("return float(attempt.text == getattr(attempt.task, 'solution', None))"),
        ).write,
        (VERIFIER,),
        r"(?i)verifier.*(?:correct|right) answer|rejects",
    ),
    Case(
        "minus one",
        Run(bad_sums, lambda _t, _r: -1.0, row=own_row, environment="own", code=always(-1.0)).write,
        (VERIFIER,),
        r"(?i)verifier.*same|correct and|does not tell|rejects",
    ),
    Case(
        "tool calls as xml functions",
        Run(
            said(
                "<function=look>\n<parameter=at>\n1\n</parameter>\n</function>", "Let me.\n<function=look>\n</function>"
            ),
            row=tool_row,
        ).write,
        (SERVING, CONFIG),
        TOOL_TEXT,
    ),
    Case(
        "tool calls of mistral",
        Run(
            said(
                '[TOOL_CALLS][{"name": "look", "arguments": {"at": 1}}]',
                '[TOOL_CALLS][{"name": "look", "arguments": {}}]',
            ),
            row=tool_row,
        ).write,
        (SERVING, CONFIG),
        TOOL_TEXT,
    ),
    Case(
        "tool calls of deepseek",
        Run(
            said(
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
            ),
            row=tool_row,
        ).write,
        (SERVING, CONFIG),
        TOOL_TEXT,
    ),
    Case(
        "other refusals",
        Run(
            said(
                "As an AI language model, I cannot provide an answer to that.",
                "Unfortunately I won't be able to help here, as it may violate our policy.",
            )
        ).write,
        (SERVING, CONFIG, DATA),
        r"(?i)refus",
    ),
    Case(
        "headers leak",
        Run(
            said(
                "A<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>",
                "B<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nB",
            )
        ).write,
        (SERVING, CONFIG),
        r"(?i)control token|template|stop",
    ),
    Case(
        "a loop of a phrase",
        Run(said("I think the answer might be here. " * 60, "Wait, let me check again. " * 70)).write,
        (SERVING,),
        r"(?i)repeat",
    ),
    Case(
        "tools cannot connect",
        Run(
            did(
                call("look", "{}"),
                tool_output("Error executing tool look: ConnectionError: [Errno 111] Connection refused"),
                message("The tool is down."),
            ),
            row=tool_row,
        ).write,
        (VERIFIER, "infra", CONFIG),
        r"(?i)tool.*(?:error|fail)",
    ),
    Case(
        "verifier compares the prompt",
        Run(
            sums,
            row=own_row,
            environment="own",
            code=verifier(
                "return float(attempt.task.expected_answer == str(attempt.task.model_dump().get('question')))"
            ),
        ).write,
        (VERIFIER,),
        r"(?i)verifier.*(?:correct|right) answer|rejects",
    ),
    Case(
        "any number will do",
        Run(
            bad_sums,
            one,
            row=own_row,
            environment="own",
            code=verifier("return float(bool(re.search(r'\\d', attempt.text)))"),
        ).write,
        (VERIFIER,),
        r"(?i)accepts|wrong answer",
    ),
    Case(
        "expected answers are texts, not letters",
        Run(right, row=lambda t: {**mcqa_row(t), "expected_answer": f"option {'ABCD'[t % 4]}{t}"}).write,
        (DATA, VERIFIER),
        r"(?i)expected.answer|rejects|never accept",
    ),
    Case(
        "model calls the limit",
        Run(cut("still busy", "max_model_calls"), row=tool_row).write,
        (CONFIG, "agent", "throughput"),
        r"max_steps|limit",
    ),
    Case("whitespace only", Run(did(message("  \n\n "))).write, (SERVING,), "no text|empty"),
    Case(
        "tool calls as action lines",
        Run(
            said("Thought: look.\nAction: look\nAction Input: {}", 'Action: look\nAction Input: {"at": 2}'),
            row=tool_row,
        ).write,
        (SERVING, CONFIG),
        TOOL_TEXT,
    ),
    Case(
        "tool calls as bare json list",
        Run(
            said('[{"name": "look", "arguments": {"at": 1}}]', '[{"name": "look", "arguments": {}}]'), row=tool_row
        ).write,
        (SERVING, CONFIG),
        TOOL_TEXT,
    ),
    Case(
        "refusals with a preamble",
        Run(
            said(
                "I understand your interest, but I'm not able to provide that.",
                "Thank you for asking, however I cannot help with this.",
            )
        ).write,
        (SERVING, CONFIG, DATA),
        r"(?i)refus",
    ),
    Case(
        "gemma turns leak",
        Run(
            said("A<end_of_turn>\n<start_of_turn>user\nwhy?<end_of_turn>", "C<end_of_turn>\n<start_of_turn>model\n")
        ).write,
        (SERVING, CONFIG),
        r"(?i)control token|template|stop",
    ),
    Case("newlines forever", Run(said("A" + "\n" * 900, "B" + " \n" * 700)).write, (SERVING,), r"(?i)repeat"),
    Case(
        "tools time out",
        Run(
            did(call("look", "{}"), tool_output("Tool execution timed out after 30 seconds"), message("It timed out.")),
            row=tool_row,
        ).write,
        (VERIFIER, "infra", CONFIG, "throughput"),
        r"(?i)tool.*(?:error|fail)",
    ),
    Case(
        "verifier wants exact case",
        Run(
            lambda t, r: {"output": [message(f"option {'abcd'[t % 4]} ({r})")]},
            environment="own",
            code=verifier("return float(attempt.text == 'THE ANSWER IS ' + attempt.task.expected_answer)"),
        ).write,
        (VERIFIER, CONFIG),
        r"(?i)reject|format|correct answer",
    ),
    Case(
        "length is rewarded",
        Run(bad_sums, one, row=own_row, environment="own", code=verifier("return float(len(attempt.text) > 0)")).write,
        (VERIFIER,),
        r"(?i)accepts|wrong answer",
    ),
    Case(
        "two thirds",
        Run(sums, lambda _t, _r: 0.667, row=own_row, environment="own", code=always(0.667)).write,
        (VERIFIER,),
        r"(?i)same reward|does not tell",
    ),
    Case(
        "weak at sums",
        Run(
            bad_sums,
            row=own_row,
            environment="own",
            code=verifier("return float(attempt.text.strip().rstrip('.').split()[-1] == attempt.task.expected_answer)"),
        ).write,
        (SERVING,),
        r"(?i)answers are wrong",
    ),
)
