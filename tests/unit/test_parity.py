"""The comparison with NeMo Gym: its generators are seeded and broad, its comparison strict, its results continue."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.parity.compare import Comparison, Kind, compare, find_differences, is_same
from tests.parity.generate import make_request
from tests.parity.minimise import minimise
from tests.parity.odd_code import mutate_program
from tests.parity.odd_documents import make_document
from tests.parity.odd_output import mutate_output
from tests.parity.odd_replies import JUDGE_REPLIES, TEMPLATES, make_edit, make_judge_reply, make_reply
from tests.parity.odd_rows import ROWS, change_row
from tests.parity.odd_text import MUTATIONS, mutate_text
from tests.parity.odd_values import mutate_arguments, mutate_value
from tests.parity.original import Script, output_of
from tests.parity.results import Difference, Results, add_counts
from tests.parity.seeds import ENVIRONMENTS, load_seeds

VERIFY: dict[str, Any] = {"environment": "mcqa", "settings": {}, "steps": [["/verify", {}]]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def reply(status: int = 200, **body: Any) -> dict[str, Any]:
    return {"status": status, "body": body}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_every_mutation_changes_texts_and_takes_any(mutation: Any) -> None:
    texts = ['Answer: {"i": -12, "b": null}\n"I said" \\boxed{42} `x` - true', "", "\n", "A", "1", "9" * 5000]
    changed = [mutation(texts[0], random.Random(seed)) != texts[0] for seed in range(30)]
    assert any(changed)
    for text in texts:
        assert all(isinstance(mutation(text, random.Random(seed)), str) for seed in range(30))


@given(st.text(), st.integers())
def test_the_same_numbers_give_the_same_text(text: str, seed: int) -> None:
    assert mutate_text(text, random.Random(seed)) == mutate_text(text, random.Random(seed))


@given(JSON, st.integers())
def test_values_and_arguments_stay_what_can_be_sent(value: Any, seed: int) -> None:
    json.dumps(mutate_value(value, random.Random(seed)))
    assert isinstance(mutate_arguments(json.dumps(value), random.Random(seed)), str)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_requests_follow_from_seed_and_number(environment: str) -> None:
    seeds = load_seeds(environment)
    requests = [make_request(environment, seeds, 5, number) for number in range(40)]
    assert requests == [make_request(environment, seeds, 5, number) for number in range(40)]
    assert len({json.dumps(request, sort_keys=True) for request in requests}) > 35
    assert requests[:20] != [make_request(environment, seeds, 6, number) for number in range(20)]


def test_requests_vary_what_is_around_the_output_and_ask_for_metrics_of_runs() -> None:
    seeds = load_seeds("math_with_judge")
    requests = [make_request("math_with_judge", seeds, 7, number) for number in range(2_000)]
    bodies = [body for request in requests for path, body in request["steps"] if path == "/verify"]
    runs = [body for request in requests for path, body in request["steps"] if path == "/aggregate_metrics"]
    assert any("usage" in body["response"] for body in bodies)
    assert any("tools" not in body["response"] for body in bodies)
    assert len({str(body["responses_create_params"]) for body in bodies}) > 20
    assert all(run["verify_responses"] for run in runs)
    assert len(runs) > 3


def test_programs_of_replies_change_and_other_texts_do_not() -> None:
    reply_ = "Here:\n```python\nprint(input())\n```\nDone."
    changed = {mutate_program(reply_, random.Random(seed)) for seed in range(80)}
    assert len(changed) > 40
    assert all(text.startswith("Here:\n```python\n") for text in changed)
    assert mutate_program("no program", random.Random(1)) == "no program"


def test_more_rows_are_read_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mcqa.jsonl").write_text(json.dumps({"expected_answer": "B", "options": []}) + "\n")
    assert load_seeds("mcqa", rows=tmp_path)[-1].outputs[0][0]["content"][0]["text"] == "B"
    assert load_seeds("ruler", rows=tmp_path) == load_seeds("ruler")


def test_sums_of_metrics_may_be_rounded_and_rewards_may_not() -> None:
    one, other = reply(reward=0.1, agent_metrics={"a": 0.1}), reply(reward=0.1, agent_metrics={"a": 0.1 + 1e-15})
    assert find_differences([one], [other]) == {}
    assert find_differences([one], [reply(**{**one["body"], "reward": 0.1 + 1e-15})]).keys() == {"reward"}


def test_outputs_get_other_texts_shapes_and_calls() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "find", "arguments": '{"a": 1}'}
    outputs = [mutate_output([call], random.Random(seed), ["x"]) for seed in range(200)]
    assert any(output and output[0].get("arguments", "").count('"a"') == 2 for output in outputs)
    assert any(output and output[0].get("name") not in ("find", None) for output in outputs)
    assert any(len(output) != 1 for output in outputs)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        *((1, 1.0, True), (True, 1, False), (False, None, False), (float("nan"), float("nan"), True), ("1", 1, False)),
        *(([1, {"a": 2}], [1, {"a": 2.0}], True), ([1], [1, 2], False), ({"a": 1}, {"a": 1, "b": 2}, False)),
        *((2**70, str(2**70), True), (2**70, str(2**70 + 1), False), ("", None, False)),
    ],
)
def test_values_are_compared_as_json(one: Any, other: Any, same: object) -> None:
    assert is_same(one, other) is same


def test_fields_of_the_original_count_and_the_repeated_request_does_not() -> None:
    original = [reply(reward=1.0, extracted_answer="A", response={"id": 1}, unit_tests_time_taken=1.0)]
    assert find_differences(original, [reply(reward=1.0, extracted_answer="A", ours=1)]) == {}
    assert find_differences(original, [reply(reward=0.0, extracted_answer="A")]) == {"reward": (1.0, 0.0)}
    assert find_differences(original, [reply(reward=1.0)]) == {"extracted_answer": ("A", None)}
    assert find_differences(original, [reply(422)])["status"] == (200, 422)


def test_of_judges_calls_the_verdicts_are_compared() -> None:
    original = [reply(reward=1.0, judge_evaluations=[{"verdict_label": "Y", "response": {"id": "a"}}])]
    assert find_differences(original, [reply(reward=1.0, judge_evaluations=[{"verdict_label": "Y"}])]) == {}
    assert "judge_evaluations" in find_differences(original, [reply(reward=1.0, judge_evaluations=[])])


def test_what_the_original_refuses_is_not_compared() -> None:
    assert compare(VERIFY, [reply(422)], [reply(reward=1)]).kind is Kind.REFUSED
    assert compare(VERIFY, [], [reply(reward=1)]).kind is Kind.REFUSED
    assert compare(VERIFY, [reply(reward=1)], [reply(422)]).kind is Kind.DIFFERENT


async def test_a_difference_is_made_smaller_while_it_stays_the_same() -> None:
    part = {"type": "output_text", "text": "a" * 30 + "!" + "b" * 50}
    output = [{"type": "message", "content": [part]}, {"type": "reasoning"}]
    request = {**VERIFY, "settings": {"x": 1}, "steps": [["/verify", {"response": {"output": output}}]]}

    async def check(candidate: dict[str, Any]) -> Comparison:
        differs = "!" in json.dumps(candidate)
        return Comparison(Kind.DIFFERENT, {"reward": (0, 1)}) if differs else Comparison(Kind.EQUAL)

    smallest = await minimise(request, "reward", check)
    assert smallest["settings"] == {}
    assert smallest["steps"][0][1]["response"]["output"] == [{"type": "message", "content": [{**part, "text": "!"}]}]


@settings(max_examples=20)
@given(st.lists(st.sampled_from(list(Kind)), max_size=20))
def test_counts_add_up_and_survive_the_file(kinds: list[Kind]) -> None:
    results = Results(seed=3)
    for kind in kinds:
        results.tally("mcqa").count(Comparison(kind, rule="r" if kind is Kind.BY_DESIGN else None))
    tally = Results.model_validate_json(results.model_dump_json()).tally("mcqa")
    assert tally.next == len(kinds) == tally.refused + tally.compared
    assert tally.compared == tally.equal + sum(tally.by_design.values()) + tally.different


def test_a_run_goes_on_where_its_file_ends(tmp_path: Path) -> None:
    results = Results.load(tmp_path / "new.json")
    results.tally("ruler").count(Comparison(Kind.EQUAL))
    results.save(tmp_path / "new.json")
    assert Results.load(tmp_path / "new.json").tally("ruler").next == 1


def test_the_docs_count_what_is_left_after_a_replay_of_each_seed() -> None:
    results = Results(commit="c", seed=3, cpu_s=90)
    for _ in range(2):
        results.tally("mcqa").count(Comparison(Kind.DIFFERENT))
    left = Difference(environment="mcqa", number=1, signature="reward", request={}, fields={})
    counts = add_counts({}, results.model_copy(update={"differences": [left]}))
    (run,) = counts["runs"]
    assert (counts["commit"], run["seed"], run["cpu_minutes"]) == ("c", 3, 1.5)
    assert (run["environments"]["mcqa"]["different"], run["environments"]["mcqa"]["differing"]) == (2, 1)
    again = add_counts(add_counts(counts, results.model_copy(update={"seed": 4})), results)
    assert [(run["seed"], run["environments"]["mcqa"]["differing"]) for run in again["runs"]] == [(4, 0), (3, 0)]


@pytest.mark.parametrize(
    ("ours", "kind"),
    [
        (["1 [[A=B]]"], Kind.EQUAL),
        (["1 [ [A=B]]"], Kind.BY_DESIGN),
        (["2 [[A=B]]"], Kind.DIFFERENT),
        ([], Kind.DIFFERENT),
    ],
)
def test_what_judges_are_asked_is_compared(ours: list[str], kind: Kind) -> None:
    original = [{**reply(reward=0), "asked": ["1 [[A=B]]"]}]
    assert compare(VERIFY, original, [{**reply(reward=0), "asked": ours}]).kind is kind


def test_a_scripted_judge_notes_its_calls_and_replies_with_texts_or_outputs() -> None:
    script, output = Script(), [{"type": "reasoning", "id": "r", "summary": []}]
    script.load(["yes", output])
    params = {"input": [{"role": "user", "content": "b?"}], "temperature": 0, "top_p": None}
    assert [script.answer(params), script.answer({"input": []})] == ["yes", output]
    asked = script.add_calls([reply(), reply(reward=0)])
    assert asked == [reply(), {**reply(reward=0), "asked": ['[[["user", "b?"]], {"temperature": 0}]', "[[], {}]"]}]
    assert (output_of(output), output_of("yes")[0]["content"][0]["text"]) == (output, "yes")
    script.load([])
    assert script.add_calls([reply()]) == [reply()]


def test_a_judges_failure_here_is_deliberate() -> None:
    request = {**VERIFY, "environment": "text_to_sql"}
    comparison = compare(request, [reply(reward=0)], [reply(reward=0, _ng_failure_class="judge_failed")])
    assert (comparison.kind, comparison.rule) == (Kind.BY_DESIGN, "a judge without a verdict is a failure")
    failed = compare(VERIFY, [reply(reward=0)], [reply(reward=0, _ng_failure_class="verifier_failed")])
    assert failed.kind is Kind.DIFFERENT


@pytest.mark.parametrize(
    ("task", "answer", "ours", "kind"),
    [
        ("sums", "3", {"status": 422, "body": {"detail": "unknown task 'sums'"}}, Kind.BY_DESIGN),
        (
            "countdown",
            "len('abc')",
            {"status": 200, "body": {"reward": 0.0, "extracted_answer": "len('abc')"}},
            Kind.BY_DESIGN,
        ),
        ("countdown", "2+1", {"status": 200, "body": {"reward": 0.0, "extracted_answer": "2+1"}}, Kind.DIFFERENT),
        ("chain_sum", "abc", {"status": 200, "body": {"reward": 0.0, "extracted_answer": "abc"}}, Kind.DIFFERENT),
    ],
    ids=["unknown task", "code", "arithmetic", "other task"],
)
def test_reasoning_gym_refuses_unknown_tasks_and_runs_no_answers(task: str, answer: str, ours: Any, kind: Kind) -> None:
    row = {"metadata": {"source_dataset": task}}
    original = [{"status": 200, "body": {"reward": 1.0, "extracted_answer": answer}}]
    request = {"environment": "reasoning_gym", "steps": [["/verify", row]]}
    assert compare(request, original, [ours]).kind is kind


@pytest.mark.parametrize(
    ("environment", "theirs", "ours", "kind"),
    [
        (
            "mcqa",
            {"reward": 0.0},
            reply(422, detail=[{"loc": ["body", "responses_create_params", "input"]}]),
            Kind.BY_DESIGN,
        ),
        ("mcqa", {"reward": 0.0}, reply(422, detail=[{"loc": ["body", "options"]}]), Kind.DIFFERENT),
        (
            "code_gen",
            {"reward": 0.0},
            reply(422, detail=[{"loc": ["body", "verifier_metadata", "unit_tests"]}]),
            Kind.BY_DESIGN,
        ),
        (
            "code_gen",
            {"extracted_model_output": "x"},
            reply(422, detail=[{"loc": ["body", "unit_tests"]}]),
            Kind.DIFFERENT,
        ),
        ("code_gen", {"reward": 1.0}, reply(reward=0.0, metadata={"error": "No module named 'scipy'"}), Kind.BY_DESIGN),
        ("code_gen", {"reward": 1.0}, reply(reward=0.0, metadata={"error": "No module named 'json'"}), Kind.DIFFERENT),
        (
            "structured_outputs",
            {"error_message": "RecursionError: maximum recursion depth exceeded"},
            reply(error_message="RecursionError: maximum recursion depth exceeded in comparison"),
            Kind.BY_DESIGN,
        ),
        (
            "example_multi_turn_gymnasium",
            {"reward": 0.0},
            reply(422, detail=[{"loc": ["body", "follow_ups", 1], "msg": "Input should be a valid string"}]),
            Kind.BY_DESIGN,
        ),
        (
            "math_with_judge",
            {"reward": 0.0},
            reply(500, detail="env: math-verify did not finish within 10 s"),
            Kind.BY_DESIGN,
        ),
        (
            "genrm_compare",
            {"rewards": [None, 3.0], "metrics": {"mean_individual_score": None}},
            reply(rewards=[3.0, 3.0], metrics={"mean_individual_score": 3.0}),
            Kind.BY_DESIGN,
        ),
        ("genrm_compare", {"rewards": [2.0, 3.0]}, reply(rewards=[3.0, 3.0]), Kind.DIFFERENT),
    ],
)
def test_rules_tell_what_is_deliberate(
    environment: str, theirs: dict[str, Any], ours: dict[str, Any], kind: Kind
) -> None:
    comparison = compare({**VERIFY, "environment": environment}, [reply(**theirs)], [ours])
    assert comparison.kind is kind


def test_a_call_without_a_session_is_refused_on_both_sides_in_other_words() -> None:
    request = {"environment": "workplace_assistant", "steps": [["/email_shred", {}], ["/verify", {}]]}
    theirs, ours = reply(400, detail="Session not initialized."), reply(400, detail="no session is open")
    assert compare(request, [theirs], [ours, reply(reward=0.0)]).kind is Kind.BY_DESIGN
    assert compare(request, [theirs], [reply(200, output="x"), reply(reward=0.0)]).kind is Kind.DIFFERENT


def test_a_program_that_closes_its_output_has_another_error() -> None:
    theirs = [reply(metadata={"error": "Capturing.__enter__.<locals>.<lambda>()"})]
    request = {**VERIFY, "environment": "code_gen"}
    for error, kind in (("I/O operation on closed file", Kind.BY_DESIGN), ("NameError", Kind.DIFFERENT)):
        assert compare(request, theirs, [reply(metadata={"error": error})]).kind is kind


def test_a_step_without_a_reset_is_refused_on_purpose() -> None:
    step = ["/step", {}]
    request = {"environment": "blackjack", "steps": [step]}
    theirs, ours = [reply(reward=1.0)], [reply(400, detail="no session is open")]
    assert compare(request, theirs, ours).kind is Kind.BY_DESIGN
    again = {**request, "steps": [["/reset", {}], step]}
    assert compare(again, [reply(), *theirs], [reply(), *ours]).kind is Kind.DIFFERENT


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([{"agent_name": 5}], Kind.BY_DESIGN),
        ([{"reward": math.nan}], Kind.BY_DESIGN),
        ([{"_ng_rollout_index": 1}, {"_ng_rollout_index": 0}], Kind.BY_DESIGN),
        ([{"_ng_rollout_index": 0}, {"_ng_rollout_index": 1}], Kind.DIFFERENT),
        ([{"agent_name": "a", "reward": 1.0}], Kind.DIFFERENT),
    ],
)
def test_metrics_that_differ_on_purpose(rows: list[dict[str, Any]], kind: Kind) -> None:
    request = {"environment": "mcqa", "steps": [["/aggregate_metrics", {"verify_responses": rows}]]}
    assert compare(request, [reply(agent_metrics={"a": 1.0})], [reply(agent_metrics={"a": 2.0})]).kind is kind


def test_the_name_of_an_error_may_differ_for_json_that_is_nested_deeply() -> None:
    for depth, kind in ((2000, Kind.BY_DESIGN), (20, Kind.DIFFERENT)):
        response = {"output": [{"arguments": "[" * depth}]}
        request = {"environment": "mcqa", "steps": [["/verify", {"response": response}]]}
        assert compare(request, [reply(category="type")], [reply(category="decode")]).kind is kind


def test_the_script_of_a_judge_starts_again_with_each_request() -> None:
    script = Script()
    for _ in range(2):
        script.load(["a", "b"])
        assert [script.answer({}) for _ in range(3)] == ["a", "b", "a"]
    script.load({"Q?": "yes", "*": "no"})
    assert [script.answer({"input": [{"role": "user", "content": text}]}) for text in ("Q?", "other")] == ["yes", "no"]
    script.load({"x | y": "first"})
    assert script.answer({"metadata": {"response_1": "x", "response_2": "y"}}) == "first"


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_forms_of_an_environment_fill_all_their_marks_and_can_be_sent(environment: str) -> None:
    replies = [make_reply(environment, "GOLD", "OTHER", random.Random(seed)) for seed in range(200)]
    judges = [make_judge_reply(environment, random.Random(seed)) for seed in range(200)]
    marks = ("%0", "%1", "%t", "%d", "%n", "%q", "%c", "%e")
    assert not [text for text in (*replies, *judges) if text is not None and any(mark in text for mark in marks)]
    rows = [change_row(environment, {"kwargs": []}, random.Random(seed)) for seed in range(60)]
    assert len({json.dumps(row) for row in rows}) > 1
    assert not [row for row in rows if "kwargs" not in row and "verifier_metadata" not in row]


def test_edits_of_swerl_gen_are_of_lines_that_the_file_has() -> None:
    files = {"a.py": "one\ntwo\nthree\n"}
    replies = [
        make_edit(str(make_reply("swerl_gen", "", "", random.Random(n))), files, random.Random(n)) for n in range(99)
    ]
    assert not [text for text in replies if "%p" in text or "%s" in text or "%r" in text]
    assert any("SEARCH\none\ntwo\n" in text for text in replies)


def test_documents_are_of_all_formats_and_most_schemas_can_be_read() -> None:
    documents = [make_document(random.Random(seed)) for seed in range(300)]
    assert {row["schema_type"] for row, _ in documents} == {"json", "yaml", "xml", "toml", "csv"}
    assert all(isinstance(json.loads(row["schema_str"]), dict) for row, _ in documents)
    assert len({text for _, text in documents}) > 200


def test_there_are_more_than_a_hundred_forms_of_replies_and_rows() -> None:
    replies = sum(len(texts) for texts in (*TEMPLATES.values(), *JUDGE_REPLIES.values()))
    rows = sum(len(values) for fields in ROWS.values() for _, values in fields)
    assert replies > 300
    assert rows > 150
