"""Benchmark files, their data from folders and Hubs, and the tasks made from it."""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gymnast.benchmarks.catalog import find_benchmark, list_benchmarks
from gymnast.benchmarks.definition import read_benchmark
from gymnast.benchmarks.evaluation import Plan, prepare_tasks, resolve
from gymnast.benchmarks.rows import read_rows
from gymnast.config.roots import BUILTIN, Roots
from gymnast.data.hub import Hub
from gymnast.errors import ConfigError, DataError, NotFoundError, UserError
from tests.helpers.benchmarks import aime_rows, gsm8k_rows, guess_rows, write_benchmark
from tests.helpers.hub_server import LocalHub, Repo, running_hub
from tests.helpers.jsonl import read_jsonl, write_jsonl
from tests.helpers.parts import needs

BUILT_IN = sorted(path.stem for path in (BUILTIN / "benchmarks").glob("*.yaml"))


@pytest.fixture
def local_hub() -> Iterator[LocalHub]:
    with running_hub() as hub:
        yield hub


def tasks_of(path: Path, tmp_path: Path, hub: Hub | None = None, **options: Any) -> list[dict[str, Any]]:
    plan = Plan(path.stem, read_benchmark(path))
    tasks, _ = prepare_tasks(plan, tmp_path / "out", hub or Hub(), **options)
    return read_jsonl(tasks)


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_ships_is_valid_and_names_its_source(name: str) -> None:
    definition = find_benchmark(name, Roots((), Path("nowhere"))).definition
    assert definition.protocol.source
    assert definition.protocol.scoring
    assert definition.environment is not None
    if definition.environment in {"math_with_judge", "mcqa"}:
        assert definition.metrics.answer, "answers that can be compared are voted over"


def test_benchmarks_are_found_in_search_folders_and_here_before_the_built_ins(tmp_path: Path) -> None:
    own, here = tmp_path / "own", tmp_path / "here"
    write_benchmark(own, "mine")
    write_benchmark(own / "benchmarks", "deep")
    write_benchmark(here / "benchmarks", "aime24", description="another")
    (own / "settings.yaml").write_text("policy_model_name: m\n")
    (own / "torn.yaml").write_text("a: [1")
    listed = {entry.name: entry for entry in list_benchmarks(Roots((own,), here))}
    assert {"mine", "deep", "aime24", "gsm8k"} <= listed.keys()
    assert not {"settings", "torn"} & listed.keys()
    assert listed["aime24"].path.parent == here / "benchmarks"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("MATH-500", "math500"),
        ("math 500", "math500"),
        ("gpqa-diamond", "gpqa_diamond"),
        ("AIME 2024", "aime24"),
        ("aime_2025", "aime25"),
        ("HumanEval+", "humaneval_plus"),
    ],
)
def test_names_are_found_in_other_spellings(given: str, name: str) -> None:
    assert find_benchmark(given, Roots((), Path("nowhere"))).name == name


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("gpqa", "did you mean 'gpqa_diamond'"),
        ("tau2", "did you mean 'tau2_airline' or 'tau2_retail'"),
        ("LiveCodeBench", "did you mean 'livecodebench_v5' or 'livecodebench_v6'"),
        ("hard-exam", "gymnast eval --list shows all of them"),
    ],
)
def test_a_family_of_benchmarks_suggests_its_members(given: str, hint: str) -> None:
    with pytest.raises(NotFoundError, match=hint):
        find_benchmark(given, Roots((), Path("nowhere")))


def test_a_file_that_is_not_there_but_is_built_in_is_named_without_its_suffix(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"(?s)no file 'gsm8k\.yaml' here.*name the built-in benchmark: gsm8k"):
        resolve("gsm8k.yaml", Roots((), tmp_path))


