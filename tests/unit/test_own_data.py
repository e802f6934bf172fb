"""My own data: files of any format, fields under other names, a prompt in an option, errors that name the mapping."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gymnast.checks.rows import check_rows
from gymnast.config import compose, read_environ
from gymnast.data.convert import ConvertRequest, convert
from gymnast.errors import DataError, UserError
from gymnast.kit import Task
from gymnast.rollouts.options import find_template, run_options
from gymnast.rollouts.plan import PlanOptions, write_plan
from gymnast.rollouts.prompt import inline_template
from gymnast.rollouts.row_map import parse_map
from gymnast.store import row_files
from gymnast.store.row_files import read_lines
from tests.helpers.jsonl import read_jsonl, write_jsonl

QA = [{"problem": "1+1?", "answer": "2"}, {"problem": "2+2?", "answer": "4"}]
JSONL = "".join(json.dumps(row) + "\n" for row in QA).encode()


def rows(path: Path) -> list[Any]:
    return [json.loads(line) for _, line in read_lines(path)]


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", JSONL),
        ("bom.jsonl", b"\xef\xbb\xbf" + JSONL),
        ("a.jsonl.gz", gzip.compress(JSONL, mtime=0)),
        ("no_suffix", JSONL),
        ("array.json", json.dumps(QA, indent=1)),
        ("lines.json", JSONL),
        ("a.csv", "problem,answer\n1+1?,2\n2+2?,4\n"),
        ("bom.csv", "\ufeffproblem,answer\n1+1?,2\n2+2?,4\n"),
        ("crlf.csv", "problem,answer\r\n1+1?,2\r\n\r\n2+2?,4\r\n"),
        ("semicolons.csv", "problem;answer\n1+1?;2\n2+2?;4\n"),
        ("quoted.csv", '"problem","answer"\n"1+1?","2"\n"2+2?","4"\n'),
        ("a.tsv", "problem\tanswer\n1+1?\t2\n2+2?\t4\n"),
        ("a.csv.gz", gzip.compress(b"problem,answer\n1+1?,2\n2+2?,4\n", mtime=0)),
        ("folder/only.csv", "problem,answer\n1+1?,2\n2+2?,4\n"),
    ],
)
def test_the_same_rows_from_any_file(tmp_path: Path, name: str, content: str | bytes) -> None:
    path = write(tmp_path, name, content)
    assert rows(path.parent if "/" in name else path) == QA


def test_values_of_csv_files_stay_texts_and_lines_are_numbered_as_in_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'q,a\n"two\nlines",007\nlast,1e5\n')
    numbered = [(number, json.loads(line)) for number, line in read_lines(path)]
    assert numbered == [(2, {"q": "two\nlines", "a": "007"}), (4, {"q": "last", "a": "1e5"})]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ragged.csv", "a,b\n1\n", "the row has 1 cells, the header 2"),
        ("twice.csv", "a,a\n1,2\n", "two columns are called 'a'"),
        ("empty.csv", "", "no header line"),
        ("latin.csv", "a\nStraße\n".encode("latin-1"), "not UTF-8"),
        ("utf16.csv", "a,b\n1,2\n".encode("utf-16"), "UTF-16"),
        ("utf16.jsonl", '{"a": 1}\n'.encode("utf-16"), "UTF-16"),
        ("torn.jsonl.gz", gzip.compress(JSONL, mtime=0)[:-9], "the gzip file is cut off or damaged"),
        ("not.jsonl.gz", b"hello", "not a gzip file"),
        ("object.json", '{"rows": [1],\n "n": 1}', "'rows' is a list"),
        ("number.json", "3", "array of objects"),
        ("broken.json", "[1,\n2", "not JSON"),
        ("none/readme.md", "x", "no data files"),
        ("two/train.jsonl", JSONL, "several files: test.jsonl, train.jsonl"),
        ("dict/dataset_dict.json", "{}", "several splits: test, train"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_that_says_why(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    path = write(tmp_path, name, content)
    write(tmp_path, "two/test.jsonl", JSONL)
    write(tmp_path, "dict/train/dataset_info.json", "{}")
    write(tmp_path, "dict/test/dataset_info.json", "{}")
    with pytest.raises(DataError) as caught:
        rows(path.parent if "/" in name else path)
    assert message in str(caught.value)


def test_parquet_and_a_saved_hugging_face_dataset(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.Table.from_pylist(QA)
    parquet.write_table(table, tmp_path / "a.parquet")
    assert rows(tmp_path / "a.parquet") == QA
    saved = tmp_path / "saved"
    saved.mkdir()
    for number in range(2):
        path = saved / f"data-0000{number}-of-00002.arrow"
        with arrow.OSFile(str(path), "wb") as sink, arrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    write(saved, "dataset_info.json", "{}")
    write(saved, "state.json", "{}")
    assert rows(saved) == QA + QA
    assert [number for number, _ in read_lines(saved)] == [1, 2, 3, 4]


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(row_files, "import_module", missing)
    with pytest.raises(UserError) as caught:
        rows(write(tmp_path, "a.parquet", b"PAR1"))
    assert caught.value.next is not None
    assert "pip install 'gymnast[parquet]'" in caught.value.next


# --- maps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("maps", "row", "result"),
    [
        (["b=a"], {"a": 1}, {"a": 1, "b": 1}),
        (["b=m.x"], {"m": {"x": 1}}, {"m": {"x": 1}, "b": 1}),
        (["b=m.x.y"], {"m": {"x.y": 1}}, {"m": {"x.y": 1}, "b": 1}),
        (["b=l.1"], {"l": [1, 2]}, {"l": [1, 2], "b": 2}),
        (["m.x=a"], {"a": 1, "m": {"y": 2}}, {"a": 1, "m": {"y": 2, "x": 1}}),
        (["input=a"], {"a": "q"}, {"a": "q", "responses_create_params": {"input": "q"}}),
        (["input=a"], {"a": 7}, {"a": 7, "responses_create_params": {"input": "7"}}),
        (["a=b", "b=a"], {"a": 1, "b": 2}, {"a": 2, "b": 1}),
        (["frage=答え"], {"答え": "2"}, {"答え": "2", "frage": "2"}),
        (["b={a}"], {"a": 42}, {"a": 42, "b": "42"}),
        (["a={a}"], {"a": 42}, {"a": "42"}),
        (["b=a"], {"a": 1, "b": None}, {"a": 1, "b": 1}),
        (["b = a"], {"a": 1}, {"a": 1, "b": 1}),
        (["b=c=d"], {"c=d": 1}, {"c=d": 1, "b": 1}),
    ],
)
def test_a_map_copies_fields(maps: list[str], row: dict[str, Any], result: dict[str, Any]) -> None:
    row_map = parse_map(maps)
    assert row_map is not None
    before = json.dumps(row)
    assert row_map.apply(row) == result
    assert json.dumps(row) == before


@pytest.mark.parametrize(
    ("maps", "row", "message"),
    [
        (["expected_answer=anwser"], {"answer": "2"}, "did you mean 'answer'?"),
        (["answer=expected_answer"], {"answer": "2"}, "did you mean --map expected_answer=answer?"),
        (["b=a"], {"a": 1, "b": 2}, "the row already has 'b'"),
        (["m.x=a"], {"a": 1, "m": 3}, "'m' is not an object"),
        (["b={x}"], {"a": 1}, "the row has no 'x'"),
        (["input=a"], {"a": "q", "responses_create_params": {"input": "keep"}}, "already has 'input'"),
    ],
)
def test_a_map_that_does_not_fit_a_row_names_itself(maps: list[str], row: dict[str, Any], message: str) -> None:
    row_map = parse_map(maps)
    assert row_map is not None
    with pytest.raises(ValueError, match="--map") as caught:
        row_map.apply(row)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["expected_answer", "=answer", "a=", ""])
def test_a_malformed_map_is_an_error(text: str) -> None:
    with pytest.raises(UserError, match="expected TARGET=SOURCE"):
        parse_map([text])


def test_two_maps_of_one_field_are_an_error() -> None:
    with pytest.raises(UserError, match="two maps of 'a'"):
        parse_map(["a=b", "a=c"])
    assert parse_map({"a": "b"}) == parse_map(["a=b"])


# --- prompts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("Solve: {q}", "Solve: 1+1?"),
        (r"Write \boxed{}. {q}", r"Write \boxed{}. 1+1?"),
        (r"Write \boxed{{}}. {q}", r"Write \boxed{}. 1+1?"),
        ('As {"a": 1}: {q}', 'As {"a": 1}: 1+1?'),
        ("a { b {q}", "a { b 1+1?"),
        ("{meta.hint}, {Frage ü}", "x, y"),
        ("{number} {list}", '7 ["a"]'),
    ],
)
def test_an_inline_prompt_fills_fields_and_leaves_other_braces_alone(text: str, filled: str) -> None:
    row = {"q": "1+1?", "meta": {"hint": "x"}, "Frage ü": "y", "number": 7, "list": ["a"]}
    assert inline_template(text).messages(row) == [{"role": "user", "content": filled}]


@pytest.mark.parametrize(
    ("text", "message"), [("{quesion}", "did you mean 'question'?"), ("{question.__class__}", "no"), ("{none}", "null")]
)
def test_a_prompt_with_a_field_that_is_not_there_names_it(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="is used") as caught:
        inline_template(text).messages({"question": "q", "none": None})
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["Hello", "", r"\boxed{}"])
def test_a_prompt_that_uses_no_field_is_an_error(text: str) -> None:
    with pytest.raises(UserError, match="prompt"):
        inline_template(text)


def test_a_prompt_may_be_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = compose(read_environ({}), environments=["mcqa"], stub_policy=True)
    write(tmp_path, "p.yaml", "system: Be brief.\nuser: '{q}'\n")
    write(tmp_path, "p.txt", "Solve:\n{q}\n")
    both = [find_template(config, None, name) for name in ("p.yaml", "p.txt")]
    assert [template.messages({"q": "1"})[-1]["content"] for template in both if template] == ["1", "Solve:\n1"]
    with pytest.raises(UserError, match="does not exist"):
        find_template(config, None, "nope.yaml")
    with pytest.raises(UserError, match="mutually exclusive"):
        find_template(config, "p.yaml", "{q}")


# --- planning --------------------------------------------------------------------------------------------------------


def plan(tmp_path: Path, source: list[Any], **options: Any) -> list[Any]:
    write_jsonl(tmp_path / "in.jsonl", source)
    config = compose(read_environ({}), environments=["math_with_judge"], stub_policy=True)
    chosen = run_options(config, source=tmp_path / "in.jsonl", output=tmp_path / "o.jsonl", **options)
    write_plan(tmp_path / "in.jsonl", tmp_path / "plan.jsonl", chosen.plan, None)
    return read_jsonl(tmp_path / "plan.jsonl")


MAP = ["expected_answer=answer", "question=problem"]


def test_question_and_answer_become_rows_of_an_environment(tmp_path: Path) -> None:
    (first, _) = plan(tmp_path, QA, map=MAP, prompt="Solve: {question}")
    assert first["expected_answer"] == "2"
    assert first["responses_create_params"]["input"] == [{"role": "user", "content": "Solve: 1+1?"}]


def test_a_row_without_an_input_is_told_how_to_map_one_and_only_once(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        plan(tmp_path, QA)
    text = str(caught.value)
    assert "the row has no 'responses_create_params': map its input with --map input=problem" in text
    assert "(fields: problem, answer)" in text
    assert "lines 1, 2:" in text
    assert text.count("responses_create_params") == 1


def test_what_check_rows_knows_collect_says_before_the_first_call(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        plan(tmp_path, QA, prompt="{problem}", map=["question=problem"])
    assert "the row does not fit 'math_with_judge': no 'expected_answer'" in str(caught.value)
    assert "--map expected_answer=answer" in str(caught.value)


def test_a_number_where_a_text_is_needed_is_told_how_to_be_one(tmp_path: Path) -> None:
    numbers = [{"problem": "1+1?", "answer": 2}]
    with pytest.raises(DataError) as caught:
        plan(tmp_path, numbers, prompt="{question}", map=MAP)
    assert "--map expected_answer='{answer}'" in str(caught.value)
    (row,) = plan(tmp_path, numbers, prompt="{question}", map=["expected_answer={answer}", "question=problem"])
    assert row["expected_answer"] == "2"


def test_a_map_is_suggested_by_meaning_and_no_field_twice(tmp_path: Path) -> None:
    rows = [{"problem": "1+1?", "solution": 2, "topic": "sums"}]
    with pytest.raises(DataError) as caught:
        plan(tmp_path, rows, prompt="{problem}")
    assert "--map question=problem --map expected_answer='{solution}'" in str(caught.value)
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    result = check_rows(path, Question, "math", [], inline_template("{problem}"))
    assert [hint.split("map it: ")[1] for hint in result.hints()] == [
        "--map question=problem",
        "--map expected_answer='{solution}'",
    ]


def test_check_rows_says_the_whole_of_what_to_do(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "rows.jsonl", [{"problem": "1+1?", "solution": 2, "topic": "sums"}])
    text = "\n".join(check_rows(path, Question, "math", []).lines())
    assert "--map input=problem, or write a prompt: --prompt '{problem}' (fields: problem, solution, topic)" in text


def test_an_answer_under_another_name_is_a_warning_where_it_is_optional(tmp_path: Path) -> None:
    def warnings(row: dict[str, Any], **options: Any) -> list[str]:
        write_jsonl(tmp_path / "in.jsonl", [row, row])
        config = compose(read_environ({}), environments=["equivalence_llm_judge"], stub_policy=True)
        chosen = run_options(config, source=tmp_path / "in.jsonl", output=tmp_path / "o.jsonl", **options)
        return write_plan(tmp_path / "in.jsonl", tmp_path / "plan.jsonl", chosen.plan, None).warnings

    row = {"responses_create_params": {"input": "1+1?"}, "answer": 2}
    (warning,) = warnings(row)
    assert "no row has 'expected_answer', which equivalence_llm_judge reads" in warning
    assert "if it is 'answer', map it with --map expected_answer='{answer}'" in warning
    assert warnings(row, map=["expected_answer={answer}"]) == []
    assert warnings({**row, "metadata": {"expected_answer": "2"}, "answer": None} | {"expected_answer": "2"}) == []
    (unscorable,) = warnings({"responses_create_params": {"input": "1+1?"}})
    assert unscorable.startswith("2 rows cannot be scored (no expected_answer")


def test_rows_that_do_not_fit_can_be_skipped(tmp_path: Path) -> None:
    mixed = [*QA, {"problem": "3+3?"}]
    (first, second) = plan(tmp_path, mixed, map=MAP, prompt="{question}", skip_bad_rows=True)
    assert [first["question"], second["question"]] == ["1+1?", "2+2?"]


def test_a_plan_of_jsonl_without_maps_is_byte_for_byte_what_it_was(tmp_path: Path) -> None:
    row = {"responses_create_params": {"input": "é"}, "agent_ref": {"name": "a"}}
    write_jsonl(tmp_path / "in.jsonl", [row])
    write_plan(tmp_path / "in.jsonl", tmp_path / "plan.jsonl", PlanOptions(), None)
    expected = (
        '{"responses_create_params":{"input":"é"},"agent_ref":{"name":"a"},"_ng_task_index":0,"_ng_rollout_index":0}\n'
    )
    assert (tmp_path / "plan.jsonl").read_text() == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", b"PK\x03\x04\x00", "a zip archive or a spreadsheet"),
        ("a.jsonl", b"PAR1\x00\x01", "call it .parquet"),
        ("a.data", b"abc\x00def\n", "a binary file"),
        ("a.jsonl", b"\x1f\x8b\x08\x00", "call it .jsonl.gz"),
        ("a.db", b"SQLite format 3\x00", "an SQLite database"),
    ],
)
def test_a_file_that_is_not_text_is_called_what_it_is(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        list(read_lines(tmp_path / name))
    assert message in str(caught.value)


def test_a_line_in_another_encoding_says_how_to_convert_it(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes('{"problem": "café"}\n'.encode("latin-1"))
    with pytest.raises(DataError, match="not UTF-8; convert the file: iconv"):
        write_plan(tmp_path / "in.jsonl", tmp_path / "plan.jsonl", PlanOptions(), None)
    text = "\n".join(check_rows(tmp_path / "in.jsonl", Question, "math", []).lines())
    assert "not UTF-8; convert the file: iconv" in text


def test_a_folder_as_output_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "precious.txt").write_text("x")
    write_jsonl(tmp_path / "in.jsonl", QA)
    config = compose(read_environ({}), environments=["math_with_judge"], stub_policy=True)
    for options in ({}, {"overwrite": True}, {"existing": "set_aside"}):
        with pytest.raises(UserError, match="the output is a folder"):
            run_options(config, source=tmp_path / "in.jsonl", output=tmp_path / "runs", **options)
    assert (tmp_path / "runs" / "precious.txt").exists()


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"existing": "set_aside"}])
def test_an_input_that_the_run_would_replace_is_refused_and_kept(tmp_path: Path, options: dict[str, Any]) -> None:
    rows = write_jsonl(tmp_path / "in.jsonl", QA)
    (tmp_path / "link.jsonl").symlink_to(rows)
    config = compose(read_environ({}), environments=["math_with_judge"], stub_policy=True)
    for output in ("in.jsonl", "link.jsonl"):
        with pytest.raises(UserError, match="the input is also a file of the run"):
            run_options(config, source=rows, output=tmp_path / output, **options)
    inputs = write_jsonl(tmp_path / "x_materialized_inputs.jsonl", QA)
    with pytest.raises(UserError, match="the input is also a file of the run"):
        run_options(config, source=inputs, output=tmp_path / "x.jsonl", **options)
    assert len(read_jsonl(rows)) == len(read_jsonl(inputs)) == 2


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("https://example.org/x.jsonl", "curl -LO https://example.org/x.jsonl"),
        ("openai/gsm8k", "gymnast data download --repo-id openai/gsm8k"),
        ("-", "write the rows into a file"),
    ],
)
def test_an_input_that_is_not_a_file_is_told_how_to_become_one(tmp_path: Path, source: str, hint: str) -> None:
    config = compose(read_environ({}), environments=["math_with_judge"], stub_policy=True)
    with pytest.raises(UserError) as caught:
        run_options(config, source=source, output=tmp_path / "o.jsonl")
    assert hint in str(caught.value)


def test_a_misspelt_input_file_is_recognized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "math.jsonl", QA)
    config = compose(read_environ({}), environments=["math_with_judge"], stub_policy=True)
    with pytest.raises(UserError, match=r"did you mean 'math.jsonl'"):
        run_options(config, source="mth.jsonl", output=tmp_path / "o.jsonl")


# --- check rows, convert ---------------------------------------------------------------------------------------------


class Question(Task):
    question: str
    expected_answer: str


def test_check_rows_shows_the_first_row_as_the_model_will_see_it(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "problem,answer\n1+1?,2\n")
    result = check_rows(path, Question, "math", [], inline_template("Solve:\n{question}"), parse_map(MAP), ["look_up"])
    text = "\n".join(result.lines())
    assert result.ok
    assert "the model sees (line 2):\n  user: Solve:\n    1+1?\n  tools: look_up" in text
    assert result.as_json()["first_row"]["tools"] == ["look_up"]


def test_check_rows_hints_at_the_map(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "question,answer\n1+1?,2\n")
    result = check_rows(path, Question, "math", [], inline_template("{question}"))
    assert result.hints() == ["'expected_answer' is missing; map it: --map expected_answer=answer"]


LM_EVAL = {
    "doc_id": 3,
    "doc": {"question": "1+1?", "answer": "2"},
    "target": 2,
    "arguments": {"gen_args_0": {"arg_0": "Q: 1+1?\nA:", "arg_1": {"until": ["\n"]}}},
    "resps": [["2"]],
}
MESSAGES = [{"role": "user", "content": "1+1?"}]


@pytest.mark.parametrize(
    ("row", "name", "prompt"),
    [
        (LM_EVAL, "lm-eval", "Q: 1+1?\nA:"),
        ({**LM_EVAL, "arguments": [["Q: 1+1?\nA:", {}]]}, "lm-eval", "Q: 1+1?\nA:"),
        ({"prompt": MESSAGES, "answer": "2", "info": {}}, "verifiers", MESSAGES),
        ({"messages": [*MESSAGES, {"role": "assistant", "content": "2"}]}, "nemo-rl", MESSAGES),
    ],
)
def test_formats_of_other_programs_are_known(tmp_path: Path, row: dict[str, Any], name: str, prompt: Any) -> None:
    write_jsonl(tmp_path / "in.jsonl", [row])
    result = convert(ConvertRequest(tmp_path / "in.jsonl", tmp_path / "out.jsonl"))
    (converted,) = read_jsonl(tmp_path / "out.jsonl")
    assert (result.rows, result.format) == (1, name)
    assert (converted["responses_create_params"]["input"], converted["expected_answer"]) == (prompt, "2")


def test_a_row_of_another_format_is_an_error_with_its_line(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", [LM_EVAL, {"doc": 3}])
    with pytest.raises(DataError, match=r"line 2: not a sample of lm-eval"):
        convert(ConvertRequest(tmp_path / "in.jsonl", tmp_path / "out.jsonl"))
    assert not (tmp_path / "out.jsonl").exists()


def test_convert_overwrites_nothing_unless_told_to(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    write_jsonl(source, QA)
    request = ConvertRequest(source, tmp_path / "out.jsonl.gz", parse_map(MAP), inline_template("{question}"))
    assert convert(request).rows == 2
    assert len(rows(tmp_path / "out.jsonl.gz")) == 2
    with pytest.raises(UserError, match="exists"):
        convert(request)
    with pytest.raises(UserError, match="overwrite the input"):
        convert(ConvertRequest(source, source, overwrite=True))
    with pytest.raises(UserError, match="JSONL"):
        convert(ConvertRequest(source, tmp_path / "out.csv"))


def test_what_convert_refuses_is_said_once_with_its_lines(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", [*QA, *QA])
    with pytest.raises(DataError) as caught:
        convert(ConvertRequest(tmp_path / "in.jsonl", tmp_path / "out.jsonl"))
    assert "lines 1, 2, 3, 4: the row has no 'responses_create_params'" in str(caught.value)
