"""Exports of odd runs and with odd options: unusual transcripts, expressions, files, and combinations."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from gymnast.cli.commands import build_app
from gymnast.cli.main import run_guarded
from gymnast.config.secrets import Scrubber
from gymnast.errors import DataError, UserError
from gymnast.store.annotations import annotations_path
from gymnast.store.scrub_rows import RowScrubber
from gymnast.train.dataset.export import ExportResult
from gymnast.train.dataset.files import DatasetFolder
from gymnast.train.dataset.schema import Kind
from gymnast.train.dataset.select import PairRules, parse_splits
from gymnast.train.dataset.where import parse_where
from tests.helpers.export_runs import TOOL, calls, failed, returns, rollout, says, thinks, write_run
from tests.helpers.jsonl import read_jsonl, write_jsonl
from tests.unit.test_export_dataset import export, rows

IMAGE = "data:image/png;base64,AAAA"


def one(tmp_path: Path, record: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The only row of a run with one record."""
    export(write_run(tmp_path / "r", [record]), tmp_path / "o", **more)
    (row,) = rows(tmp_path / "o")
    return row


def reasons(result: ExportResult) -> dict[str, int]:
    counts: dict[str, int] = result.manifest["counts"]["left_out"]
    return counts


# --- transcripts -----------------------------------------------------------------------------------------------------

TEXTS = [
    "Zoë 日本語 🎉 \u2028 \u0000 \x7f", 'quotes " and \\ and / and </script>', "line\nline\r\n\ttab", "", " " * 1000,
    "\\ud83d is not an escape", "e\u0301 \U0001f468\u200d\U0001f469", "x" * 3_000_000,
]  # fmt: skip


def test_results_have_the_names_of_their_calls_though_ids_repeat(tmp_path: Path) -> None:
    output = [
        *(calls("look", {}), calls("buy", {}), returns("seen"), returns("bought")),  # one id, one turn
        *(calls("lost", {}, "c2"), calls("ask", {}, "c3"), returns("told", "c3")),  # one call has no result
        *(calls("pay", {}, "c2"), returns("paid", "c2")),
        *(calls("look", {}), returns("again"), says("done")),  # a later turn
    ]
    row = one(tmp_path, rollout(output=output))
    results = [(message["content"], message["name"]) for message in row["messages"] if message["role"] == "tool"]
    assert results == [("seen", "look"), ("bought", "buy"), ("told", "ask"), ("paid", "pay"), ("again", "look")]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_texts_come_out_as_they_went_in(tmp_path: Path, text: str) -> None:
    output = [thinks(text or "-"), calls("look", {"at": text}), returns(text), says(text or "-")]
    row = one(tmp_path, rollout(prompt=text or "q", output=output))
    call, tool, last = row["messages"][1:]
    assert call["tool_calls"][0]["function"]["arguments"] == {"at": text}
    assert tool["content"] == text
    assert (last["content"], call["reasoning_content"]) == (text or "-", text or "-")


@pytest.mark.parametrize("container", ["jsonl", "parquet"])
def test_half_of_a_surrogate_pair_does_not_break_the_file(tmp_path: Path, container: str) -> None:
    run = write_run(tmp_path / "r", [rollout(0), rollout(1)])
    run.write_text(run.read_text().replace("answer 1.0", "half \\ud83d of a pair"))
    result = export(run, tmp_path / "o", files=container)
    assert result.manifest["counts"]["rows"] + sum(reasons(result).values()) == 2
    if container == "jsonl":
        (tmp_path / "o" / "train.jsonl").read_bytes().decode()