def test_an_unknown_name_suggests_a_similar_one(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="did you mean 'aime2"):
        resolve("aime42", Roots((), tmp_path))
    with pytest.raises(NotFoundError, match=r"tasks\.jsonl"):
        resolve("tasks.jsonl", Roots((), tmp_path))
    with pytest.raises(NotFoundError, match=r"my\.yaml"):
        resolve("my.yaml", Roots((), tmp_path))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"colour": "red"}, "`colour` is not a key"),
        ({"description": None}, "`description` is missing"),
        ({"data": {"repo": "a/b"}}, "belong together"),
        ({"data": {"repo": "a/b", "file": "x", "path": "y"}}, "either `repo`"),
        ({"data": {"path": "x", "sha256": "12"}}, "sha256"),
        ({"environment": None}, "`environment`, or `config`"),
        ({"protocol": {"num_repeats": 0}}, "num_repeats"),
        ({"protocol": {"temperature": "hot"}}, "temperature"),
        ({"protocol": {"source": "somewhere"}}, "source"),
        ({"fields": {"q": {"from": "a", "value": 1}}}, "exactly one"),
        ({"prompt": {"usr": "x"}}, r"prompt\.usr"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    path = write_benchmark(tmp_path, "wrong", **changes)
    with pytest.raises(ConfigError, match=problem):
        read_benchmark(path)


def test_a_file_that_cannot_be_used_is_listed_with_its_problem(tmp_path: Path) -> None:
    write_benchmark(tmp_path, "wrong", colour="red")
    (entry,) = [entry for entry in list_benchmarks(Roots((tmp_path,), tmp_path)) if entry.name == "wrong"]
    assert entry.benchmark is None
    assert "colour" in str(entry.problem)


# --- tasks -----------------------------------------------------------------------------------------------------------


def test_rows_become_tasks(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", guess_rows(2))
    first, second = tasks_of(write_benchmark(tmp_path), tmp_path)
    assert first["responses_create_params"]["input"] == [
        {"role": "user", "content": "Number 0? [3 4] End with 'Answer: ' and the number."}
    ]
    assert (first["expected_answer"], first["kind"]) == (3, "a")
    assert (first["_ng_task_index"], second["_ng_task_index"]) == (0, 1)


def test_equal_rows_are_different_tasks_and_a_limit_takes_the_first(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", guess_rows(1) * 3)
    path = write_benchmark(tmp_path, data={"path": "rows.jsonl", "rows": 3})
    assert [task["_ng_task_index"] for task in tasks_of(path, tmp_path, limit=2)] == [0, 1]


@pytest.mark.parametrize(
    ("changes", "row", "problem"),
    [
        ({"fields": {"q": "{{ nope }}"}}, {"q": "x"}, "'nope' is undefined"),
        ({"fields": {"q": {"from": "nope"}}}, {"q": "x"}, "no field 'nope'"),
        ({"fields": {"q": "{{ q }}"}}, {"q": None}, "null"),
        ({"fields": {"q": {"json": "{{ q }}"}}}, {"q": "{"}, "field `q`"),
        ({"fields": {"q": "{{ q.__class__.__mro__ }}"}}, {"q": "x"}, "unsafe"),
        ({"fields": {"q": "{{ 1 // q }}"}}, {"q": 0}, "division|modulo"),
        ({"fields": {"other": "{{ q }}"}}, {"q": "x"}, "question"),
        (
            {"data": {"path": "rows.jsonl", "rows": 2}, "fields": {"question": "{{ q }}"}},
            {"q": "x"},
            "1 rows, expected 2",
        ),
    ],
)
def test_rows_that_do_not_fit_are_named_and_nothing_is_written(
    tmp_path: Path, changes: dict[str, Any], row: dict[str, Any], problem: str
) -> None:
    write_jsonl(tmp_path / "rows.jsonl", [row])
    with pytest.raises(DataError, match=problem):
        tasks_of(write_benchmark(tmp_path, **changes), tmp_path)
    assert not (tmp_path / "out" / "tasks.jsonl").exists()


def test_a_broken_template_and_empty_data_are_errors(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", [])
    with pytest.raises(DataError, match="0 rows"):
        tasks_of(write_benchmark(tmp_path), tmp_path)
    with pytest.raises(ConfigError, match=r"fields\.q"):
        tasks_of(write_benchmark(tmp_path, fields={"q": "{{ q "}), tmp_path)


def test_rows_are_read_in_every_common_format(tmp_path: Path) -> None:
    rows = [{"a": "1", "b": "x, y"}, {"a": "2", "b": "é"}]
    table = '\ufeffa,b\n1,"x, y"\n2,é\n'.encode()
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    contents = {
        "r.jsonl": lines,
        "r.jsonl.gz": gzip.compress(lines),
        "r.json": json.dumps(rows).encode(),
        "r.csv": table,
        "r.csv.gz": gzip.compress(table),
        "r.tsv": b"a\tb\n1\tx, y\n2\t\xc3\xa9\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        assert list(read_rows(tmp_path / name, name)) == rows, name
    bad = {"r.xlsx": b"PK", "b.csv": b"a\n\xff\n", "b.jsonl": b"\xff\n", "t.csv.gz": b"\x1f\x8b"}
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError):
            list(read_rows(tmp_path / name, name))


@needs("pyarrow")
def test_what_ships_reads_rows_in_the_shape_of_its_dataset(tmp_path: Path) -> None:
    write_parquet(tmp_path / "aime_2024_problems.parquet", aime_rows())
    tasks = tasks_of(BUILTIN / "benchmarks" / "aime24.yaml", tmp_path, local_copy=tmp_path)
    assert len(tasks) == 30
    assert (tasks[15]["expected_answer"], tasks[15]["exam"], tasks[14]["exam"]) == ("2", "AIME II", "AIME I")
    assert tasks[0]["responses_create_params"]["input"][0]["content"].endswith("within \\boxed{}.")
    (tmp_path / "main").mkdir()
    write_parquet(tmp_path / "main" / "test-00000-of-00001.parquet", gsm8k_rows())
    tasks = tasks_of(BUILTIN / "benchmarks" / "gsm8k.yaml", tmp_path, local_copy=tmp_path, overwrite=True)
    assert (len(tasks), tasks[7]["expected_answer"]) == (1319, "1007")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(DataError, match="cannot read"):
        list(read_rows(tmp_path / "bad.parquet", "bad.parquet"))


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    from pyarrow import Table, parquet

    parquet.write_table(Table.from_pylist(rows), path)


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UserError, match=r"gymnast\[parquet\]"):
        list(read_rows(tmp_path / "x.parquet", "x.parquet"))


# --- data ------------------------------------------------------------------------------------------------------------

LINES = b"".join(json.dumps(row).encode() + b"\n" for row in guess_rows(50))
SHA256 = hashlib.sha256(LINES).hexdigest()


def hub_benchmark(tmp_path: Path, **changes: Any) -> Path:
    return write_benchmark(tmp_path, data={"repo": "org/d", "file": "data/test.jsonl", "sha256": SHA256} | changes)


def client(hub: LocalHub, tmp_path: Path, token: str | None = None) -> Hub:
    return Hub(endpoint=hub.url, cache_dir=tmp_path / "cache", token=token)


def test_data_is_downloaded_at_one_commit_and_its_origin_recorded(tmp_path: Path, local_hub: LocalHub) -> None:
    repo = local_hub.repos["org/d"] = Repo({"data/test.jsonl": LINES})
    path, hub = hub_benchmark(tmp_path), client(local_hub, tmp_path)
    tasks, origin = prepare_tasks(Plan("guess", read_benchmark(path)), tmp_path / "out", hub)
    assert origin is not None
    assert (len(read_jsonl(tasks)), origin.commit, origin.sha256) == (50, repo.commit, SHA256)
    assert any("/api/datasets/org/d/revision/main" in line for line in local_hub.seen)
    local_hub.repos.clear()  # a resume needs no Hub
    assert prepare_tasks(Plan("guess", read_benchmark(path)), tmp_path / "out", hub, resume=True) == (tasks, origin)


def test_a_broken_download_is_resumed(tmp_path: Path, local_hub: LocalHub) -> None:
    local_hub.repos["org/d"] = Repo({"data/test.jsonl": LINES})
    local_hub.breaks = [1000]
    assert len(tasks_of(hub_benchmark(tmp_path), tmp_path, client(local_hub, tmp_path))) == 50


def test_a_wrong_checksum_is_an_error_and_the_copy_is_not_kept(tmp_path: Path, local_hub: LocalHub) -> None:
    local_hub.repos["org/d"] = Repo({"data/test.jsonl": LINES})
    path = hub_benchmark(tmp_path, sha256="0" * 64)
    with pytest.raises(DataError, match="wrong checksum"):
        tasks_of(path, tmp_path, client(local_hub, tmp_path))
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.is_file() and file.read_bytes() == LINES]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"repo": "org/nope"}, "no dataset 'org/nope'"),
        ({"repo": "org/private"}, "private"),
        ({"repo": "org/gated"}, "gated"),
        ({"file": "data/tst.jsonl"}, "did you mean 'data/test.jsonl'"),
        ({"revision": "v9"}, "no revision 'v9'"),
    ],
)
def test_what_the_hub_refuses_is_explained(
    tmp_path: Path, local_hub: LocalHub, changes: dict[str, Any], problem: str
) -> None:
    files = {"data/test.jsonl": LINES}
    local_hub.repos |= {
        "org/d": Repo(files),
        "org/private": Repo(files, token="t"),
        "org/gated": Repo(files, gated=True),
    }
    with pytest.raises(UserError, match=problem):
        tasks_of(hub_benchmark(tmp_path, **changes), tmp_path, client(local_hub, tmp_path))


