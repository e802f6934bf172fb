"""Rows of our own in the exact shapes of the datasets of built-in benchmarks, as files of their repositories."""

from __future__ import annotations

import base64
import json
import pickle
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

Rows = list[dict[str, Any]]


def jsonl(rows: Rows) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def parquet(rows: Rows) -> bytes:
    from pyarrow import BufferOutputStream, Table
    from pyarrow import parquet as writer

    sink = BufferOutputStream()
    writer.write_table(Table.from_pylist(rows), sink)
    return bytes(sink.getvalue())


def table(rows: Rows) -> bytes:
    import csv
    import io

    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def aime25() -> dict[str, bytes]:
    return {
        "test.jsonl": jsonl([{"problem": f"What is ${n}+1$?", "answer": str(n + 1), "id": str(n)} for n in range(30)])
    }


def math500() -> dict[str, bytes]:
    row = {"problem": "Halve $x$.", "solution": "It is $\\frac{x}{2}$.", "answer": "\\frac{x}{2}", "level": 2}
    subjects = ("Algebra", "Geometry")
    rows = [{**row, "subject": subjects[n % 2], "unique_id": f"test/{n}.json"} for n in range(500)]
    return {"test.jsonl": jsonl(rows)}


def gpqa() -> dict[str, bytes]:
    rows = [
        {
            "Question": f"Which particle has charge {n}?\n",
            "Correct Answer": "the right one",
            "Incorrect Answer 1": "one",
            "Incorrect Answer 2": "two, or more",
            "Incorrect Answer 3": 'a "quoted" one',
            "High-level domain": "Physics" if n % 2 else "Biology",
            "Subdomain": "x",
            "Record ID": f"rec{n}",
        }
        for n in range(198)
    ]
    return {"gpqa_diamond.csv": table(rows)}


def mmlu_pro_row(n: int) -> dict[str, Any]:
    return {
        "question_id": n,
        "question": f"Question {n}?",
        "options": ["yes", "no <b>", "it's", "maybe"][: 3 + n % 2],
        "answer": "C",
        "answer_index": 2,
        "cot_content": "",
        "category": "law" if n % 2 else "math",
        "src": "own",
    }


def mmlu_pro() -> dict[str, bytes]:
    return {"data/test-00000-of-00001.parquet": parquet([mmlu_pro_row(n) for n in range(12032)])}


def livecodebench(count: int, name: str) -> Callable[[], dict[str, bytes]]:
    public = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]
    private = [{"input": "5 6\n", "output": "11\n", "testtype": "stdin"}]
    packed = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(private)))).decode()
    call = [{"input": "[1, 2]", "output": "3", "testtype": "functional"}]
    stdin = {
        "public_test_cases": json.dumps(public),
        "private_test_cases": packed,
        "metadata": "{}",
        "starter_code": "",
    }
    functional = {
        "public_test_cases": json.dumps(call),
        "private_test_cases": json.dumps(call),
        "metadata": json.dumps({"func_name": "total"}),
        "starter_code": "class Solution:\n    def total(self, xs: List[int]) -> int:\n        ",
    }
    rows = [
        {
            "question_title": "Sum",
            "question_content": f"Add the numbers ({n}).",
            "platform": "leetcode" if n % 2 else "atcoder",
            "question_id": str(n),
            "contest_id": "c",
            "contest_date": "2025-01-01T00:00:00",
            "difficulty": ("easy", "medium", "hard")[n % 3],
            **(functional if n % 2 else stdin),
        }
        for n in range(count)
    ]
    return lambda: {name: jsonl(rows)}


def ifeval() -> dict[str, bytes]:
    kwargs = [{"num_words": 300, "relation": "at least"}, {}]
    ids = ["length_constraints:number_words", "punctuation:no_comma"]
    rows = [{"key": n, "prompt": f"Write {n}.", "instruction_id_list": ids, "kwargs": kwargs} for n in range(541)]
    return {"ifeval_input_data.jsonl": jsonl(rows)}


def ifbench() -> dict[str, bytes]:
    empty = dict.fromkeys(("N", "word"))
    rows = [
        {
            "key": str(n),
            "prompt": "Use it.",
            "instruction_id_list": ["sentence:keyword"],
            "kwargs": [{**empty, "N": 2.0}],
        }
        for n in range(300)
    ]
    return {"data/train-00000-of-00001.parquet": parquet(rows)}


_ASSERTION: Final = "def assertion(out, exp, atol):\n    assert out == exp\n\n"


