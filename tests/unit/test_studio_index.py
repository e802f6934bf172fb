"""The studio's index: what is in it, that it grows with the run, and that it survives everything."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnast.errors import UserError
from gymnast.report.run_view import view_runs
from gymnast.store.paths import RunPaths
from gymnast.studio import line_files, run_index, search, short_words
from gymnast.studio.line_files import Batch
from gymnast.studio.line_reader import LineReader
from gymnast.studio.query import Query, parse_filter, parse_query, parse_words, select_rows
from gymnast.studio.query_bits import match_parts, query_bits
from gymnast.studio.run_index import RunIndex
from gymnast.studio.run_table import RunTable, Texts, load_table, make_view, read_run_plan
from gymnast.studio.search import search_rows, search_tasks
from gymnast.studio.searched_text import searched_of
from gymnast.studio.text_signature import Signer, transpose
from tests.helpers.chunked_runs import FACTS, commit, small_run
from tests.helpers.chunked_runs import record as chunk_record
from tests.helpers.report_runs import HOSTILE, failed, grid, hostile_records, record, write_run

OPENED: list[RunIndex] = []


@pytest.fixture(autouse=True)
def close_indexes() -> Iterator[None]:
    """From Python 3.13 on, a database that is left open is a warning."""
    yield
    while OPENED:
        OPENED.pop().close()


def build(output: Path, file: Path | None = None) -> RunIndex:
    index = RunIndex(RunPaths(output), file)
    OPENED.append(index)
    index.update()
    return index


def table_of(output: Path, file: Path | None = None) -> RunTable:
    return RunTable(build(output, file).snapshot())


def rows(table: RunTable, **params: Any) -> list[tuple[int, int]]:
    query = parse_query({name: value if isinstance(value, list) else [value] for name, value in params.items()})
    found = select_rows(query, len(table), table.column, [])
    return [(int(table.keys[row]) >> 32, int(table.keys[row]) & 0xFFFFFFFF) for row in found]


# --- signatures ------------------------------------------------------------------------------------------------------


def matches(texts: list[bytes], *words: str) -> list[bool]:
    batch = Batch.of([text + b"\0\0\0" for text in texts])
    stored = transpose(Signer().sign(batch)[0])
    count = len(texts)
    found = match_parts(lambda byte: stored[byte * count :][:count], query_bits(words), count)
    return [bool(own) for own in found]


def test_a_signature_never_misses_a_word_whatever_its_case_and_place() -> None:
    texts = [
        f"{'-' * (number % 5)}The Quick brown fox {number} jumps over {'x' * number}".encode() for number in range(300)
    ]
    assert all(matches(texts, "quick", "JUMPS", "over xxx"[:4]))
    assert all(matches(texts, "brown fox"))
    for length in range(4, 9):
        word = "abcdefgh"[:length]
        placed = [b"z" * left + word.encode() + b"z" * right for left in range(4) for right in range(4)]
        assert all(matches(placed, word)), word
    assert not any(matches([b"", b"ab", b"ab cd"], "abcd"))


def test_a_signature_lets_few_others_through() -> None:
    texts = [" ".join(f"word{number * 37 + other}" for other in range(400)).encode() for number in range(200)]
    assert sum(matches(texts, "zebra crossing")) < 5


WORDS = ("日本語", "Brücke", "Привет", "ΟΔΌΣ", "straße", "abc", "a7", "naïve café", "x<y & z", "it's 50%")


@pytest.mark.parametrize("word", WORDS)
def test_a_signature_never_misses_short_words_phrases_and_other_languages(word: str) -> None:
    spellings = [own for own in (word, word.lower(), word.upper()) if own.lower() == word.lower()]
    texts = [
        f'"{"-" * before}{own}{"." * after}"'.encode() for own in spellings for before in range(4) for after in range(4)
    ]
    assert query_bits([word.lower()])
    assert all(matches(texts, word.lower()))
    assert len(word) < 3 or not any(matches([b'"something else"', b'"0123456789"'], word.lower()))


def test_words_without_two_bytes_in_a_row_have_no_signature() -> None:
    assert query_bits(["a", '"\\"', "\ud800", ""]) == []


def test_a_phrase_is_distinguished_from_its_words() -> None:
    texts = [b'"green tea and black coffee"', b'"green tea, coffee, not black"']
    assert matches(texts, "black coffee") == [True, False]


# --- lines -----------------------------------------------------------------------------------------------------------


def read(*records: Any, failures: bool = False) -> Any:
    lines = [line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in records]
    return LineReader().read(0, Batch.of(lines), failures=failures)


def test_records_of_any_form_are_read_or_skipped() -> None:
    deep = b'{"a":' * 3000 + b"1" + b"}" * 3000
    odd = [
        b"not json\n",
        b"[]\n",
        b"\n",
        b'{"reward": 1}\n',
        deep,
        b'{"_ng_task_index": -1, "_ng_rollout_index": 0}\n',
        b'{"_ng_task_index": 99999999999999999999999, "_ng_rollout_index": 0}\n',
        b'{"_ng_task_index": true, "_ng_rollout_index": 0}\n',
        b"\xff\xfe\n",
    ]
    lines = read(*odd, record(1, 2, 0.5))
    assert len(lines) == 1
    assert lines.keys.tolist() == [(1 << 32) | 2]


def test_unusual_values_do_not_lose_a_record() -> None:
    surrogate = json.dumps(record(1, 0, 1.0, "x \ud800 y", answer="\ud800")).encode()
    not_a_number = json.dumps(record(2, 0, float("nan"), score=float("inf"))).encode()
    lines = read(
        surrogate,
        not_a_number,
        {**record(3, 0, 1.0), "response": "text", "agent_ref": 5, "reward": "high"},
        {**record(4, 0, 1.0), "response": {"output": "text", "usage": [1]}, "score": {"deep": 1}},
        {**record(5, 0, 1.0), 'odd "name"\\': 1, "score": 10**400},
        record(6, 0, 2, score=0.25),
    )
    assert [key >> 32 for key in lines.keys.tolist()] == [1, 2, 3, 4, 5, 6]
    assert lines.numbers["reward"][[0, 5]].tolist() == [1.0, 2.0]
    assert np.isnan(lines.numbers["reward"][1:3]).all()
    assert lines.numbers["score"][5] == 0.25
    assert lines.texts["answer"][0] == "\ufffd"


def test_a_field_that_appears_later_is_empty_before() -> None:
    reader = LineReader()
    records = [record(task, 0, 1.0, level=task) if task > 1 else record(task, 0, 1.0) for task in range(4)]
    lines = [json.dumps(own).encode() for own in records]
    columns = reader.read(0, Batch.of(lines), failures=False)
    assert columns.numbers["level"].tolist() == pytest.approx([math.nan, math.nan, 2.0, 3.0], nan_ok=True)


def test_a_search_covers_escaped_text() -> None:
    line = json.dumps(record(1, 0, 1.0, "Über die Brücke")).encode()
    assert "Brücke".lower().encode() in searched_of(line)


def test_an_odd_line_does_not_move_the_lines_after_it() -> None:
    first, second = (json.dumps(record(task, 0, 1.0)).encode() for task in (1, 2))
    for odd in (b"\n", b" \n", first + second + b"\n", first[:40] + b"\n", b'{"a":\n{}}\n', b"{}\r\n", b"}{\n"):
        lines = [first + b"\n", odd, b"\n", second + b"\n"]
        read_lines = LineReader().read(0, Batch.of(lines), failures=False)
        found = dict(zip((read_lines.keys >> 32).tolist(), read_lines.offsets.tolist(), strict=True))
        assert found == {1: 0, 2: sum(map(len, lines[:-1]))}, odd


def test_texts_in_a_small_part_of_a_line_are_found() -> None:
    lines = read(record(1, 0, 1.0, "the quixotic answer", notes="x" * 5000), record(2, 0, 1.0, notes="y" * 5000))
    assert run_index.match_lines(lines, query_bits(["quixotic"])).tolist() == [True, False]


# --- growing ---------------------------------------------------------------------------------------------------------


def append(output: Path, *records: dict[str, Any], end: str = "\n") -> None:
    with output.open("a") as out:
        out.write("\n".join(json.dumps(own) for own in records) + end)


def test_an_index_grows_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_index, "BLOCK_LINES", 8)
    monkeypatch.setattr(line_files, "BATCH_BYTES", 2000)
    output = write_run(tmp_path, grid(4, 5))
    index = build(output, tmp_path / "cache" / "i.sqlite")
    assert index.progress.state == "ready"
    assert index.progress.lines == 20
    append(output, record(7, 0, 1.0), record(7, 1, 0.0), end="")
    assert index.update()
    assert len(index.snapshot()) == 21, "a line that is not complete does not count"
    append(output, end="\n")
    index.update()
    assert len(index.snapshot()) == 22
    index.close()
    again = build(output, tmp_path / "cache" / "i.sqlite")
    assert RunTable(again.snapshot()).keys.tolist() == RunTable(build(output).snapshot()).keys.tolist()
    assert again.match(["answer"], 22).all()
    assert not again.match(["zebra"], 22).any()


@pytest.mark.parametrize("change", ["shorter", "replaced", "removed"])
def test_an_index_starts_over_if_the_file_is_another(tmp_path: Path, change: str) -> None:
    output = write_run(tmp_path, grid(4, 5))
    index = build(output)
    if change == "shorter":
        lines = output.read_text().splitlines(keepends=True)
        output.write_text("".join(lines[:7]))
    elif change == "replaced":
        write_run(tmp_path, [record(task, 0, 1.0, "other") for task in range(30)])
    else:
        output.unlink()
    index.update()
    assert len(index.snapshot()) == {"shorter": 7, "replaced": 30, "removed": 0}[change]


@pytest.mark.parametrize("damage", [b"", b"garbage" * 1000, None])
def test_a_damaged_index_is_built_again(tmp_path: Path, damage: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_index, "BLOCK_LINES", 8)
    monkeypatch.setattr(line_files, "BATCH_BYTES", 2000)
    output, file = write_run(tmp_path, grid(4, 5)), tmp_path / "i.sqlite"
    build(output, file).close()
    if damage is None:
        data = bytearray(file.read_bytes())
        data[len(data) // 2 :] = b"\xee" * (len(data) - len(data) // 2)
        damage = bytes(data)
    file.write_bytes(damage)
    assert len(build(output, file).snapshot()) == 20


def test_an_index_of_another_run_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_index, "BLOCK_LINES", 8)
    monkeypatch.setattr(line_files, "BATCH_BYTES", 2000)
    first, second = (write_run(tmp_path, grid(4, n), name=f"r{n}") for n in (5, 6))
    build(first, tmp_path / "i.sqlite").close()
    assert len(build(second, tmp_path / "i.sqlite").snapshot()) == 24


def test_without_a_place_for_the_file_the_index_is_in_memory(tmp_path: Path) -> None:
    output = write_run(tmp_path, grid(4, 5))
    (tmp_path / "file").write_text("")
    assert len(build(output, tmp_path / "file" / "cache" / "i.sqlite").snapshot()) == 20


def test_the_shards_of_a_run_in_chunks_are_one_table(tmp_path: Path) -> None:
    run = small_run(tmp_path, tasks=4, repeats=2, chunk_rows=4)
    index = RunIndex(run.paths, None)
    index.update()
    assert len(index.snapshot()) == 0
    for view in run.views():
        held = run.claim(view, "w", "t")
        assert held is not None
        while (row := held.next_row()) is not None:
            held.record_scored(row.key, chunk_record(row.key), FACTS)
        commit(held)
    index.update()
    assert index.progress.state == "ready"
    assert len(RunTable(index.snapshot())) == 8


# --- tables ----------------------------------------------------------------------------------------------------------


def test_the_table_has_a_row_for_every_rollout(tmp_path: Path) -> None:
    records = [record(0, 0, 1.0), record(0, 1, None), record(1, 0, 0.5, mask_sample=True), record(2, 0, 0.0)]
    failures = [failed(2, 0, "model_error"), failed(3, 0), failed(3, 0, "rollout_timeout")]
    table = table_of(write_run(tmp_path, records, failures=failures))
    assert [int(key) >> 32 for key in table.keys] == [0, 0, 1, 2, 3]
    states = table.column("state")
    assert isinstance(states, Texts)
    assert [states.names[code] for code in states.codes] == ["scored", "excluded", "excluded", "scored", "failed"]
    assert table.column("attempts").tolist() == [0, 0, 0, 1, 2]  # type: ignore[union-attr]
    assert rows(table, f="failure=rollout_timeout") == [(3, 0)]
    assert table.failure_summary.attempts == {"model_error": 1, "model_timeout": 1, "rollout_timeout": 1}


def test_figures_are_those_of_the_report(tmp_path: Path) -> None:
    output = write_run(tmp_path, grid(9, 4), failures=[failed(20, 0)], missing=[(21, 0)])
    paths = RunPaths(output)
    table = table_of(output)
    own = load_table(table, read_run_plan(paths.materialized_inputs))
    view = make_view(table, own, paths, None, "run")
    expected = view_runs([output])[0]
    assert own.problem is None
    assert view.headline == expected.headline
    assert view.setup.models == expected.setup.models
    assert view.tasks.mean.tolist() == pytest.approx(expected.tasks.mean.tolist(), nan_ok=True)


def test_inputs_of_another_run_are_a_problem_not_an_error(tmp_path: Path) -> None:
    output = write_run(tmp_path, grid(2, 2))
    shutil.copy(write_run(tmp_path, grid(1, 1), name="o").with_name("o_materialized_inputs.jsonl"), tmp_path / "i")
    table = table_of(output)
    own = load_table(table, read_run_plan(tmp_path / "i"))
    assert own.problem is not None
    assert make_view(table, own, RunPaths(output), None, "run").headline.scored == 4


def test_hostile_texts_are_values(tmp_path: Path) -> None:
    table = table_of(write_run(tmp_path, hostile_records()))
    assert len(table) == 2 * len(HOSTILE)


# --- queries ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> RunTable:
    records = [
        record(0, 0, 1.0, level=1, grade="A"),
        record(0, 1, 0.0, level=2, grade="b"),
        record(1, 0, 0.5, level=10, tokens=None),
        record(1, 1, -1.0, grade="A and more", agent="second"),
    ]
    return table_of(write_run(tmp_path, records))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["reward>=0.5"], [(0, 0), (1, 0)]),
        (["reward<0"], [(1, 1)]),
        (["reward=1", "reward=0.5"], [(0, 0), (1, 0)]),
        (["reward!=1"], [(0, 1), (1, 0), (1, 1)]),
        (["grade=A"], [(0, 0)]),
        (["grade~a"], [(0, 0), (1, 1)]),
        (["grade="], [(1, 0)]),
        (["grade!="], [(0, 0), (0, 1), (1, 1)]),
        (["output_tokens="], [(1, 0)]),
        (["level>1", "reward>=0"], [(0, 1), (1, 0)]),
        (["agent=second"], [(1, 1)]),
        (["task=1", "rollout=1"], [(1, 1)]),
        (["level~1"], [(0, 0), (1, 0)]),
        ([" reward  >=  0.5 "], [(0, 0), (1, 0)]),
    ],
)
def test_filters(table: RunTable, filters: list[str], expected: list[tuple[int, int]]) -> None:
    assert rows(table, f=filters) == expected


def test_order_puts_missing_values_last(table: RunTable) -> None:
    assert rows(table, sort="reward") == [(1, 1), (0, 1), (1, 0), (0, 0)]
    assert rows(table, sort="level", desc="1") == [(1, 0), (0, 1), (0, 0), (1, 1)]
    assert rows(table, sort="grade") == [(0, 0), (1, 1), (0, 1), (1, 0)]
    assert rows(table, sort="grade", desc="1") == [(0, 1), (1, 1), (0, 0), (1, 0)]


@pytest.mark.parametrize(
    "params",
    [
        {"f": ["rewad>1"]},
        {"f": ["nonsense"]},
        {"f": ["reward>abc"]},
        {"sort": ["nothing"]},
        {"page": ["-1"]},
        {"page": ["9" * 5000]},
        {"size": ["x"]},
        {"q": ["x" * 2000]},
        {"f": ["reward>0"] * 100},
        {"f": ["=" * 900]},
    ],
)
def test_invalid_queries_are_refused(table: RunTable, params: dict[str, list[str]]) -> None:
    with pytest.raises(UserError):
        select_rows(parse_query(params), len(table), table.column, ["reward"])


def test_words_and_phrases() -> None:
    assert parse_words('  Two "Exact Phrase" words ') == ("two", "exact phrase", "words")
    assert parse_filter("a=b=c").value == "b=c"
    assert parse_query({}) == Query()
    assert parse_query({"size": ["100000"]}).size == 500


# --- search ----------------------------------------------------------------------------------------------------------


def searchable(tmp_path: Path) -> tuple[RunIndex, RunTable]:
    texts = ("Green tea", "black coffee", "日本語 tea", "nothing")
    records = [record(task, rollout, 1.0, f"{texts[task]} {rollout}") for task in range(4) for rollout in range(5)]
    index = build(write_run(tmp_path, records))
    return index, RunTable(index.snapshot())


@pytest.mark.parametrize(
    ("words", "tasks"),
    [
        (["tea"], {0, 2}),
        (["green", "tea"], {0}),
        (["black coffee"], {1}),
        (["coffee black"], set()),
        (["日本語"], {2}),
        (["offe"], {1}),
        (["zebra"], set()),
        (["nothing"], {3}),
    ],
)
def test_a_search_finds_rows_and_tasks(tmp_path: Path, words: list[str], tasks: set[int]) -> None:
    index, table = searchable(tmp_path)
    result = search_rows(index, table, np.arange(len(table)), words, 50)
    assert {int(table.keys[row]) >> 32 for row in result.rows} == tasks
    assert result.total == 5 * len(tasks)
    assert result.is_exact
    ids = np.array([3, 2, 1, 0])
    by_task = search_tasks(index, table, ids, words, 50)
    assert [int(ids[row]) for row in by_task.rows] == sorted(tasks, reverse=True)
    assert by_task.total == len(tasks)


@pytest.mark.parametrize("word", ["qui", "zq", "x", "日", "é", "É", "ж", "q~", "<b", '"q', "1q2"])
def test_a_scan_never_misses_a_short_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setattr(short_words, "_CHUNK", 100)
    texts = [f"{'-' * number}{own}{'.' * (number % 3)}" for own in (word, word.upper(), "else") for number in range(40)]
    output = write_run(tmp_path, [record(number, 0, 1.0, text) for number, text in enumerate(texts)])
    with output.open("ab") as out:
        out.writelines(
            json.dumps(record(1000 + number, 0, 1.0, text), ensure_ascii=False).encode() + b"\n"
            for number, text in enumerate(texts)
        )
    index = build(output)
    part = short_words.short_part([word.lower()])
    assert part is not None
    may_match = short_words.find_lines(index.snapshot(), part, math.inf)
    has_word = [word.lower() in text.lower() for text in texts] * 2
    assert not (np.array(has_word) & ~may_match).any()
    assert short_words.find_lines(index.snapshot(), part, -math.inf).all(), "what was not read may match"


def test_a_rare_short_word_is_found_by_a_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "FIRST_LINES", 64)
    output = write_run(tmp_path, [record(task, 0, 1.0, "a QUIz" if task in (3, 250) else "no") for task in range(300)])
    index = build(output, tmp_path / "i.sqlite")
    table = RunTable(index.snapshot())
    rows = np.arange(len(table))
    for order in (rows, rows[::-1]):
        result = search_rows(index, table, order, ["qui"], 50)
        assert sorted(int(table.keys[row]) >> 32 for row in result.rows) == [3, 250]
        assert result.is_exact


def test_a_search_out_of_time_estimates_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_BATCH", 1)
    index, table = searchable(tmp_path)
    result = search_rows(index, table, np.arange(len(table)), ["tea"], 1, seconds=0.0)
    assert len(result.rows) == 1
    assert not result.is_exact
    assert 1 <= result.total <= len(table)
