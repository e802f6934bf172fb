"""Metrics of datasets, and the files of a preparation."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gymnast.config import Config
from gymnast.data.convert import render
from gymnast.data.datasets import configured_datasets
from gymnast.data.hub import Hub
from gymnast.data.metrics import Metrics, RunningStats, differences
from gymnast.data.pending_files import PendingFiles
from gymnast.data.prepare import PrepareRequest, prepare
from gymnast.data.problems import MAX_SHOWN
from gymnast.data.row import read_row
from gymnast.data.spill import ScratchFile, SpillSet
from gymnast.errors import DataError, NotFoundError, UserError
from tests.helpers.datasets import AGENT, agent_with, prepare_in, row, silent, train
from tests.helpers.jsonl import read_jsonl, write_jsonl

Configure = Callable[..., Config]
NUMBERS = st.floats(-1e6, 1e6)


def measured(rows: list[dict[str, Any]], times: int = 1) -> dict[str, Any]:
    with ScratchFile() as scratch:
        metrics = Metrics(scratch)
        for one in rows:
            metrics.observe(read_row(orjson.dumps(one)), times)
        return metrics.as_json()


# --- sets that outgrow memory, spreads, metrics ----------------------------------------------------------------------


@given(st.lists(st.binary(min_size=3, max_size=3)), st.integers(1, 8))
def test_a_spilled_set_is_the_sorted_set(records: list[bytes], in_memory: int) -> None:
    with ScratchFile() as scratch:
        first, second = (SpillSet(scratch, 3, in_memory=in_memory) for _ in range(2))
        first.update(records[::2])
        second.update(records[1::2])
        first.update(second)
        assert list(first) == sorted(set(records))
        assert first.count() == len(set(records))


@given(st.lists(st.tuples(NUMBERS, st.integers(1, 4)), min_size=1), st.integers(0, 100))
def test_a_spread_is_mean_extremes_and_deviation_however_it_is_merged(values: list[tuple[float, int]], at: int) -> None:
    whole, left, right = RunningStats(), RunningStats(), RunningStats()
    for index, (value, times) in enumerate(values):
        whole.observe(value, times)
        (left if index < at else right).observe(value, times)
    left.merge(right)
    plain = [value for value, times in values for _ in range(times)]
    deviation = statistics.stdev(plain) if len(plain) > 1 else 0.0
    for spread in (whole, left):
        assert (spread.total, spread.low, spread.high) == (len(plain), min(plain), max(plain))
        assert math.isclose(spread.mean, statistics.fmean(plain), rel_tol=1e-9, abs_tol=1e-6)
        assert math.isclose(math.sqrt(spread.squares / max(1, spread.total - 1)), deviation, rel_tol=1e-6, abs_tol=1e-3)


def test_metrics_have_the_contracts_keys_order_and_number_types() -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": None}
    rows = [
        {
            "responses_create_params": {
                "input": [{"role": "user", "content": "a b"}, {"role": "user", "content": "c"}],
                "tools": [tool],
                "temperature": 1,
            },
            "id": 1,
            "tags": ["x", "y", None, {"z": 1}],
            "flag": True,
            "meta": {"a": 1},
        },
        {"responses_create_params": {"input": "hello there"}, "id": 4, "tags": ["x"], "flag": False, "note": None},
    ]
    found = measured(rows)
    assert list(found) == [
        "Number of examples",
        "Number of tools",
        "Json-dumped number of words (proxy for token count)",
        "Number of turns",
        "Temperature",
        "id",
        "tags",
        "flag",
    ]
    assert found["Number of examples"] == 2
    assert json.dumps(found["id"]) == (
        '{"Total # non-null values": 2, "Average": 2.5, "Min": 1.0, "Max": 4.0, "Standard deviation": 2.12}'
    )
    assert found["tags"] == {"unique_count": 2, "total_count": 3}
    assert found["flag"] == {
        "Total # non-null values": 2,
        "Average": 0.5,
        "Min": 0.0,
        "Max": 1.0,
        "Standard deviation": 0.707,
    }
    assert found["Number of tools"]["Total # non-null values"] == 1
    assert found["Number of turns"] == {
        "Total # non-null values": 2,
        "Average": 1.5,
        "Min": 1.0,
        "Max": 2.0,
        "Standard deviation": 0.707,
    }
    words = found["Json-dumped number of words (proxy for token count)"]
    assert words["Min"] == 3  # {"input": "hello there"}
    assert found["Temperature"]["Average"] == 1.0


def test_metrics_of_nothing_are_zero_and_not_infinite() -> None:
    found = measured([row()])["Temperature"]
    assert found == {
        "Total # non-null values": 0,
        "Average": 0.0,
        "Min": 0.0,
        "Max": 0.0,
        "Standard deviation": 0.0,
    }


VALUES = st.one_of(
    st.integers(-5, 5), st.booleans(), st.sampled_from("abc"), st.none(), st.lists(st.sampled_from("ab"))
)
ROWS = st.lists(st.dictionaries(st.sampled_from(["x", "y", "z"]), VALUES), min_size=1, max_size=12)


@given(ROWS, st.integers(0, 12), st.integers(1, 3))
def test_merged_metrics_are_the_metrics_of_all_rows(fields: list[dict[str, Any]], at: int, times: int) -> None:
    rows = [row("why", **values) for values in fields]
    with ScratchFile() as scratch:
        first, second = Metrics(scratch), Metrics(scratch)
        for index, one in enumerate(rows):
            (first if index < at else second).observe(read_row(orjson.dumps(one)), times)
        first.merge(second)
        assert list(differences(measured(rows, times), first.as_json())) == []


def test_weighted_rows_count_like_repeated_ones() -> None:
    rows = [row("a", n=1, s="x"), row("a b", n=5, s="y")]
    assert measured(rows, times=3) == measured([one for one in rows for _ in range(3)])


# --- metrics files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({"a": 1.5}, {"a": 1.504, "b": 1}, []),
        ({"a": 1.5}, {"a": 1.51}, ["a was 1.5 and is 1.51"]),
        ({"a": 0.5}, {"a": 0.5004}, []),
        ({"a": 0.5}, {"a": 0.501}, ["a was 0.5 and is 0.501"]),
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": {"b": 1}}, {"a": {}}, ["a.b is missing"]),
        ({"a": [1, 2, 2]}, {"a": [2, 1, 2]}, []),
        ({"a": [1, 2, 2]}, {"a": [1, 1, 2]}, ["a was [1, 2, 2] and is [1, 1, 2]"]),
        ({"a": None}, {"a": 0}, ["a was null and is 0"]),
        ([], {}, ["the content was [] and is {}"]),
    ],
)
def test_metrics_differ_only_beyond_rounding(old: Any, new: Any, said: list[str]) -> None:
    assert list(differences(old, new)) == said


def test_a_changed_dataset_conflicts_until_overwriting_is_allowed(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "t.jsonl", [row("a", level=1)])
    prepare_in(tmp_path, train("t.jsonl"))
    metrics, conflict = tmp_path / "t_metrics.json", tmp_path / "t_metrics_conflict.json"
    before, collated = metrics.read_bytes(), (tmp_path / "out" / "train.jsonl").read_bytes()
    write_jsonl(tmp_path / "t.jsonl", [row("a", level=1), row("b", level=2)])
    with pytest.raises(DataError, match="Number of examples was 1 and is 2"):
        prepare_in(tmp_path, train("t.jsonl"))
    assert metrics.read_bytes() == before
    assert (tmp_path / "out" / "train.jsonl").read_bytes() == collated
    assert json.loads(conflict.read_bytes())["Number of examples"] == 2
    assert (tmp_path / "out" / "train_metrics_conflict.json").exists()
    done = prepare_in(tmp_path, train("t.jsonl"), overwrite_conflicts=True)
    assert metrics in done.overwritten
    assert json.loads(metrics.read_bytes())["Number of examples"] == 2
    assert not list(tmp_path.rglob("*conflict*"))


def test_a_metrics_file_that_says_the_same_is_not_rewritten(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "t.jsonl", [row("a", level=1), row("b", level=2)])
    prepare_in(tmp_path, train("t.jsonl"))
    path = tmp_path / "t_metrics.json"
    path.write_text(path.read_text().replace("1.5", "1.504"))  # as another program rounds
    before = path.read_bytes()
    prepare_in(tmp_path, train("t.jsonl"))
    assert path.read_bytes() == before


def test_a_damaged_metrics_file_is_named(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "t.jsonl", [row()])
    (tmp_path / "t_metrics.json").write_text("{")
    with pytest.raises(DataError, match="cannot read the metrics file") as raised:
        prepare_in(tmp_path, train("t.jsonl"))
    assert raised.value.where == str(tmp_path / "t_metrics.json")


# --- preparation -----------------------------------------------------------------------------------------------------


def test_preparation_writes_the_contracts_files(tmp_path: Path) -> None:
    rows = [row("a", uuid="1", agent_ref={"name": "someone"}), row("b", uuid="2")]
    (tmp_path / "data").mkdir()
    write_jsonl(tmp_path / "data" / "t.jsonl", rows)
    write_jsonl(tmp_path / "v.jsonl", [row("c", uuid="3")])
    source = {"type": "huggingface", "repo_id": "org/name"}
    validation = {"name": "v", "type": "validation", "jsonl_fpath": "v.jsonl", "license": "TBD"}
    done = prepare_in(tmp_path, train("data/t.jsonl", num_repeats=2, source=source), validation)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json*")) == [
        "data/t.jsonl",
        "data/t_metrics.json",
        "data/t_prepare.jsonl",
        "out/train.jsonl",
        "out/train_metrics.json",
        "out/validation.jsonl",
        "out/validation_metrics.json",
        "v.jsonl",
        "v_metrics.json",
        "v_prepare.jsonl",
    ]
    agent = {"type": "responses_api_agents", "name": AGENT}
    expected = [{**one, "agent_ref": agent} for one in rows for _ in range(2)]
    assert read_jsonl(tmp_path / "out" / "train.jsonl") == read_jsonl(tmp_path / "data" / "t_prepare.jsonl") == expected
    metrics = json.loads((tmp_path / "out" / "train_metrics.json").read_text())
    assert list(metrics.items())[:9] == [
        ("name", "train"),
        ("type", "train"),
        ("jsonl_fpath", "data/t.jsonl"),
        ("num_repeats", 2),
        ("source", {"type": "huggingface", "repo_id": "org/name", "artifact_fpath": None}),
        ("gitlab_identifier", None),
        ("huggingface_identifier", {"repo_id": "org/name", "artifact_fpath": None}),
        ("license", "MIT"),
        ("Number of examples", 4),
    ]
    assert metrics["uuid"] == {"unique_count": 2, "total_count": 4}
    assert metrics == json.loads((tmp_path / "data" / "t_metrics.json").read_text())
    assert {kind: found["examples"] for kind, found in done.types.items()} == {"train": 4, "validation": 1}


def test_bad_rows_are_errors_that_name_file_line_and_reason(tmp_path: Path) -> None:
    good = json.dumps(row())
    (tmp_path / "a.jsonl").write_text(f'{good}\n{{"broken\n\n{good}\n')
    (tmp_path / "b.jsonl").write_text(f'{{"responses_create_params": {{"input": 1}}}}\n[]\n{{}}\n{good}')
    with pytest.raises(DataError) as raised:
        prepare_in(tmp_path, train("a.jsonl"), train("b.jsonl", name="b"))
    message = str(raised.value)
    for text in (
        "5 bad rows; nothing was written",
        "a.jsonl line 2: not JSON",
        "a.jsonl line 3: the line is blank",
        "b.jsonl line 1: responses_create_params.input",
        "b.jsonl line 2: the row is not a JSON object",
        "b.jsonl line 3: the row has no 'responses_create_params'",
    ):
        assert text in message
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["a.jsonl", "b.jsonl", "c.yaml"]


def test_many_bad_rows_are_all_counted_and_the_first_shown(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("nope\n" * 100)
    with pytest.raises(DataError) as raised:
        prepare_in(tmp_path, train("a.jsonl"))
    assert "100 bad rows" in raised.value.what
    assert "… and 80 more" in raised.value.what
    assert f"lines {', '.join(map(str, range(1, MAX_SHOWN + 1)))}: not JSON" in raised.value.what


def test_an_empty_dataset_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(DataError, match=r"a\.jsonl: the file has no rows"):
        prepare_in(tmp_path, train("a.jsonl"))


def test_metrics_of_a_type_are_over_all_its_datasets(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [row(n=1, who="x"), row(n=3, who="y")])
    write_jsonl(tmp_path / "b.jsonl", [row(n=8, who="x", only="b")])
    prepare_in(tmp_path, train("a.jsonl"), train("b.jsonl", name="b"))
    metrics = json.loads((tmp_path / "out" / "train_metrics.json").read_text())
    assert metrics["name"] == "train"  # the first one's entry, as the contract has it
    assert metrics["Number of examples"] == 3
    assert (metrics["n"]["Average"], metrics["n"]["Max"]) == (4.0, 8.0)
    assert metrics["who"] == {"unique_count": 2, "total_count": 3}
    assert metrics["only"] == {"unique_count": 1, "total_count": 1}
    assert [one["jsonl_fpath"] for one in metrics["Datasets"]] == ["a.jsonl", "b.jsonl"]


def test_a_file_that_two_agents_share_is_there_for_both(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [row()])
    dataset = train("a.jsonl")
    prepare_in(tmp_path, agents={**agent_with(dataset), **agent_with(dataset, name="other_agent")})
    for path in (tmp_path / "out" / "train.jsonl", tmp_path / "a_prepare.jsonl"):
        assert [one["agent_ref"]["name"] for one in read_jsonl(path)] == [AGENT, "other_agent"]


def test_a_result_never_overwrites_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    path = write_jsonl(tmp_path / "out" / "train.jsonl", [row()])
    before = path.read_bytes()
    with pytest.raises(UserError, match="would overwrite a dataset"):
        prepare_in(tmp_path, train("out/train.jsonl"))
    assert path.read_bytes() == before


def test_a_benchmark_is_prepared_through_its_prompt_template(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("system: Be brief.\nuser: 'Q: {question}'\n")
    write_jsonl(tmp_path / "b.jsonl", [{"question": "Why?"}])
    prepare_in(
        tmp_path,
        {
            "name": "b",
            "type": "benchmark",
            "jsonl_fpath": "b.jsonl",
            "prepare_script": "prepare.py",
            "prompt_config": "p.yaml",
        },
    )
    (only,) = read_jsonl(tmp_path / "out" / "benchmark.jsonl")
    assert only["responses_create_params"]["input"][1] == {"role": "user", "content": "Q: Why?"}
    metrics = json.loads((tmp_path / "out" / "benchmark_metrics.json").read_text())
    assert list(metrics)[:7] == [
        "name",
        "type",
        "jsonl_fpath",
        "prepare_script",
        "prompt_config",
        "num_repeats",
        "Number of examples",
    ]


def test_files_of_a_shipped_dataset_are_written_here_and_not_into_the_package(
    configure: Configure, tmp_path: Path
) -> None:
    config = configure(config_paths=["resources_servers/mcqa/configs/mcqa.yaml"], stub_policy=True).require_valid()
    before = sorted(config.roots.builtin.rglob("*.json*"))
    prepare(config, PrepareRequest("example_validation", tmp_path / "out"), Hub(), silent)
    assert sorted(config.roots.builtin.rglob("*.json*")) == before
    assert (tmp_path / "resources_servers" / "mcqa" / "data" / "example_metrics.json").exists()
    assert len(read_jsonl(tmp_path / "out" / "example.jsonl")) == 5


def test_a_mode_without_datasets_says_what_there_is(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [row()])
    with pytest.raises(NotFoundError, match="no agent has a dataset of type example") as raised:
        prepare_in(tmp_path, train("a.jsonl"), mode="example_validation")
    assert raised.value.next == "configured types: train"


def test_all_missing_files_are_named_at_once(tmp_path: Path) -> None:
    benchmark = {"name": "b", "type": "benchmark", "jsonl_fpath": "b.jsonl", "prepare_script": "make_b.py"}
    with pytest.raises(NotFoundError) as raised:
        prepare_in(tmp_path, train("a.jsonl", huggingface_identifier={"repo_id": "org/a"}), benchmark)
    message = str(raised.value)
    assert all(text in message for text in ("a.jsonl", "b.jsonl", "run make_b.py", "--download"))


def test_both_older_identifiers_stand_side_by_side(configure: Configure, tmp_path: Path) -> None:
    gitlab = {"dataset_name": "d", "version": "1", "artifact_fpath": "t.jsonl"}
    both = train("t.jsonl", gitlab_identifier=gitlab, huggingface_identifier={"repo_id": "org/a"})
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(agent_with(both)))
    base = "resources_servers/mcqa/configs/mcqa.yaml"
    config = configure(config_paths=[base, "c.yaml"], stub_policy=True).require_valid()
    header = configured_datasets(config, ["train"])[0].header()
    assert header["source"] is None
    assert header["gitlab_identifier"] == gitlab
    assert header["huggingface_identifier"] == {"repo_id": "org/a", "artifact_fpath": None}


# --- files that appear whole -----------------------------------------------------------------------------------------


def test_files_that_are_not_committed_leave_the_old_ones(tmp_path: Path) -> None:
    old = tmp_path / "a.jsonl"
    old.write_text("old")
    with PendingFiles() as files:
        files.open(old).write(b"new")
        files.open(tmp_path / "deep" / "b.jsonl").write(b"new")
    assert old.read_text() == "old"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [old]


def test_a_place_that_cannot_be_written_is_a_user_error() -> None:
    with pytest.raises(UserError, match="cannot write x"), PendingFiles() as files:
        files.open(Path("/proc/nowhere/x"))


def test_a_folder_in_the_way_of_a_file_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    with PendingFiles() as files:
        files.open(tmp_path / "x")
        with pytest.raises(UserError, match="cannot write x"):
            files.commit()
    assert not list(tmp_path.glob("*.partial"))


# --- rendering -------------------------------------------------------------------------------------------------------


def test_rendering_fills_the_template_and_says_which_it_was(tmp_path: Path) -> None:
    template = tmp_path / "p.yaml"
    template.write_text("user: 'Say {word} {{twice}}'\n")
    source = write_jsonl(
        tmp_path / "in.jsonl",
        [{"word": "hi", "responses_create_params": {"temperature": 0.5}}, {"word": "ho", "n": 1}],
    )
    assert render(source, template, tmp_path / "deep" / "out.jsonl") == 2
    first, second = read_jsonl(tmp_path / "deep" / "out.jsonl")
    assert first["responses_create_params"] == {
        "temperature": 0.5,
        "input": [{"role": "user", "content": "Say hi {twice}"}],
    }
    assert second["prompt_config_used"] == str(template.resolve())
    assert list(second) == ["word", "n", "responses_create_params", "prompt_config_used"]


def test_rendering_refuses_rows_that_do_not_fit_and_writes_none(tmp_path: Path) -> None:
    template = tmp_path / "p.yaml"
    template.write_text("user: '{word}'\n")
    source = write_jsonl(tmp_path / "in.jsonl", [{"word": "hi"}, {"other": 1}, row("mine", word="x")])
    with pytest.raises(DataError) as raised:
        render(source, template, tmp_path / "out.jsonl")
    assert "line 2: the prompt template uses {word}" in raised.value.what
    assert "line 3: the row already has an input" in raised.value.what
    assert not list(tmp_path.glob("out*"))


def test_rendering_does_not_replace_its_input(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("user: '{word}'\n")
    source = write_jsonl(tmp_path / "in.jsonl", [{"word": "hi"}])
    with pytest.raises(UserError, match="the output would overwrite the input"):
        render(source, tmp_path / "p.yaml", source)