def test_a_token_opens_a_private_dataset(tmp_path: Path, local_hub: LocalHub) -> None:
    local_hub.repos["org/d"] = Repo({"data/test.jsonl": LINES}, token="t")
    assert len(tasks_of(hub_benchmark(tmp_path), tmp_path, client(local_hub, tmp_path, token="t"))) == 50


def test_a_local_copy_is_a_repository_a_folder_or_the_file(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "data").mkdir(parents=True)
    file = copy / "data" / "test.jsonl"
    file.write_bytes(LINES)
    for local_copy in (copy, copy / "data", file):
        assert len(tasks_of(hub_benchmark(tmp_path), tmp_path, local_copy=local_copy)) == 50
    reasons = {tmp_path: r"neither 'data/test\.jsonl' nor 'test\.jsonl'", tmp_path / "nowhere": "no such file"}
    for local_copy, reason in reasons.items():
        with pytest.raises(NotFoundError, match=reason):
            tasks_of(hub_benchmark(tmp_path), tmp_path, local_copy=local_copy)
    with pytest.raises(DataError, match="wrong checksum"):
        tasks_of(hub_benchmark(tmp_path, sha256="0" * 64), tmp_path, local_copy=file)
    assert file.exists(), "a copy of the user's own is never removed"


@pytest.mark.parametrize(
    "place",
    [
        "org/d/data/test.jsonl",
        "datasets/org/d/data/test.jsonl",
        "org__d/test.jsonl",
        "d/data/test.jsonl",
        "datasets--org--d/snapshots/abc/data/test.jsonl",
        "hub/datasets--org--d/snapshots/abc/data/test.jsonl",
    ],
)
def test_a_local_copy_may_be_a_mirror_of_several_datasets_or_a_cache(tmp_path: Path, place: str) -> None:
    file = tmp_path / "mirror" / place
    file.parent.mkdir(parents=True)
    file.write_bytes(LINES)
    (tmp_path / "mirror" / "test.jsonl").write_text("{}")  # of another dataset
    assert len(tasks_of(hub_benchmark(tmp_path), tmp_path, local_copy=tmp_path / "mirror")) == 50


