"""Built-in benchmarks on rows in the shapes of their datasets, from a Hub, and what their adapters make of them."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gymnast.benchmarks.adapters.evalplus import read_rows as read_evalplus
from gymnast.benchmarks.adapters.gpqa import read_rows as read_gpqa
from gymnast.benchmarks.adapters.livecodebench import read_rows as read_livecodebench
from gymnast.benchmarks.catalog import find_benchmark
from gymnast.benchmarks.definition import read_benchmark
from gymnast.benchmarks.evaluation import DataOrigin, Plan, prepare_tasks
from gymnast.benchmarks.tasks import TaskMaker
from gymnast.builtin.resources_servers.bfcl.app import BfclTask
from gymnast.builtin.resources_servers.code_gen.app import CodeGenTask
from gymnast.builtin.resources_servers.evalplus.app import EvalPlusTask
from gymnast.builtin.resources_servers.ifbench.app import IFBenchTask
from gymnast.builtin.resources_servers.instruction_following.app import InstructionFollowingTask
from gymnast.builtin.resources_servers.mcqa.app import MCQATask
from gymnast.builtin.resources_servers.spider.app import SpiderTask
from gymnast.builtin.resources_servers.tau2.service import ServiceTask
from gymnast.builtin.responses_api_agents.simulated_user_agent.user import Scenario
from gymnast.config.roots import BUILTIN, Roots
from gymnast.data.hub import Hub
from gymnast.errors import ConfigError, DataError, NotFoundError, UserError
from tests.helpers.benchmark_rows import REPOSITORIES, gpqa, livecodebench, mmlu_pro_row, spider
from tests.helpers.benchmarks import write_benchmark
from tests.helpers.hub_server import LocalHub, Repo, running_hub
from tests.helpers.jsonl import read_jsonl, write_jsonl
from tests.helpers.parts import needs

TASKS: dict[str, Any] = {
    "gpqa_diamond": MCQATask,
    "mmlu_pro": MCQATask,
    "livecodebench_v5": CodeGenTask,
    "livecodebench_v6": CodeGenTask,
    "ifeval": InstructionFollowingTask,
    "ifbench": IFBenchTask,
    "humaneval_plus": EvalPlusTask,
    "mbpp_plus": EvalPlusTask,
    "bfcl_v3": BfclTask,
    "spider": SpiderTask,
    "tau2_retail": ServiceTask,
    "tau2_airline": ServiceTask,
}


@pytest.fixture
def local_hub() -> Iterator[LocalHub]:
    with running_hub() as hub:
        yield hub


def prepare(name: str, hub: LocalHub, tmp_path: Path) -> tuple[list[dict[str, Any]], DataOrigin]:
    benchmark = find_benchmark(name, Roots((), tmp_path))
    repo = benchmark.definition.data.repo
    assert repo is not None
    hub.repos[repo] = Repo({"README.md": b"#", **REPOSITORIES[name]()})
    client = Hub(endpoint=hub.url, cache_dir=tmp_path / "cache")
    tasks, origin = prepare_tasks(Plan(name, benchmark), tmp_path / name, client)
    assert origin is not None
    return read_jsonl(tasks), origin


@pytest.mark.parametrize("name", ["gpqa_diamond", "mmlu_pro", "ifeval", "livecodebench_v5", "livecodebench_v6"])
def test_benchmarks_whose_own_code_differs_from_the_default_scoring_use_the_strict_one(
    name: str, tmp_path: Path
) -> None:
    """IFEval: with the default scoring an empty reply followed "no commas"."""
    overrides = find_benchmark(name, Roots((), tmp_path)).definition.overrides
    assert any(override.endswith(".scoring=strict") for override in overrides)


def test_every_built_in_benchmark_has_rows_of_our_own() -> None:
    names = {path.stem for path in (BUILTIN / "benchmarks").glob("*.yaml")}
    assert names - REPOSITORIES.keys() <= {"aime24", "gsm8k"}, "those have tests of their own"


@needs("pyarrow")
@pytest.mark.parametrize("name", sorted(REPOSITORIES))
def test_a_dataset_from_a_hub_becomes_tasks(name: str, local_hub: LocalHub, tmp_path: Path) -> None:
    tasks, origin = prepare(name, local_hub, tmp_path)
    rows = find_benchmark(name, Roots((), tmp_path)).definition.data.rows
    assert len(tasks) == rows or rows is None
    assert origin.commit is not None
    for task in tasks[:20]:
        assert task["responses_create_params"]["input"]
        if name in TASKS:
            TASKS[name].model_validate(task)


def test_a_right_find_zero_passes_though_the_dataset_has_a_broken_check(tmp_path: Path) -> None:
    """HumanEval/32 as the Hub has it unpacks a float, which no program survives."""
    row = {
        "task_id": "HumanEval/32",
        "prompt": "import math\n\ndef find_zero(xs: list):\n    ",
        "canonical_solution": "return -xs[0] / xs[1]\n",
        "entry_point": "find_zero",
        "test": (
            "def _poly(xs: list, x: float):\n    return sum(c * x**i for i, c in enumerate(xs))\n\n"
            "def check(candidate):\n    inputs = [[[1, 2]]]\n    results = [-0.5]\n"
            "    for i, (inp, exp) in enumerate(zip(inputs, results)):\n"
            "        assert _poly(*candidate(*inp), inp) <= 0.0001\n"
        ),
    }
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    (task,) = read_evalplus({"rows.jsonl": tmp_path / "rows.jsonl"})
    names: dict[str, Any] = {}
    exec(task["test"], names)
    names["check"](lambda xs: -xs[0] / xs[1])
    with pytest.raises(AssertionError):
        names["check"](lambda _: -100.0)


@needs("pyarrow")
def test_what_the_mappings_make(local_hub: LocalHub, tmp_path: Path) -> None:
    multiple_choice = TaskMaker(find_benchmark("mmlu_pro", Roots((), tmp_path))).make(mmlu_pro_row(0))
    assert multiple_choice["options"] == [{"A": "yes"}, {"B": "no <b>"}, {"C": "it's"}]
    assert "B) no <b>\nC) it's\n" in multiple_choice["responses_create_params"]["input"][0]["content"]
    first, second = prepare("livecodebench_v6", local_hub, tmp_path)[0][:2]
    assert first["verifier_metadata"]["unit_tests"]["inputs"] == ["1 2\n", "5 6\n"]
    assert second["verifier_metadata"]["unit_tests"]["fn_name"] == "total"
    assert "class Solution" in second["responses_create_params"]["input"][0]["content"]
    assert prepare("mbpp_plus", local_hub, tmp_path)[0][0]["entry_point"] == "add_one"
    calls, origin = prepare("bfcl_v3", local_hub, tmp_path)
    assert origin.file == "19 files"
    (tool,) = calls[0]["responses_create_params"]["tools"]
    assert tool["name"] == "area_get"
    kinds = {name: part["type"] for name, part in tool["parameters"]["properties"].items()}
    assert (tool["parameters"]["type"], kinds) == ("object", {"base": "number", "unit": "string", "options": "object"})
    assert {task["category"]: task["ground_truth"] is None for task in calls}["live_irrelevance"]
    query = prepare("spider", local_hub, tmp_path)[0][0]
    assert "CREATE TABLE pet" in query["responses_create_params"]["input"][0]["content"]
    assert Path(query["database"]).is_file()
    conversation = prepare("tau2_retail", local_hub, tmp_path)[0][0]
    assert "Be {kind}." in conversation["responses_create_params"]["input"][0]["content"]
    assert Scenario.model_validate(conversation["user"]).goal == "Cancel what you ordered."


def test_options_are_shuffled_by_the_question_alone(tmp_path: Path) -> None:
    (tmp_path / "gpqa_diamond.csv").write_bytes(gpqa()["gpqa_diamond.csv"])
    files = {"gpqa_diamond.csv": tmp_path / "gpqa_diamond.csv"}
    rows = list(read_gpqa(files))
    assert rows == list(read_gpqa(files))
    counts = {letter: sum(row["expected_answer"] == letter for row in rows) for letter in "ABCD"}
    assert all(25 <= count <= 75 for count in counts.values()), counts
    for row in rows:
        (right,) = [option[row["expected_answer"]] for option in row["options"] if row["expected_answer"] in option]
        assert right == "the right one"
    assert [rows[0]["expected_answer"], rows[1]["expected_answer"], rows[2]["expected_answer"]] == ["B", "C", "B"]


class Attack:
    def __reduce__(self) -> Any:
        return (print, ("run",))


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = [json.loads(line) for line in livecodebench(1, "x")()["x"].splitlines()]
    row["private_test_cases"] = base64.b64encode(zlib.compress(pickle.dumps(Attack()))).decode()
    write_jsonl(tmp_path / "x.jsonl", [row])
    with pytest.raises(ValueError, match="not plain text"):
        list(read_livecodebench({"x.jsonl": tmp_path / "x.jsonl"}))
    assert not capsys.readouterr().out


# --- several files ---------------------------------------------------------------------------------------------------


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def test_several_files_come_from_a_folder_with_a_checksum_each(tmp_path: Path) -> None:
    files = spider()
    write_files(tmp_path / "copy", files)
    data = {"repo": "org/d", "files": ["validation.json", "database/*/*.sqlite"]}
    right = hashlib.sha256(files["validation.json"]).hexdigest()
    fields = {"question": "{{ question }}", "expected_answer": "{{ sql }}"}

    def run(sha256: str, **changes: Any) -> int:
        path = write_benchmark(
            tmp_path, data={**data, "sha256": {"validation.json": sha256}}, adapter="spider", fields=fields, **changes
        )
        plan = Plan("guess", read_benchmark(path))
        tasks, _ = prepare_tasks(plan, tmp_path / "out", Hub(), local_copy=tmp_path / "copy")
        return len(read_jsonl(tasks))

    assert run(right) == 1034
    with pytest.raises(DataError, match="wrong checksum"):
        run("0" * 64)
    (tmp_path / "copy" / "database" / "pets" / "pets.sqlite").unlink()
    with pytest.raises(NotFoundError, match=r"\*\.sqlite"):
        run(right)


def test_a_pattern_without_a_match_and_a_file_for_several_are_errors(local_hub: LocalHub, tmp_path: Path) -> None:
    local_hub.repos["org/d"] = Repo({"a.jsonl": b"{}\n"})
    path = write_benchmark(tmp_path, data={"repo": "org/d", "files": ["data/*.jsonl", "b.jsonl"]})
    plan = Plan("guess", read_benchmark(path))
    with pytest.raises(NotFoundError, match=r"no file 'data/\*\.jsonl'"):
        prepare_tasks(plan, tmp_path / "out", Hub(endpoint=local_hub.url, cache_dir=tmp_path / "cache"))
    (tmp_path / "a.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="needs a folder"):
        prepare_tasks(plan, tmp_path / "out", Hub(), local_copy=tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"data": {"repo": "a/b", "file": "x", "files": ["y"]}}, "either `file` or `files`"),
        ({"data": {"repo": "a/b", "files": ["x", "y"], "sha256": "0" * 64}}, "mapping"),
        ({"data": {"repo": "a/b", "files": []}}, "files"),
    ],
)
def test_mistakes_about_files_are_named(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_benchmark(write_benchmark(tmp_path, **changes))


def test_an_adapter_of_your_own_is_a_file_next_to_the_benchmark(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("a\nb\n")
    loop = "    for path in files.values():\n        for word in path.read_text().split():\n"
    code = f"def read_rows(files):\n{loop}            yield {{'q': word}}\n"
    (tmp_path / "lines.py").write_text(code)
    fields = {"question": "{{ q }}", "expected_answer": {"value": 3}}

    def run(adapter: str) -> list[dict[str, Any]]:
        path = write_benchmark(tmp_path, data={"path": "rows.txt"}, adapter=adapter, fields=fields)
        return read_jsonl(prepare_tasks(Plan("guess", read_benchmark(path)), tmp_path / "out", Hub())[0])

    assert [task["question"] for task in run("lines.py")] == ["a", "b"]
    with pytest.raises(ConfigError, match=r"(?s)unknown adapter 'tau3'.*did you mean 'tau2'"):
        run("tau3")
    with pytest.raises(ConfigError, match=r"nope\.py does not exist"):
        run("nope.py")
    (tmp_path / "lines.py").write_text("def read_rows(files):\n    raise KeyError('column')\n    yield\n")
    with pytest.raises(DataError, match="cannot read the data: KeyError: 'column'"):
        run("lines.py")
