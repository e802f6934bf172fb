"""A run as a Python object: lazy records, figures, data frames, the synchronous collect and the notebook's progress."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import orjson
import pytest

import gymnast
from gymnast.errors import DataError, NotFoundError, UserError
from gymnast.results import frames
from gymnast.types.events import RunStarted
from tests.helpers.chunked_runs import FACTS, commit, record, small_run
from tests.helpers.commands import DEMO_POLICY
from tests.helpers.jsonl import example_rows, write_jsonl
from tests.helpers.parts import needs

NAMES: dict[str, Any] = {"environments": ["mcqa"], "config_paths": [DEMO_POLICY]}
IDENTITY = ("_ng_task_index", "_ng_rollout_index")


def scored(task: int, rollout: int = 0, reward: float = 1.0, **fields: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": "q"},
        "response": {"id": "r", "output": [], "usage": {"input_tokens": 3, "output_tokens": task, "details": {"a": 1}}},
        "reward": reward,
        **fields,
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"name": "agent"},
    }


def write_run(folder: Path, records: list[dict[str, Any]], requested: int = 0) -> Path:
    output = write_jsonl(folder / "run.jsonl", records)
    if requested:
        rows = [{"q": task, "_ng_task_index": task, "_ng_rollout_index": 0} for task in range(requested)]
        write_jsonl(folder / "run_materialized_inputs.jsonl", rows)
    return output


def test_a_run_is_read_lazily_and_again_on_each_iteration(tmp_path: Path) -> None:
    output = write_run(tmp_path, [scored(0), scored(1, reward=0.0)], requested=3)
    failure = {"_ng_task_index": 2, "_ng_rollout_index": 0, "failure": {"kind": "model_timeout"}}
    write_jsonl(tmp_path / "run_failures.jsonl", [failure])
    run = gymnast.load(output)
    assert [record.reward for record in run.rollouts] == [1.0, 0.0]
    assert [record.reward for record in run] == [1.0, 0.0]
    assert [record.failure_kind for record in run.failures] == ["model_timeout"]
    assert [row["q"] for row in run.inputs] == [0, 1, 2]
    assert [(task.scored, task.failed, task.mean_reward) for task in run.tasks] == [
        (1, 0, 1.0),
        (1, 0, 0.0),
        (0, 1, None),
    ]
    assert (run.requested, run.scored, run.mean_reward.value) == (3, 2, 0.5)


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    output = write_run(tmp_path, [scored(0), scored(1)])
    whole = output.read_bytes()
    long_line = orjson.dumps(scored(2, text="x" * 200_000))
    for tail in (b'{"reward": 0.', long_line[:-1], b"\xff"):
        output.write_bytes(whole + tail)
        assert len(list(gymnast.load(output).rollouts)) == 2
        assert gymnast.load(output).scored == 2
    output.write_bytes(whole + long_line)  # complete, but without a newline
    assert gymnast.load(output).scored == 3
    output.write_bytes(whole.replace(b'{"resp', b"{resp", 1))
    with pytest.raises(DataError, match="line 1"):
        _ = gymnast.load(output).scored


def test_a_run_in_chunks_is_read_before_it_is_merged_even_if_a_writer_died(tmp_path: Path) -> None:
    run = small_run(tmp_path, 4, 3, 5)
    scored_keys = []
    for view in run.views():
        held = run.claim(view, "a", f"t{view.chunk.id}")
        assert held is not None
        for row in list(held.unstarted)[:3]:
            held.record_scored(row.key, record(row.key), FACTS)
            scored_keys.append(row.key)
        commit(held)
        shard = held.folder.scored_records(held.lease.epoch)
        shard.write_bytes(shard.read_bytes() + b'{"reward": 1.0, "_ng_ta')
    loaded = gymnast.load(run.paths.output)
    assert [rollout.key for rollout in loaded.rollouts] == scored_keys
    assert (loaded.requested, loaded.scored) == (12, len(scored_keys))


def test_a_run_without_inputs_or_without_records_has_figures(tmp_path: Path) -> None:
    run = gymnast.load(write_run(tmp_path, [scored(4, rollout) for rollout in range(3)]))
    assert (run.requested, run.scored, len(run.tasks)) == (3, 3, 1)
    output = write_run(tmp_path, [], requested=2)
    output.unlink()
    run = gymnast.load(output)
    assert (run.requested, run.scored, list(run)) == (2, 0, [])
    assert "0 of 2 rollouts scored" in run._repr_html_()


def test_a_run_that_is_not_there_suggests_those_that_are(tmp_path: Path) -> None:
    write_run(tmp_path, [scored(0)], requested=1)
    with pytest.raises(NotFoundError, match=r"run\.jsonl"):
        gymnast.load(tmp_path / "rum.jsonl")
    with pytest.raises(NotFoundError, match=r"run\.jsonl"):
        gymnast.load(tmp_path)


def test_the_display_escapes_what_it_shows(tmp_path: Path) -> None:
    row = {**scored(0), "agent_ref": {"name": "<script>alert(1)</script>"}}
    html = gymnast.load(write_run(tmp_path, [row, scored(0, 1)]))._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_a_missing_package_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = gymnast.load(write_run(tmp_path, [scored(0)]))
    for name in ("pyarrow", "pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=r"gymnast\[arrow\]"):
        run.to_arrow()
    for make, extra in ((frames.to_pandas, "pandas"), (frames.to_polars, "polars")):
        with pytest.raises(UserError, match=rf"gymnast\[{extra}\]"):
            make(None)


@needs("pyarrow")
def test_columns_have_the_type_that_holds_all_values(tmp_path: Path) -> None:
    records = [
        scored(0, number=1, flag=True, mixed=1, text="a", nested={"b": 1}, big=1),
        scored(1, number=2.5, flag=None, mixed="one", nested=[1], big=2**70),
        scored(2, rollout=7, late="x", number=True, mixed=None, text=None, nested="plain"),
    ]
    table = gymnast.load(write_run(tmp_path, records)).to_arrow()
    assert table.column_names[:4] == [*IDENTITY, "agent", "reward"]
    columns = table.to_pydict()
    assert columns["number"] == [1.0, 2.5, 1.0]
    assert columns["flag"] == [True, None, None]
    assert columns["mixed"] == ["1", "one", None]
    assert columns["text"] == ["a", None, None]
    assert columns["nested"] == ['{"b": 1}', "[1]", "plain"]
    assert columns["big"] == [1.0, 2.0**70, None]
    assert columns["late"] == [None, None, "x"]
    assert columns["output_tokens"] == [0, 1, 2]
    assert "response" not in columns
    assert "details" not in columns


@needs("pyarrow")
def test_columns_can_be_selected_in_any_order(tmp_path: Path) -> None:
    run = gymnast.load(write_run(tmp_path, [scored(5, note="n")]))
    table = run.to_arrow(columns=["note", "response", "output_tokens", "reward"])
    assert table.column_names == ["note", "response", "output_tokens", "reward"]
    (response,) = table.to_pydict()["response"]
    assert orjson.loads(response)["id"] == "r"
    with pytest.raises(NotFoundError, match="'note'"):
        run.to_arrow(columns=["notes"])
    with pytest.raises(NotFoundError, match="'tasks'"):
        run.to_arrow("task")  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="'mean_reward'"):
        run.to_arrow("tasks", columns=["mean_rewards"])


@needs("pyarrow")
def test_the_own_field_of_a_record_goes_before_one_of_its_usage(tmp_path: Path) -> None:
    run = gymnast.load(write_run(tmp_path, [scored(9, output_tokens=123)]))
    assert run.to_arrow().to_pydict()["output_tokens"] == [123]


@needs("pyarrow")
def test_failures_and_tasks_are_tables_too_even_without_rows(tmp_path: Path) -> None:
    run = gymnast.load(write_run(tmp_path, [scored(0)], requested=2))
    assert run.to_arrow("failures").num_rows == 0
    assert "kind" in run.to_arrow("failures").column_names
    failure = {"kind": "model_timeout", "stage": "agent", "chain": ["a"], "message": "late"}
    write_jsonl(tmp_path / "run_failures.jsonl", [{"_ng_task_index": 1, "_ng_rollout_index": 0, "failure": failure}])
    assert run.to_arrow("failures").to_pydict()["kind"] == ["model_timeout"]
    assert run.reload().to_arrow("tasks").to_pydict()["failed"] == [0, 1]
    assert run.to_arrow("inputs").to_pydict()["q"] == [0, 1]


@needs("pandas", "polars", "pyarrow")
def test_the_frames_have_the_same_values(tmp_path: Path) -> None:
    run = gymnast.load(write_run(tmp_path, [scored(task, reward=task / 10, note="é") for task in range(10)]))
    pandas_frame, polars_frame = run.to_pandas(), run.to_polars()
    assert list(pandas_frame.columns) == polars_frame.columns
    assert pandas_frame["reward"].tolist() == polars_frame["reward"].to_list() == [task / 10 for task in range(10)]
    assert str(pandas_frame["reward"].dtype) == "float64"
    assert pandas_frame["note"].tolist() == ["é"] * 10


# --- collect_sync ----------------------------------------------------------------------------------------------------


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "tasks.jsonl", example_rows("mcqa"))


def test_collect_sync_returns_the_run(tmp_path: Path, tasks: Path) -> None:
    events: list[Any] = []
    run = gymnast.collect_sync(tasks, tmp_path / "x.jsonl", num_repeats=2, on_event=events.append, **NAMES)
    assert run.scored == run.requested == 2 * len(example_rows("mcqa"))
    assert isinstance(events[0], RunStarted)
    again = gymnast.collect_sync(tasks, tmp_path / "x.jsonl", num_repeats=2, resume=True, **NAMES)
    assert again.scored == run.scored


async def test_collect_sync_works_inside_a_running_loop(tmp_path: Path, tasks: Path) -> None:
    before = threading.active_count()
    assert gymnast.collect_sync(tasks, tmp_path / "x.jsonl", **NAMES).scored == len(example_rows("mcqa"))
    assert threading.active_count() == before
    await asyncio.sleep(0)


def test_collect_sync_raises_what_collect_raises(tmp_path: Path, tasks: Path) -> None:
    with pytest.raises(NotFoundError, match=r"nope\.jsonl"):
        gymnast.collect_sync("nope.jsonl", tmp_path / "x.jsonl", **NAMES)
    with pytest.raises(TypeError, match="num_repeat"):
        gymnast.collect_sync(tasks, tmp_path / "x.jsonl", num_repeat=2, **NAMES)  # type: ignore[call-arg]
    gymnast.collect_sync(tasks, tmp_path / "x.jsonl", **NAMES)
    with pytest.raises(UserError, match="earlier run"):
        gymnast.collect_sync(tasks, tmp_path / "x.jsonl", **NAMES)


def test_a_fork_is_returned_under_its_own_name(tmp_path: Path, tasks: Path) -> None:
    gymnast.collect_sync(tasks, tmp_path / "x.jsonl", **NAMES)
    fork = gymnast.collect_sync(
        tasks, tmp_path / "x.jsonl", num_repeats=2, temperature=0.5, resume=True, on_change="fork", **NAMES
    )
    assert fork.path != tmp_path / "x.jsonl"
    assert fork.scored == 2 * len(example_rows("mcqa"))


# --- the progress bar ------------------------------------------------------------------------------------------------


class Cell:
    """A notebook's cell: what it shows."""

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def display(self, picture: Any, *, display_id: bool) -> Cell:
        assert display_id
        self.shown.append(picture)
        return self

    def update(self, picture: Any) -> None:
        self.shown.append(picture)


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    return open_notebook(monkeypatch, SimpleNamespace(kernel=object()))