def humaneval_plus() -> dict[str, bytes]:
    loop = "    for inp, exp in zip([[1], [2]], [2, 3]):\n        assertion(candidate(*inp), exp, 0)\n"
    test = f"{_ASSERTION}def check(candidate):\n{loop}"
    rows = [
        {
            "task_id": f"HumanEval/{n}",
            "prompt": 'from typing import List\n\n\ndef add_one(n: int) -> int:\n    """ One more.\n    """\n',
            "canonical_solution": "    return n + 1\n",
            "entry_point": "add_one",
            "test": test,
        }
        for n in range(164)
    ]
    return {"data/test-00000-of-00001-5973903632b82d40.parquet": parquet(rows)}


def mbpp_plus() -> dict[str, bytes]:
    loop = "for inp, exp in zip(inputs, results):\n    assertion(add_one(*inp), exp, 0)\n"
    test = f"import numpy as np\n{_ASSERTION}inputs = [[1], [2]]\nresults = [2, 3]\n{loop}"
    rows = [
        {
            "task_id": n,
            "code": "def helper(n):\n    return n\n\ndef add_one(n):\n    return helper(n) + 1",
            "prompt": "Write a function to add one.",
            "source_file": "x",
            "test_imports": ["import math"],
            "test_list": ["assert add_one(1) == 2"],
            "test": test,
        }
        for n in range(378)
    ]
    return {"data/test-00000-of-00001-d5781c9c51e02795.parquet": parquet(rows)}


def bfcl() -> dict[str, bytes]:
    properties = {"base": {"type": "float"}, "unit": {"type": "string"}, "options": {"type": "dict", "properties": {}}}
    function = {
        "name": "area.get",
        "description": "Area.",
        "parameters": {"type": "dict", "properties": properties, "required": ["base"]},
    }
    question = [[{"role": "user", "content": "The area for a base of 10?"}]]
    files: dict[str, bytes] = {}
    names = ["simple", "multiple", "parallel", "parallel_multiple"]
    for name in [*names, *(f"live_{name}" for name in names), "irrelevance", "live_irrelevance", "live_relevance"]:
        rows = [{"id": f"{name}_{n}", "question": question, "function": [function]} for n in range(2)]
        files[f"BFCL_v3_{name}.json"] = jsonl(rows)
        if not name.endswith("relevance"):
            truth = [{"area.get": {"base": [10], "unit": ["", "m"]}}]
            files[f"possible_answer/BFCL_v3_{name}.json"] = jsonl(
                [{"id": row["id"], "ground_truth": truth} for row in rows]
            )
    return files


def spider() -> dict[str, bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pets.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(
                "CREATE TABLE pet (id INT, kind TEXT); INSERT INTO pet VALUES (1, 'cat'), (2, 'dog');"
            )
        database = path.read_bytes()
    row = {"db_id": "pets", "query": "SELECT count(*) FROM pet", "question": "How many pets?", "query_toks": ["SELECT"]}
    return {"validation.json": json.dumps([row] * 1034).encode(), "database/pets/pets.sqlite": database}


def tau2(domain: str, count: int) -> Callable[[], dict[str, bytes]]:
    from gymnast.config.roots import BUILTIN

    database = (BUILTIN / "resources_servers" / "tau2" / "data" / f"{domain}.json").read_bytes()
    told = {
        "task_instructions": "You are polite.",
        "domain": domain,
        "reason_for_call": "Cancel what you ordered.",
        "known_info": "You are Ann.",
        "unknown_info": None,
    }
    task = {
        "description": {"purpose": None},
        "user_scenario": {"persona": None, "instructions": told},
        "initial_state": None,
        "evaluation_criteria": {
            "actions": [{"action_id": "0_0", "name": "calculate", "arguments": {"expression": "1+1"}, "info": None}],
            "communicate_info": [],
            "nl_assertions": None,
            "reward_basis": ["DB", "NL_ASSERTION"],
        },
    }
    tasks = [{"id": str(n), **task} for n in range(count)]
    folder = f"domains/{domain}"
    return lambda: {
        f"{folder}/tasks.json": json.dumps(tasks).encode(),
        f"{folder}/db.json": database,
        f"{folder}/policy.md": b"# Policy\nBe {kind}.",
    }


REPOSITORIES: Final[dict[str, Callable[[], dict[str, bytes]]]] = {
    "aime25": aime25,
    "math500": math500,
    "gpqa_diamond": gpqa,
    "mmlu_pro": mmlu_pro,
    "livecodebench_v5": livecodebench(167, "test5.jsonl"),
    "livecodebench_v6": livecodebench(175, "test6.jsonl"),
    "ifeval": ifeval,
    "ifbench": ifbench,
    "humaneval_plus": humaneval_plus,
    "mbpp_plus": mbpp_plus,
    "bfcl_v3": bfcl,
    "spider": spider,
    "tau2_retail": tau2("retail", 114),
    "tau2_airline": tau2("airline", 50),
}
"""The files of each benchmark's repository."""
