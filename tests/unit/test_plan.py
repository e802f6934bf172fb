"""The plan: materialized inputs exactly as documented, bad rows all at once, nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gymnast.errors import DataError
from gymnast.rollouts.plan import PlanOptions, PlanSummary, write_plan
from gymnast.rollouts.prompt import PromptTemplate, read_template
from gymnast.rollouts.skills import skills_ref
from tests.helpers.jsonl import read_jsonl, write_jsonl

ROW: dict[str, Any] = {"responses_create_params": {"input": "q"}, "answer": 1}


def plan(folder: Path, rows: list[Any] | str, known: Any = ("a", "b"), **options: Any) -> tuple[list[Any], PlanSummary]:
    source = folder / "in.jsonl"
    if isinstance(rows, str):
        source.write_text(rows)
    else:
        write_jsonl(source, rows)
    summary = write_plan(source, folder / "out.jsonl", PlanOptions(**{"agent": "a", **options}), known)
    return read_jsonl(folder / "out.jsonl"), summary


def refused(folder: Path, rows: list[Any] | str, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        plan(folder, rows, **options)
    assert not (folder / "out.jsonl").exists()
    assert not list(folder.glob("*.partial"))
    return str(caught.value)


def test_repeats_are_grouped_by_task_and_numbered(tmp_path: Path) -> None:
    rows, summary = plan(tmp_path, [ROW, {**ROW, "answer": 2}], repeats=3)
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows] == [
        *((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)),
    ]
    assert [row["answer"] for row in rows] == [1, 1, 1, 2, 2, 2]
    assert list(rows[0]) == ["responses_create_params", "answer", "agent_ref", "_ng_task_index", "_ng_rollout_index"]
    assert (summary.tasks, summary.rollouts, summary.tasks_by_agent, summary.rollouts_by_agent) == (
        2,
        6,
        {"a": 2},
        {"a": 6},
    )


SOURCES = {"a": ("a",), "one": ("b",), "two": ("a", "b"), "none": ()}


def by_source(folder: Path, source: str, **options: Any) -> list[str]:
    rows, _ = plan(folder, [{**ROW, "task_source": source}], agent=None, task_agents=SOURCES, **options)
    return [row["agent_ref"]["name"] for row in rows]


def test_rows_with_a_task_source_go_to_the_agent_that_uses_it(tmp_path: Path) -> None:
    assert by_source(tmp_path, "a") == ["a"]
    assert by_source(tmp_path, "one", only_agent="a") == ["b"]
    assert by_source(tmp_path, "one", agent_map={"_default": "a"}) == ["a"]
    assert by_source(tmp_path, "two", agent_map={"two": "b", "_default": "a"}) == ["b"]
    assert by_source(tmp_path, "one", repeats={"one": 2, "_default": 1}) == ["b", "b"]
    rows, _ = plan(tmp_path, [{**ROW, "task_source": "two"}], agent="b", task_agents=SOURCES)
    assert rows[0]["agent_ref"] == {"name": "b"}


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("two", "several agents use 'two' (a, b); choose the agent of the row with --agent, or agent_map.two=AGENT"),
        ("none", "no agent uses 'none'"),
        ("onee", "the task source 'onee' is not configured; did you mean 'one'"),
    ],
)
def test_a_task_source_without_one_agent_is_refused(tmp_path: Path, source: str, text: str) -> None:
    rows = [{**ROW, "task_source": source}]
    assert text in refused(tmp_path, rows, agent=None, only_agent="a", task_agents=SOURCES)


def test_an_agent_map_gives_rows_of_one_agent_to_another(tmp_path: Path) -> None:
    row = {**ROW, "agent_ref": {"type": "responses_api_agents", "name": "old"}, "task_source": "two"}
    rows, _ = plan(tmp_path, [row, ROW], agent_map={"old": "b"}, repeats={"old": 2, "_default": 1})
    assert [row["agent_ref"] for row in rows] == [
        *[{"type": "responses_api_agents", "name": "b"}] * 2,
        {"name": "a"},
    ]


def test_identical_lines_are_one_task(tmp_path: Path) -> None:
    rows, summary = plan(tmp_path, [ROW, {**ROW, "answer": 2}, ROW], repeats=2)
    keys = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows]
    assert keys == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3)]
    assert summary.tasks == 2


def test_a_missing_newline_at_the_end_makes_no_new_task(tmp_path: Path) -> None:
    line = json.dumps(ROW)
    rows, summary = plan(tmp_path, f"{line}\n{line}")
    assert summary.tasks == 1
    assert len(rows) == 2


def test_indexes_that_are_there_are_honoured(tmp_path: Path) -> None:
    rows, _ = plan(tmp_path, [{**ROW, "_ng_task_index": 41, "_ng_rollout_index": 9}], repeats=2)
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows] == [(41, 0), (41, 1)]
    (tmp_path / "out.jsonl").unlink()
    assert "whole number" in refused(tmp_path, [{**ROW, "_ng_task_index": "x"}])


def test_agents_of_rows_win_over_the_default(tmp_path: Path) -> None:
    rows, _ = plan(tmp_path, [{**ROW, "agent_ref": {"type": "responses_api_agents", "name": "b"}}, ROW])
    assert [row["agent_ref"]["name"] for row in rows] == ["b", "a"]
    assert rows[0]["agent_ref"]["type"] == "responses_api_agents"


def test_repeats_by_agent(tmp_path: Path) -> None:
    rows = [{**ROW, "agent_ref": {"name": name}, "n": name} for name in ("a", "b")]
    planned, _ = plan(tmp_path, rows, repeats={"a": 2, "_default": 1})
    assert [row["n"] for row in planned] == ["a", "a", "b"]
    (tmp_path / "out.jsonl").unlink()
    assert "no entry for the agent 'b'" in refused(tmp_path, rows, repeats={"a": 2})


def test_unused_names_in_repeats_are_a_warning(tmp_path: Path) -> None:
    _, summary = plan(tmp_path, [ROW], repeats={"a": 1, "zzz": 4})
    assert "zzz" in summary.warnings[0]


def test_seeds_go_into_extra_body(tmp_path: Path) -> None:
    params = {"input": "q", "metadata": {"extra_body": '{"top_k": 3}', "other": "x"}}
    rows, _ = plan(tmp_path, [{"responses_create_params": params}], repeats=2, add_seed=True)
    bodies = [json.loads(row["responses_create_params"]["metadata"]["extra_body"]) for row in rows]
    assert bodies == [{"top_k": 3, "seed": 0}, {"top_k": 3, "seed": 1}]
    assert rows[0]["responses_create_params"]["metadata"]["other"] == "x"


def test_overrides_deep_and_shallow(tmp_path: Path) -> None:
    row = {"responses_create_params": {"input": "q", "reasoning": {"effort": "low", "summary": "auto"}, "top_p": 1}}
    over = {"reasoning": {"effort": "high"}, "temperature": 0.5}
    deep, summary = plan(tmp_path, [row], params=over)
    assert deep[0]["responses_create_params"]["reasoning"] == {"effort": "high", "summary": "auto"}
    assert not summary.warnings
    shallow, summary = plan(tmp_path, [row], params=over, deep_merge=False)
    assert shallow[0]["responses_create_params"] == {
        "input": "q",
        "reasoning": {"effort": "high"},
        "top_p": 1,
        "temperature": 0.5,
    }
    assert "reasoning.summary" in summary.warnings[0]


def test_limit_counts_lines(tmp_path: Path) -> None:
    rows, _ = plan(tmp_path, [{**ROW, "n": n} for n in range(5)], limit=2, repeats=2)
    assert [row["n"] for row in rows] == [0, 0, 1, 1]


def test_all_bad_rows_are_named_with_their_lines(tmp_path: Path) -> None:
    good = json.dumps(ROW)
    lines = [
        good,
        "",
        "{not json",
        "[1]",
        json.dumps({"no": "params"}),
        json.dumps({"responses_create_params": "text"}),
        json.dumps({"responses_create_params": {"input": 3}}),
        json.dumps({"responses_create_params": {"input": "x", "top_k": 1}}),
        json.dumps({**ROW, "agent_ref": {"name": "aa"}}),
        good,
    ]
    text = refused(tmp_path, "\n".join(lines) + "\n")
    assert "8 bad rows; nothing was collected" in text
    for number, said in enumerate(
        ["blank", "not JSON", "not a JSON object", "no 'responses_create_params'", "not an object"], start=2
    ):
        assert f"line {number}: " in text
        assert said in text
    assert "line 7: responses_create_params.input" in text
    assert "top_k" in text
    assert "did you mean 'a'" in text or "'aa' is not configured" in text
    assert "line 1:" not in text.replace("line 10:", "")


def test_only_the_first_twenty_kinds_of_bad_rows_are_shown(tmp_path: Path) -> None:
    text = refused(tmp_path, "".join(" " * number + "nope\n" for number in range(50)))
    assert "50 bad rows" in text
    assert text.count("not JSON") == 20
    assert "and 30 more" in text


def test_the_same_problem_of_many_rows_is_reported_once(tmp_path: Path) -> None:
    text = refused(tmp_path, "nope\n" * 50)
    assert text.count("not JSON") == 1
    assert "lines 1, 2, 3, 4, 5 and 45 more: not JSON" in text


def test_a_row_without_an_agent_is_refused_when_there_is_no_default(tmp_path: Path) -> None:
    assert "names no agent" in refused(tmp_path, [ROW], agent=None)


def test_an_empty_input_is_refused(tmp_path: Path) -> None:
    assert "no rows" in refused(tmp_path, "")


def test_a_source_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        write_plan(tmp_path / "nope", tmp_path / "out.jsonl", PlanOptions(agent="a"), ("a",))


def test_unicode_and_large_numbers_survive(tmp_path: Path) -> None:
    row = {**ROW, "text": "ünï – 漢字 🤖", "n": 2**53, "f": 0.1}
    rows, _ = plan(tmp_path, [row])
    assert {key: rows[0][key] for key in ("text", "n", "f")} == {key: row[key] for key in ("text", "n", "f")}


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
fields = st.dictionaries(
    st.text(min_size=1).filter(
        lambda key: not key.startswith("_ng") and key not in {"responses_create_params", "agent_ref"}
    ),
    json_values,
    max_size=4,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(fields, min_size=1, max_size=5), st.integers(1, 4))
def test_every_rollout_is_its_task_plus_two_numbers(tmp_path: Path, rows: list[dict[str, Any]], repeats: int) -> None:
    given_rows = [{"responses_create_params": {"input": "q"}, **row} for row in rows]
    planned, summary = plan(tmp_path, given_rows, repeats=repeats)
    assert len(planned) == summary.rollouts == len(rows) * repeats
    keys = [(row.pop("_ng_task_index"), row.pop("_ng_rollout_index")) for row in planned]
    assert len(set(keys)) == len(keys)
    for number, row in enumerate(planned):
        assert row.pop("agent_ref") == {"name": "a"}
        assert row == json.loads(json.dumps(given_rows[number // repeats]))
    by_text: dict[str, int] = {}
    for number, row in enumerate(given_rows):
        by_text.setdefault(json.dumps(row), len(by_text))
        assert keys[number * repeats][0] == by_text[json.dumps(row)]


# --- prompt templates and skills -------------------------------------------------------------------------------------


def test_a_template_makes_the_input(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("user: 'Q: {question} {{literal}}'\nsystem: be {mood}\n")
    template = read_template(tmp_path / "t.yaml")
    rows, _ = plan(
        tmp_path,
        [{"question": "why", "mood": "kind", "responses_create_params": {"temperature": 1}}],
        template=template,
    )
    assert rows[0]["responses_create_params"] == {
        "temperature": 1,
        "input": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "Q: why {literal}"}],
    }
    rows, _ = plan(tmp_path, [{"question": "no params", "mood": "x"}], template=template)
    assert len(rows[0]["responses_create_params"]["input"]) == 2


def test_rows_that_do_not_fit_a_template_are_refused(tmp_path: Path) -> None:
    text = refused(tmp_path, [ROW, {"other": 1}], template=PromptTemplate("Q: {question}"))
    assert "the row already has an input" in text
    assert "{question}, which the row does not have" in text


@pytest.mark.parametrize("text", ["- list", "system: only", "user: 3", "user: x\nextra: y", "{"])
def test_bad_templates(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(DataError, match="template"):
        read_template(tmp_path / "t.yaml")


def test_skills_are_stamped_with_a_digest(tmp_path: Path) -> None:
    folder = tmp_path / "skills"
    (folder / "search").mkdir(parents=True)
    (folder / "search" / "SKILL.md").write_text("---\nname: search\ndescription: find things\nversion: 2\n---\nbody")
    (folder / "plain").mkdir()
    (folder / "plain" / "SKILL.md").write_text("no front matter")
    ref = skills_ref(folder, "skills")
    assert ref["path"] == "skills"
    assert len(ref["hash"]) == 12
    assert ref["skills"] == [
        {"name": "plain", "description": None, "version": None},
        {"name": "search", "description": "find things", "version": 2},
    ]
    (folder / "search" / "helper.py").write_text("x = 1")
    assert skills_ref(folder, "skills")["hash"] != ref["hash"]
    rows, _ = plan(tmp_path, [ROW], skills=ref)
    assert rows[0]["skills_ref"] == ref
    with pytest.raises(DataError):
        skills_ref(tmp_path / "nope", "nope")


def test_a_row_too_deep_to_be_written_is_a_bad_row(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    deep = '{"responses_create_params": {"input": "q"}, "x": ' + "[" * 300 + "]" * 300 + "}"
    source.write_text(deep + "\n")
    with pytest.raises(DataError, match="line 1: the row cannot be written"):
        write_plan(source, tmp_path / "x_materialized_inputs.jsonl", PlanOptions(agent="a"), None)