def test_a_cache_has_the_files_of_the_revision_that_the_benchmark_names(tmp_path: Path) -> None:
    cached = tmp_path / "datasets--org--d"
    for commit, lines in (("old", LINES), ("new", b"{}")):
        (cached / "snapshots" / commit / "data").mkdir(parents=True)
        (cached / "snapshots" / commit / "data" / "test.jsonl").write_bytes(lines)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("old")
    assert len(tasks_of(hub_benchmark(tmp_path), tmp_path, local_copy=tmp_path)) == 50


@pytest.mark.parametrize(
    ("files", "given", "reason"),
    [
        ({}, "copy", "(?s)neither 'data/test.jsonl' nor 'test.jsonl'.*the folder is empty"),
        ({"data/tests.jsonl": b"{}"}, "copy", "(?s)neither.*did you mean 'data/tests.jsonl'"),
        ({"x.csv": b"a", "y.csv": b"a"}, "copy", "(?s)neither.*it has x.csv, y.csv; --from names"),
        ({"math-ai/aime25/test.jsonl": b"{}"}, "copy", "(?s)a mirror of several .*if the file in '.*aime25' is this"),
        ({"deep/er/test.jsonl": b"{}"}, "copy", "(?s)neither.*if the file in .*: --from '.*copy/deep/er'"),
        ({"a": b"{}"}, "copi", "(?s)no such file or folder.*did you mean 'copy'"),
        ({"test.jsonl": b""}, "copy", "(?s)the file is empty.*copy/test.jsonl"),
        ({"test.jsonl": b"version https://git-lfs.github.com/spec/v1\n"}, "copy", "(?s)Git LFS.*git lfs pull"),
    ],
)
def test_a_local_copy_that_lacks_the_data_says_what_it_has(
    tmp_path: Path, files: dict[str, bytes], given: str, reason: str
) -> None:
    (tmp_path / "copy").mkdir()
    for name, content in files.items():
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(content)
    with pytest.raises((NotFoundError, DataError), match=reason):
        tasks_of(hub_benchmark(tmp_path), tmp_path, local_copy=tmp_path / given)


def test_an_earlier_run_is_refused_before_its_tasks_are_touched(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", guess_rows(2))
    tasks_of(write_benchmark(tmp_path), tmp_path)
    (tmp_path / "out" / "rollouts.jsonl").touch()
    write_jsonl(tmp_path / "rows.jsonl", guess_rows(3))
    with pytest.raises(UserError, match="--output-dir"):
        tasks_of(write_benchmark(tmp_path), tmp_path)
    assert len(read_jsonl(tmp_path / "out" / "tasks.jsonl")) == 2
    with pytest.raises(NotFoundError, match="no run to resume"):
        prepare_tasks(Plan("guess", read_benchmark(tmp_path / "guess.yaml")), tmp_path / "new", Hub(), resume=True)