def open_notebook(monkeypatch: pytest.MonkeyPatch, shell: Any) -> Cell:
    cell, ipython, display = Cell(), ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    display.display = cell.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return cell


def test_a_notebook_shows_a_bar(tmp_path: Path, tasks: Path, cell: Cell) -> None:
    requested = gymnast.collect_sync(tasks, tmp_path / "x.jsonl", **NAMES).requested
    last = cell.shown[-1]
    assert f'<progress value="{requested}" max="{requested}">' in last._repr_html_()
    assert f"{requested}/{requested} rollouts, mean reward" in repr(last)


def test_no_bar_outside_notebooks_or_if_it_is_turned_off(
    tmp_path: Path, tasks: Path, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    gymnast.collect_sync(tasks, tmp_path / "x.jsonl", progress=False, **NAMES)
    assert not cell.shown
    terminal = open_notebook(monkeypatch, SimpleNamespace())
    gymnast.collect_sync(tasks, tmp_path / "y.jsonl", **NAMES)
    assert not terminal.shown


def test_a_broken_front_end_does_not_end_the_run(
    tmp_path: Path, tasks: Path, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell, "update", None)
    assert gymnast.collect_sync(tasks, tmp_path / "x.jsonl", **NAMES).scored == len(example_rows("mcqa"))