ARGUMENTS: list[tuple[str, Any]] = [
    ('{"n": 123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
    ('{"n": 1e400, "m": -0.0}', None), ('{"a": 1, "a": 2}', {"a": 2}), ("", {}), ("  {}\n", {}),
    ("not json", "not json"), ("[1, 2]", "[1, 2]"), ('{"a": ', '{"a": '), ('{\n "a": "b\\n"\n}', {"a": "b\n"}),
    ("null", "null"), ('{"a": NaN}', '{"a": NaN}'), ('{"é": "ü"}', {"é": "ü"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), ARGUMENTS, ids=range(len(ARGUMENTS)))
def test_arguments_are_objects_or_the_text_of_the_model(tmp_path: Path, text: str, expected: Any) -> None:
    row = one(tmp_path, rollout(output=[calls("look", text), returns("x"), says("y")]))
    found = row["messages"][1]["tool_calls"][0]["function"]["arguments"]
    if expected is not None:
        assert found == expected
    assert len((tmp_path / "o" / "train.jsonl").read_bytes().split(b"\n")) == 2
    openai = one(tmp_path / "openai", rollout(output=[calls("look", text), returns("x"), says("y")]), target="openai")
    assert openai["messages"][1]["tool_calls"][0]["function"]["arguments"] == text


def test_ten_thousand_tool_calls(tmp_path: Path) -> None:
    output = [
        item for n in range(10_000) for item in (calls("look", {"at": str(n)}, f"c{n}"), returns(str(n), f"c{n}"))
    ]
    row = one(tmp_path, rollout(output=[*output, says("end")]))
    assert len(row["messages"]) == 20_002


@pytest.mark.parametrize(
    ("target", "part"),
    [
        ("trl", {"type": "image", "image": IMAGE}),
        ("openai", {"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}}),
    ],
)
def test_images_stay_in_their_place(tmp_path: Path, target: str, part: dict[str, Any]) -> None:
    image = {"type": "input_image", "image_url": IMAGE, "detail": "low"}
    prompt = [{"role": "user", "content": [{"type": "input_text", "text": "what?"}, image]}]
    row = one(tmp_path, rollout(prompt=prompt), target=target)
    assert row["messages"][0]["content"] == [{"type": "text", "text": "what?"}, part]


def test_arguments_with_line_breaks_stay_in_one_row_and_spaces_make_no_difference_to_duplicates(tmp_path: Path) -> None:
    written = ['{"at": [1, 2]}', '{"at":[1,2]}', '{\n "at":\r\n [1, 2]}']
    answers = [rollout(0, number, 1.0, [calls("look", text), says("x")]) for number, text in enumerate(written)]
    run = write_run(tmp_path / "r", answers)
    assert export(run, tmp_path / "all").manifest["counts"]["rows"] == len(rows(tmp_path / "all")) == 3
    assert export(run, tmp_path / "once", dedup=True).manifest["counts"]["rows"] == 1


@pytest.mark.parametrize("more", [{}, {"best_of": 9}], ids=["one pass", "two passes"])
def test_fields_of_authors_are_complete_whatever_other_records_have(tmp_path: Path, more: dict[str, Any]) -> None:
    own: list[dict[str, Any]] = [
        {"a": 1},
        {"b": [1.0, None], "a": "é"},
        {"truncated": "no", "terminated": None},
        {},
        {"reward_note": {"a": {}}, "b": 0},
        {"": 1, "a.b": 2, 'a "quoted"\nname\\': {"c": 3}},
        {"a": 1},
    ]
    run = write_run(tmp_path / "r", [rollout(0, number, **fields) for number, fields in enumerate(own)])
    export(run, tmp_path / "o", "jsonl", **more)
    assert [row["fields"] for row in rows(tmp_path / "o")] == own


def test_images_in_typed_columns(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    image = {"type": "input_image", "image_url": IMAGE}
    run = write_run(tmp_path / "r", [rollout(0), rollout(1, prompt=[{"role": "user", "content": [image]}])])
    export(run, tmp_path / "o", "datasets")
    table = parquet.read_table(tmp_path / "o" / "data" / "train-00000-of-00001.parquet").to_pylist()
    contents = [json.loads(row["messages"][0]["content"]) for row in table]
    assert contents == ["question 0", [{"type": "image", "image": IMAGE}]]


ODD_OUTPUTS: list[tuple[Any, str]] = [
    ([], "no_assistant_turn"), (None, "no_transcript"), ("text", "unusual_transcript"), ([1], "unusual_transcript"),
    ([{"type": "mcp_call"}], "item_mcp_call"), ([{"role": "user", "content": "x"}], "no_assistant_turn"),
    ([{"type": 5}], "unusual_transcript"), ([calls("look", {}) | {"name": None}], "unusual_transcript"),
    ([{"role": "robot", "content": "x"}, says("y")], "unusual_role"),
    ([{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}, says("y")], "part_input_file"),
]  # fmt: skip


@pytest.mark.parametrize(("output", "reason"), ODD_OUTPUTS, ids=range(len(ODD_OUTPUTS)))
def test_what_chat_cannot_express_is_left_out(tmp_path: Path, output: Any, reason: str) -> None:
    odd = rollout(1) | {"response": {"output": output}}
    result = export(write_run(tmp_path / "r", [rollout(0), odd]), tmp_path / "o")
    assert reasons(result) == {reason: 1}


@pytest.mark.parametrize("response", [None, 5, "x", [], {}])
def test_a_record_without_a_response(tmp_path: Path, response: Any) -> None:
    result = export(write_run(tmp_path / "r", [rollout(0), rollout(1) | {"response": response}]), tmp_path / "o")
    assert sum(reasons(result).values()) == 1


def test_refusals_calls_without_ids_and_two_texts(tmp_path: Path) -> None:
    refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    call = {"type": "function_call", "name": "look", "arguments": "{}"}
    row = one(tmp_path, rollout(output=[says("a"), says("b"), call, call, refusal]))
    (message,) = row["messages"][1:]
    assert message["content"] == "abno"
    assert [entry["id"] for entry in message["tool_calls"]] == ["call_0", "call_1"]


def test_a_prompt_with_earlier_turns_and_several_system_messages(tmp_path: Path) -> None:
    prompt = [
        {"role": "developer", "content": "d"},
        {"role": "user", "content": [{"type": "input_text", "text": "1"}, {"type": "input_text", "text": "2"}]},
        calls("look", {}, "z"), returns("seen", "z"), says("before"), {"role": "user", "content": "now"},
    ]  # fmt: skip
    row = one(tmp_path, rollout(prompt=prompt, params={"instructions": "i"}))
    roles = [message["role"] for message in row["messages"]]
    assert roles == ["system", "system", "user", "assistant", "tool", "assistant", "user", "assistant"]
    assert row["messages"][2]["content"] == "12"


def test_tools_in_other_forms(tmp_path: Path) -> None:
    chat_tool = {"type": "function", "function": {"name": "f", "parameters": None}}
    assert one(tmp_path / "a", rollout(params={"tools": [chat_tool]}))["tools"] == [
        {"type": "function", "function": {"name": "f"}}
    ]
    assert one(tmp_path / "b", rollout(response={"tools": [TOOL]}))["tools"][0]["function"]["name"] == "look"
    hosted = rollout(1, params={"tools": [{"type": "web_search"}]})
    result = export(write_run(tmp_path / "c", [rollout(0), hosted]), tmp_path / "oc")
    assert reasons(result) == {"hosted_tool": 1}


# --- rewards, runs and files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", ["1", None, [1], {}, True])
def test_rewards_that_are_not_numbers(tmp_path: Path, reward: Any) -> None:
    result = export(write_run(tmp_path / "r", [rollout(0), rollout(1, reward=reward)]), tmp_path / "o")
    assert reasons(result) == ({} if reward is True else {"no_reward": 1})


def test_a_huge_reward_and_one_that_is_not_finite(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [rollout(0), rollout(1, reward=10**400), rollout(2, reward=float("inf"))])
    with pytest.raises(DataError, match="line 3"):  # Infinity is not JSON
        export(run, tmp_path / "o")
    run = write_run(tmp_path / "r2", [rollout(0), rollout(1, reward=10**400)])
    assert reasons(export(run, tmp_path / "o")) == {"no_reward": 1}


def test_all_failed_and_empty_runs(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [], failures=[failed(0, 0), failed(0, 1, "timeout")])
    with pytest.raises(UserError, match=r"failed \(agent_error\) 1, failed \(timeout\) 1"):
        export(run, tmp_path / "o")
    with pytest.raises(UserError, match="no scored rollouts"):
        export(write_run(tmp_path / "e", []), tmp_path / "o")
    with pytest.raises(DataError, match="no scored rollouts"):
        export(tmp_path / "missing.jsonl", tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_an_unfinished_last_line_is_ignored(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [rollout(0), rollout(1)])
    run.write_bytes(run.read_bytes()[:-30])
    assert export(run, tmp_path / "o").manifest["counts"]["rows"] == 1


def test_a_broken_line_in_the_middle_is_an_error_with_its_place(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [rollout(0), rollout(1)])
    run.write_bytes(b"\n" + run.read_bytes().replace(b'"reward"', b'"rew\xffard"', 1))
    with pytest.raises(DataError, match="line 2"):
        export(run, tmp_path / "o")


def test_the_output_is_a_file_or_has_other_files(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [rollout(0)])
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="the output is a file"):
        export(run, tmp_path / "file")
    with pytest.raises(UserError, match="not empty"):
        export(run, tmp_path / "r")
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "mine.txt").write_text("mine")
    export(run, tmp_path / "o", overwrite=True)
    assert (tmp_path / "o" / "mine.txt").read_text() == "mine"
    (tmp_path / "o" / "export.json").write_text("{")
    with pytest.raises(UserError, match="earlier export"):
        export(run, tmp_path / "o")


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    run = write_run(tmp_path / "r", [rollout(0)])
    export(run, tmp_path / "o")
    before = sorted(path.name for path in (tmp_path / "o").iterdir())
    from gymnast.train.dataset import files

    original = files._JsonlWriter.__init__

    def on_full_disk(self: Any, staging: Path, split: str, scrubber: Any) -> None:
        original(self, staging, split, scrubber)
        self._stream.close()
        self._stream = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115 - the writer closes it

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files._JsonlWriter, "__init__", on_full_disk)
        with pytest.raises(UserError, match="No space left"):
            export(run, tmp_path / "o", target="openai", overwrite=True)
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == before


def test_runs_with_clashing_names_and_tasks(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", [rollout(0, n, float(n)) for n in range(2)])
    second = write_run(tmp_path / "b", [rollout(0, n, float(1 - n), prompt="other") for n in range(2)])
    export([first, second], tmp_path / "o", "dpo")
    assert [(row["run"], row["chosen_rollout"]) for row in rows(tmp_path / "o")] == [("run", 1), ("run-2", 0)]
    assert [row["prompt"][0]["content"] for row in rows(tmp_path / "o")] == ["question 0", "other"]
    with pytest.raises(UserError, match="named twice"):
        export([first, tmp_path / "b" / ".." / "a" / "run.jsonl"], tmp_path / "x")


def test_pairs_never_mix_prompts_or_equal_completions(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "r",
        [
            rollout(0, 0, 1.0, prompt="a"), rollout(0, 1, 0.0, prompt="b"),
            rollout(1, 0, 1.0, [says("same")]), rollout(1, 1, 0.0, [says("same")]),
            rollout(2, 0, 1.0), rollout(2, 1, 0.0),
        ],
    )  # fmt: skip
    result = export(run, tmp_path / "o", "dpo", pairs=PairRules())
    assert reasons(result) == {"pair_with_different_prompts": 1, "pair_with_same_completion": 1}


def test_the_rollouts_of_pairs_are_labelled_task_by_task(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "r",
        [
            *(rollout(task, 0, 1.0) for task in range(3)), rollout(3, 0, 1.0, [says("same")]),
            *(rollout(task, 1, 0.0) for task in range(3)), rollout(3, 1, 0.0, [says("same")]),
        ],
    )  # fmt: skip
    result = export(run, tmp_path / "o", "kto")
    assert [(row["task"], row["rollout"], row["label"]) for row in rows(tmp_path / "o")] == [
        (task, number, number == 0) for task in range(3) for number in range(2)
    ]
    assert reasons(result) == {"pair_with_same_completion": 1}


def test_rows_that_parquet_cannot_hold_leave_no_file_and_no_thread(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet")
    before, scrubber = threading.active_count(), RowScrubber(Scrubber(None))
    columns: dict[str, Kind] = {"text": "string", "number": "int64"}
    with DatasetFolder(tmp_path / "o", "parquet", scrubber, columns, 1 << 20) as folder:
        folder.write([("train", b'{"text":"a","number":"not a number"}')])
        with pytest.raises(UserError, match="cannot write these rows as Parquet"):
            folder.finish(["train"])
    assert not (tmp_path / "o").exists()
    assert threading.active_count() == before


ODD_TEXTS = (
    'find "-----BEGIN PRIVATE KEY-----" in the file',
    "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n",
    "sk-abc123DEF456ghi789jkl0",
    "ünïcödé 漢字 🙂 \u2028 \x00 \x01",
    "https://me:hunter22@host/x",
    "",
)


def test_parquet_has_the_same_content_as_jsonl(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    outputs: list[Any] = [*ODD_TEXTS, {"price": 1.5}, None, 3, [{"type": "input_text", "text": "a"}]]
    records = [
        rollout(number, prompt=f"do {number}", output=[thinks(text), calls("buy", {"what": text}), output, says(text)])
        for number, text in enumerate(ODD_TEXTS)
        for output in [returns(outputs[number])]
    ]
    records += [
        rollout(100 + number, output=[calls("buy", {}), returns(value), says("done")])
        for number, value in enumerate(outputs)
    ]
    run = write_run(tmp_path / "r", records)
    as_text = export(run, tmp_path / "a", "sft", target="axolotl")
    as_columns = export(run, tmp_path / "b", "sft", target="axolotl", files="parquet")
    read = parquet.read_table(tmp_path / "b" / "train.parquet").to_pylist()
    assert [_without_nulls(row["messages"]) for row in read] == [row["messages"] for row in rows(tmp_path / "a")]
    assert as_columns.manifest["counts"] == as_text.manifest["counts"]
    assert as_text.manifest["counts"]["secrets_masked"] > 0


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(child) for child in value]
    if isinstance(value, dict):
        return {name: _without_nulls(child) for name, child in value.items() if child is not None}
    return value


def test_a_quoted_header_of_a_private_key_leaves_the_row_valid(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [rollout(0, output=[says(ODD_TEXTS[0])])])
    export(run, tmp_path / "o")
    assert rows(tmp_path / "o")[0]["messages"][-1]["content"] == ODD_TEXTS[0]


def test_a_task_with_several_prompts_stays_in_one_split(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [rollout(t, n, prompt=f"{t + n}") for t in range(0, 30, 2) for n in range(3)])
    export(run, tmp_path / "o", splits={"a": 0.5, "b": 0.5})  # every task shares a prompt with the next
    assert sorted(len(rows(tmp_path / "o", split)) for split in ("a", "b")) == [0, 45]


# --- expressions -----------------------------------------------------------------------------------------------------

VALUES = {"reward": 0.5, "agent": "a", "truncated": False, "level": 3, "tags": ["x"], "missing": None}
TRUE = [
    "reward >= 0.5", "0 < reward < 1", "not truncated", "agent in ('a', 'b')", "agent not in ['b']", "level % 2 == 1",
    "-level < 0", "(level + 1) * 2 == 8", "'x' in tags", "len(tags) == 1", "missing is None", "missing == null",
    "not missing > 1", "level / 0 == null", "lower('A') == agent", "true or level", "agent != 'b' or nothing > 1",
    "truncated == False", "missing is not true", "abs(-level) == 3", "level == 3.0", "agent != 'é'",
]  # fmt: skip
FALSE = [
    "missing > 1",
    "missing < 1",
    "nothing == 1",
    "false and level",
    "agent == 'A'",
    "missing + 1 > 0",
    "1 in nothing",
]
BAD = {
    "": "is empty", "reward >": "cannot be parsed", "reward = 1": "compare with ==", "a && b": "write and, or, not",
    "!truncated": "write and, or, not", "__import__('os')": "no function '__import__'", "reward.real()": "support",
    "(lambda: 1)()": "support", "[x for x in tags]": "support", "reward ** 99": "support", "tags[0]": "support",
    "f'{reward}'": "support", "print(1)": "available: len", "len(a, b)": "each with one argument", "x := 1": "parsed",
    "reward if 1 else 2": "support", "a" * 5000: "longer than", "(" * 500 + "1" + ")" * 500: "nested|parsed|parenth",
    "1; 2": "parsed", "'a'.join(tags)": "support", "b'x' == 1": "support", "reward == 1j": "support",
    "true": "names no column", "'reward > 1'": "names no column", "1 > 2": "names no column",
}  # fmt: skip


@pytest.mark.parametrize("text", [*TRUE, *FALSE])
def test_expressions(text: str) -> None:
    assert parse_where(text).matches(VALUES) == (text in TRUE)


@pytest.mark.parametrize(("text", "message"), BAD.items(), ids=range(len(BAD)))
def test_what_is_not_an_expression_is_explained(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_where(text)
    import re

    assert re.search(message, str(caught.value)), str(caught.value)


def test_several_expressions_must_all_match() -> None:
    assert parse_where("reward > 0", "level == 3").matches(VALUES)
    assert not parse_where("reward > 0 or level > 3", "level > 3").matches(VALUES)
    with pytest.raises(UserError, match="no column"):
        parse_where("reward > 0", "1 > 2")


@pytest.mark.parametrize("text", ["agent > 1", "tags < 3", "agent + 1 > 2", "len(level) > 1", "'x' in level"])
def test_mixed_types_name_the_columns(text: str) -> None:
    with pytest.raises(UserError, match="different types") as caught:
        parse_where(text).matches(VALUES)
    assert "in this rollout" in str(caught.value)


def test_columns_of_records_are_found_and_others_suggested(tmp_path: Path) -> None:
    extra: dict[str, Any] = {"level": 2, "parts": {"a": {"b": 1}}, "sometimes": 1}
    run = write_run(tmp_path / "r", [rollout(0, level=1), rollout(1, **extra), rollout(2)])
    for text in ("level == 2", "parts.a.b == 1", "sometimes == 1", "response.model == 'm' and task == 1"):
        assert [row["task"] for row in _where(run, tmp_path / text.replace("/", ""), text)] == [1], text
    with pytest.raises(UserError, match="no column 'rewrd'") as caught:
        export(run, tmp_path / "x", where="rewrd > 0")
    assert "'reward'" in str(caught.value)
    with pytest.raises(UserError, match=r"no column 'parts.c'"):
        export(run, tmp_path / "x", where="parts.c > 0")
    assert not (tmp_path / "x").exists()
    assert [
        row["task"] for row in _where(run, tmp_path / "t", "tool_calls == 0 and task_rollouts == 1 and task < 1")
    ] == [0]


def _where(run: Path, folder: Path, text: str) -> list[dict[str, Any]]:
    export(run, folder, where=text)
    return rows(folder)


@pytest.mark.parametrize("text", ["train", "train=2", "train=0.5", "a=0.5,a=0.5", "a=x,b=1", "a b=1", "train=nan", ""])
def test_splits_that_cannot_be_read(text: str) -> None:
    with pytest.raises(UserError, match="--splits"):
        parse_splits(text)


def test_labels_with_a_torn_last_line_and_a_removed_label(tmp_path: Path) -> None:
    line = {"task": 0, "rollout": 0, "label": "good"}
    run = write_run(tmp_path / "r", [rollout(0), rollout(1)])
    path = write_jsonl(annotations_path(run), [line, line | {"task": 1}, line | {"label": None}])
    path.write_bytes(b"x\n" + path.read_bytes() + b'{"task": 0, "roll')
    export(run, tmp_path / "o", labels=("good",))
    assert [row["task"] for row in rows(tmp_path / "o")] == [1]


@pytest.mark.parametrize(
    "more",
    [
        {"format_": "kto", "target": "openai"}, {"format_": "rl", "files": "parquet"},
        {"format_": "dpo", "target": "nemo-rl", "files": "parquet"}, {"target": "openai", "files": "datasets"},
    ],
)  # fmt: skip
def test_combinations_that_no_reader_has(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        export(write_run(tmp_path / "r", [rollout(0)]), tmp_path / "o", **more)
    assert not (tmp_path / "o").exists()


def test_a_refusal_names_what_the_user_chose(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--format rl writes JSONL"):
        export(write_run(tmp_path / "r", [rollout(0)]), tmp_path / "o", "rl", files="parquet")


def test_a_run_without_its_plan_has_no_tasks_to_export(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [rollout(0)])
    (tmp_path / "r" / "run_materialized_inputs.jsonl").unlink()
    with pytest.raises(DataError, match="no materialized inputs"):
        export(run, tmp_path / "o", "rl")


def test_the_same_export_of_another_copy_of_the_run_has_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run = write_run(tmp_path / name, [rollout(t, n, n / 2) for t in range(9) for n in range(3)])
        for format_ in ("sft", "dpo", "parquet"):
            export(run, tmp_path / f"{name}-{format_}" / "o", format_, splits={"train": 0.7, "test": 0.3})
    for format_ in ("sft", "dpo", "parquet"):
        files = [
            {path.name: path.read_bytes() for path in (tmp_path / f"{name}-{format_}" / "o").iterdir()} for name in "ab"
        ]
        assert files[0] == files[1]
    assert read_jsonl(tmp_path / "a-sft" / "o" / "train.jsonl")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-f sft --margin 0.5", "--margin has no effect"),
        ("-f kto --threshold 0.5 --pairs all", "--pairs has no effect"),
        ("-f rl --ties longest", "--ties has no effect"),
        ("-f sft --seed 7", "--seed has no effect without --splits"),
        ("-f rl --reasoning inline", "--reasoning has no effect without conversations"),
        ("-f sft --best-of 3 --one-per-task", "contradict"),
        ("-f sft --public", "--public is for --push"),
        ("-f rl --for openai", "does not read tasks"),
        ("-f sft --splits=", "--splits"),
    ],
)
def test_options_without_effect_are_refused(
    tmp_path: Path, words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "r", [rollout()])
    line = ["export", str(run), "-o", str(tmp_path / "o"), *words.split()]
    assert run_guarded(lambda: build_app("export")(args=line, standalone_mode=False)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_an_output_below_a_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="the output is a file") as caught:
        export(write_run(tmp_path / "r", [rollout()]), tmp_path / "file" / "o")
    assert caught.value.where == str(tmp_path / "file")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("agent == my_agent", "write texts in quotes: 'my_agent'"),
        ("agent in (my_agent, 'b')", "write texts in quotes: 'my_agent'"),
        ("agent == rewrd", "'rewrd', or did you mean 'reward'"),
        ("nothing_like_it > 1", "available: agent"),
    ],
)
def test_a_text_without_quotes_is_not_a_column(tmp_path: Path, text: str, hint: str) -> None:
    with pytest.raises(UserError, match=rf"(?s)there is no column.*{hint}"):
        export(write_run(tmp_path / "r", [rollout()]), tmp_path / "o", where=text)


@pytest.mark.parametrize("word", ["contains", "LIKE", "~"])
def test_what_other_languages_write_for_a_part_of_a_text_is_translated(word: str) -> None:
    with pytest.raises(UserError, match="write 'a b' in note"):
        parse_where(f"note {word} 'a b'")


@pytest.mark.parametrize(("threshold", "kind"), [(2.0, "undesired"), (-1.0, "desired")])
def test_a_threshold_that_gives_all_rows_one_label_is_a_note(tmp_path: Path, threshold: float, kind: str) -> None:
    run = write_run(tmp_path / "r", [rollout(task, reward=task / 2) for task in range(3)])
    (note,) = export(run, tmp_path / "o", "kto", threshold=threshold).notes
    assert f"all rows are {kind}" in note
    assert export(run, tmp_path / "p", "kto", threshold=0.5).notes == []
