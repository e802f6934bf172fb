"""Exports of rollouts: how each format looks, what is left out and why, splits, labels, secrets, repeated exports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymnast.config.secrets import Scrubber
from gymnast.errors import DataError, UserError
from gymnast.store.annotations import annotations_path, append_annotation, make_annotation
from gymnast.store.labels import LabelFilter
from gymnast.train.dataset.export import ExportRequest, ExportResult, export_dataset
from gymnast.train.dataset.index import Filters
from gymnast.train.dataset.select import PairRules
from gymnast.train.dataset.where import parse_where
from tests.helpers.commands import Outcome
from tests.helpers.export_runs import TOOL, calls, failed, returns, rollout, says, thinks, write_run
from tests.helpers.jsonl import read_jsonl

KEY = "sk-abcdefgh12345678ijklmnop"


def export(
    run: Path | list[Path], folder: Path, format_: str = "sft", *, where: str | None = None, **more: Any
) -> ExportResult:
    by_label = LabelFilter(more.pop("labels", ()), more.pop("excluded_labels", ()))
    names = ("include_truncated", "include_masked", "max_bytes", "dedup")
    chosen = {name: more.pop(name) for name in names if name in more}
    filters = Filters(where=parse_where(where) if where else None, by_label=by_label, **chosen)
    runs = tuple(run) if isinstance(run, list) else (run,)
    secrets = more.pop("secrets", ())
    request = ExportRequest(runs, folder, format_, filters=filters, **more)
    return export_dataset(request, Scrubber(None, secrets))


def rows(folder: Path, split: str = "train") -> list[dict[str, Any]]:
    return read_jsonl(folder / f"{split}.jsonl")


def with_tools(tmp_path: Path) -> Path:
    output = [
        thinks("first"),
        calls("look", {"at": "a"}, "c1"),
        calls("look", {"at": "b"}, "c2"),
        returns("A", "c1"),
        returns([{"type": "input_text", "text": "B"}], "c2"),
        thinks("then"),
        says("done"),
        {"role": "user", "content": "bye"},
    ]
    return write_run(tmp_path / "r", [rollout(output=output, params={"tools": [TOOL], "instructions": "be kind"})])


def test_a_conversation_with_parallel_calls_keeps_tools_and_reasoning(tmp_path: Path) -> None:
    export(with_tools(tmp_path), tmp_path / "o")
    (row,) = rows(tmp_path / "o")
    call = {"type": "function", "function": {"name": "look", "arguments": {"at": "a"}}, "id": "c1"}
    other = {"type": "function", "function": {"name": "look", "arguments": {"at": "b"}}, "id": "c2"}
    assert row["messages"] == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "question 0"},
        {"role": "assistant", "content": "", "reasoning_content": "first", "tool_calls": [call, other]},
        {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "A"},
        {"role": "tool", "tool_call_id": "c2", "name": "look", "content": "B"},
        {"role": "assistant", "content": "done", "reasoning_content": "then"},
    ]
    function = {name: TOOL[name] for name in ("name", "description", "parameters")}
    assert row["tools"] == [{"type": "function", "function": function}]
    assert (row["reward"], row["run"], row["task"], row["rollout"]) == (1.0, "run", 0, 0)


def test_openai_reads_arguments_as_text_and_no_other_keys(tmp_path: Path) -> None:
    result = export(with_tools(tmp_path), tmp_path / "o", target="openai")
    (row,) = rows(tmp_path / "o")
    assert set(row) == {"messages", "tools"}
    assert row["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"at": "a"}'
    assert "name" not in row["messages"][3]
    assert not any("reasoning_content" in message for message in row["messages"])
    assert any("reasoning was dropped from 1" in note for note in result.notes)
    export(with_tools(tmp_path), tmp_path / "o2", target="openai", reasoning="inline")
    assert rows(tmp_path / "o2")[0]["messages"][-1]["content"] == "<think>then</think>done"


def test_pairs_have_a_margin_and_a_rule_for_ties(tmp_path: Path) -> None:
    scores = [1.0, 1.0, 0.4, 0.0, 0.0]
    texts = ["long long", "b", "c", "longer still", "e"]
    run = write_run(
        tmp_path / "r",
        [rollout(0, number, scores[number], [says(texts[number])]) for number in range(5)]
        + [rollout(1, 0, 1.0), rollout(2, 0, 0.5), rollout(2, 1, 0.5)],
    )
    found = {
        ties: export(run, tmp_path / ties, "dpo", pairs=PairRules(ties=ties))
        for ties in ("first", "shortest", "longest")
    }
    kept = {ties: rows(tmp_path / ties)[0] for ties in found}
    assert [kept[ties]["chosen"][0]["content"] for ties in found] == ["long long", "b", "long long"]
    assert [kept[ties]["rejected"][0]["content"] for ties in found] == ["longer still", "e", "longer still"]
    assert kept["first"]["prompt"] == [{"role": "user", "content": "question 0"}]
    left_out = found["first"].manifest["counts"]["left_out"]
    assert left_out == {"task_with_one_rollout": 1, "task_without_margin": 1}
    export(run, tmp_path / "all", "dpo", pairs=PairRules(margin=0.6, pairs="all"))
    assert len(rows(tmp_path / "all")) == 6
    export(run, tmp_path / "kto", "kto")
    assert [(row["rollout"], row["label"]) for row in rows(tmp_path / "kto")] == [(0, True), (3, False)]
    export(run, tmp_path / "kto2", "kto", threshold=0.5)
    assert sum(row["label"] for row in rows(tmp_path / "kto2")) == 5
    export(run, tmp_path / "nemo", "dpo", target="nemo-rl")
    (pair,) = rows(tmp_path / "nemo")
    assert [entry["rank"] for entry in pair["completions"]] == [0, 1]
    assert pair["context"] == kept["first"]["prompt"]
    export(run, tmp_path / "openai", "dpo", target="openai")
    assert set(rows(tmp_path / "openai")[0]) == {"input", "preferred_output", "non_preferred_output"}


def test_what_is_left_out_is_counted_with_its_reason(tmp_path: Path) -> None:
    hosted = [{"type": "web_search_call", "id": "w"}, says("x")]
    run = write_run(
        tmp_path / "r",
        [
            rollout(0),
            rollout(1, reward=None),
            rollout(2, response={"incomplete_details": {"reason": "max_output_tokens"}}),
            rollout(3, mask_sample=True),
            rollout(4, reward=0.0),
            rollout(5, output=hosted),
            rollout(6, output=[]),
            rollout(7, output=[says("x" * 500)]),
        ],
        failures=[failed(8, 0), failed(8, 0, "timeout"), failed(0, 0), failed(9, 0, "worker_died", final=False)],
    )
    result = export(run, tmp_path / "o", where="reward > 0.5", max_bytes=300)
    counts = result.manifest["counts"]
    assert counts["left_out"] == {
        "item_web_search_call": 1, "masked": 1, "no_assistant_turn": 1, "no_reward": 1, "too_long": 1, "truncated": 1,
        "where": 1,
    }  # fmt: skip
    assert counts["failed"] == {"timeout": 1, "worker_died": 1}
    assert counts["rollouts"] == 8 == counts["rows"] + sum(counts["left_out"].values())
    again = export(run, tmp_path / "o2", include_truncated=True, include_masked=True)
    assert again.manifest["counts"]["rows"] == 5


def test_best_of_n_and_duplicates(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "r", [rollout(0, n, n / 4, [calls("look", {}, f"id{n}"), says("same")]) for n in range(4)]
    )
    export(run, tmp_path / "one", best_of=1)
    assert [row["rollout"] for row in rows(tmp_path / "one")] == [3]
    export(run, tmp_path / "two", best_of=2)
    assert [row["rollout"] for row in rows(tmp_path / "two")] == [2, 3]
    result = export(run, tmp_path / "dedup", dedup=True)  # the ids of calls differ
    assert [row["rollout"] for row in rows(tmp_path / "dedup")] == [0]
    assert result.manifest["counts"]["left_out"] == {"duplicate": 3}


def test_splits_keep_equal_prompts_together_across_runs(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", [rollout(task, n) for task in range(40) for n in range(2)])
    other = write_run(tmp_path / "b", [rollout(task, 0, prompt=f"question {39 - task}") for task in range(40)])
    shares = {"train": 0.5, "test": 0.5}
    export([first, other], tmp_path / "o", splits=shares)
    prompts = {
        split: {row["messages"][0]["content"] for row in rows(tmp_path / "o", split)} for split in ("train", "test")
    }
    assert not prompts["train"] & prompts["test"]
    assert min(map(len, prompts.values())) > 8
    assert {row["run"] for row in rows(tmp_path / "o")} == {"run", "run-2"}
    export(first, tmp_path / "alone", splits=shares, where="reward > 0")  # the same tasks, whatever else is exported
    alone = {row["messages"][0]["content"] for row in rows(tmp_path / "alone")}
    assert alone == prompts["train"]


def test_labels_select_rollouts(tmp_path: Path) -> None:
    labels = [
        {"task": 0, "rollout": 0, "label": "bad", "note": "", "by": "me", "at": 1.5},
        {"task": 0, "rollout": 0, "label": "good", "note": "n", "by": "me", "at": 2.5},
        {"task": 1, "rollout": None, "label": "good", "note": "", "by": "me", "at": 2.5},
        {"task": 1, "rollout": 1, "label": "bad", "note": "", "by": "me", "at": 2.5},
    ]
    run = write_run(tmp_path / "r", [rollout(task, n) for task in range(3) for n in range(2)], labels=labels)
    export(run, tmp_path / "good", labels=("good",))
    assert [(row["task"], row["rollout"]) for row in rows(tmp_path / "good")] == [(0, 0), (1, 0)]
    export(run, tmp_path / "not", excluded_labels=("bad",))
    assert len(rows(tmp_path / "not")) == 5
    export(run, tmp_path / "where", where="label == 'good' and note != 'n'")
    assert [(row["task"], row["rollout"]) for row in rows(tmp_path / "where")] == [(1, 0)]
    with pytest.raises(UserError, match="no rollout or task has the label 'goood'") as caught:
        export(run, tmp_path / "x", labels=("goood",))
    assert "'good'" in str(caught.value)


def test_labels_of_the_studio_are_those_that_exports_read(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [rollout(0), rollout(1)])
    append_annotation(annotations_path(run), make_annotation({"task": 1, "rollout": 0, "label": "reward hack"}))
    export(run, tmp_path / "o", excluded_labels=("reward hack",))
    assert [row["task"] for row in rows(tmp_path / "o")] == [0]


def test_secrets_are_masked_and_counted(tmp_path: Path) -> None:
    text = f"key\n{KEY} url https://me:hunter22@host/x and known-secret-123 but task-list, sk-learn and hf_x stay"
    pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----"
    run = write_run(tmp_path / "r", [rollout(output=[says(text), says(pem)])])
    result = export(run, tmp_path / "o", secrets=["known-secret-123"])
    content = rows(tmp_path / "o")[0]["messages"][-1]["content"]
    text = "key\n**** url https://****@host/x and **** but task-list, sk-learn and hf_x stay"
    assert content.startswith(f"{text}-----BEGIN RSA PRIVATE KEY-----")
    assert "MIIabc" not in content
    assert result.manifest["counts"]["secrets_masked"] == 4


def test_the_card_says_where_the_rows_came_from(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [rollout(task) for task in range(3)])
    result = export(run, tmp_path / "o", "sft", splits={"train": 0.5, "test": 0.5})
    _, head, body = (tmp_path / "o" / "README.md").read_text().split("---\n", 2)
    card = yaml.safe_load(head)
    paths = [entry["path"] for entry in card["configs"][0]["data_files"]]
    assert set(paths) <= {"train.jsonl", "test.jsonl"}
    assert result.manifest["runs"][0]["crc32"] in body
    assert str(tmp_path) not in body
    assert json.loads((tmp_path / "o" / "export.json").read_bytes()) == result.manifest


def test_tasks_come_back_as_rows(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [rollout(task, n, float(task == n)) for task in range(3) for n in range(2)])
    export(run, tmp_path / "o", "rl", where="task_mean > 0 and task_mean < 1")
    assert rows(tmp_path / "o") == [
        {
            "responses_create_params": {"input": f"question {task}"},
            "expected_answer": "x",
            "agent_ref": {"name": "agent"},
        }
        for task in (0, 1)
    ]
    export(run, tmp_path / "trl", "rl", target="trl")
    assert rows(tmp_path / "trl")[0]["prompt"] == [{"role": "user", "content": "question 0"}]


@pytest.mark.parametrize(
    ("record", "format_", "hint"),
    [
        (rollout(0, reward=1.0), "dpo", "collect more with --resume --extend"),
        (rollout(0, reward=1.0) | {"response": None}, "sft", "--format rl"),
        (rollout(0, reward=1.0) | {"reward": None}, "sft", "gymnast doctor"),
        (rollout(0, reward=1.0) | {"mask_sample": True}, "sft", "--include-masked"),
    ],
)
def test_an_export_without_rows_says_what_helps(
    tmp_path: Path, record: dict[str, Any], format_: str, hint: str
) -> None:
    run = write_run(tmp_path / "r", [record])
    with pytest.raises(UserError, match="no row is left") as error:
        export(run, tmp_path / "o", format_)
    assert hint in (error.value.next or "")


def test_an_export_cannot_be_printed(invoke: Callable[..., Outcome], tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [rollout(0, reward=1.0)])
    result = invoke("gymnast", "export", str(run), "--format", "sft", "-o", "-")
    assert (result.code, "name a folder" in result.err) == (2, True)
    assert not (tmp_path / "-").exists()


def test_the_same_export_again_changes_nothing_and_another_needs_overwrite(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [rollout(task, reward=task / 4) for task in range(5)])
    export(run, tmp_path / "o")
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (tmp_path / "o").iterdir()}
    (tmp_path / "o" / ".partial").mkdir()  # of an export that was killed
    assert export(run, tmp_path / "o").is_unchanged
    assert before == {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (tmp_path / "o").iterdir()}
    with pytest.raises(UserError, match="no row is left to export: where 5"):
        export(run, tmp_path / "none", where="reward > 2")
    assert not (tmp_path / "none").exists()
    with pytest.raises(UserError, match="another export"):
        export(run, tmp_path / "o", where="reward > 0.5")
    export(run, tmp_path / "o", where="reward > 0.5", overwrite=True)
    assert len(rows(tmp_path / "o")) == 2


@pytest.mark.parametrize("container", ["parquet", "datasets"])
def test_typed_files_hold_the_same_messages(tmp_path: Path, container: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export(with_tools(tmp_path), tmp_path / "o", container)
    name = "train.parquet" if container == "parquet" else "data/train-00000-of-00001.parquet"
    (row,) = parquet.read_table(tmp_path / "o" / name).to_pylist()
    assert row["messages"][2]["tool_calls"][1]["function"] == {"name": "look", "arguments": '{"at": "b"}'}
    assert json.loads(row["tools"][0])["function"]["name"] == "look"
    assert (row["agent"], row["model"], row["prompt_messages"], json.loads(row["fields"])) == ("agent", "m", 2, {})


def test_shards_have_their_number_in_their_names(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    text = "word " * 100_000
    run = write_run(tmp_path / "r", [rollout(task, output=[says(text)]) for task in range(24)])
    result = export(run, tmp_path / "o", "datasets", shard_bytes=1)
    assert [file.path for file in result.files] == [f"data/train-0000{n}-of-00003.parquet" for n in range(3)]
    assert sum(file.rows for file in result.files) == 24


def test_a_run_with_a_record_twice_or_a_broken_record_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [rollout(), rollout()])
    with pytest.raises(DataError, match="more than one record"):
        export(run, tmp_path / "o")
    run.write_bytes(b'{"reward": 1}\n{}\n')
    with pytest.raises(DataError, match="line 1"):
        export(run, tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_parquet_has_dictionaries_for_values_that_repeat_and_statistics_of_numbers(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export(with_tools(tmp_path), tmp_path / "o", "parquet")
    group = parquet.ParquetFile(tmp_path / "o" / "train.parquet").metadata.row_group(0)
    columns = {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}
    with_dictionary = {name for name, column in columns.items() if column.has_dictionary_page}
    with_statistics = {name for name, column in columns.items() if column.is_stats_set}
    assert {"run", "agent", "model", "messages.list.element.role", "tools.list.element"} <= with_dictionary
    assert not with_dictionary & {"messages.list.element.content", "fields", "reward"}
    assert with_statistics == {"task", "rollout", "reward", "truncated", "prompt_messages"}
