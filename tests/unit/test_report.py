"""The report without a browser: its numbers, its plots, its escaping, its selection, its terminal form."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
import zlib
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gymnast.errors import DataError, NotFoundError, UserError
from gymnast.profile.run_profile import load_run
from gymnast.report.bins import make_reward_bins, reward_by_tokens
from gymnast.report.build import default_output, summary, write_report
from gymnast.report.markup import Markup, tag
from gymnast.report.payload import make_columns, pack, snippet
from gymnast.report.run_description import describe_setup, format_duration
from gymnast.report.run_setup import IN_MODEL_CALLS, total_seconds
from gymnast.report.run_view import RunView, view_runs
from gymnast.report.safe_text import make_visible, to_one_line
from gymnast.report.scales import Scale, format_percent, format_short, linear_ticks, log_ticks
from gymnast.report.selection import order_rollouts
from gymnast.report.task_rankings import format_column
from gymnast.report.terminal import report_lines
from gymnast.report.token_text import TokenTexts
from gymnast.report.token_view import view_tokens
from gymnast.report.transcript_items import (
    Limits,
    conversation_items,
    decode_record,
    explain_incomplete,
    extract_facts,
    tool_items,
    truncate,
)
from gymnast.report.transcript_text import transcript_lines
from gymnast.report.transcripts import collect_transcripts
from gymnast.store.annotations import Annotation, annotations_path, append_annotation
from gymnast.store.labels import LabelFilter
from gymnast.store.paths import RunPaths
from gymnast.types.task import RolloutKey
from tests.helpers.commands import Outcome
from tests.helpers.report_runs import HOSTILE, failed, grid, hostile_records, record, write_run


def view(folder: Path, records: list[dict[str, Any]], **options: Any) -> RunView:
    return view_runs([write_run(folder, records, **options)])[0]


# --- texts that act --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_never_becomes_markup(text: str) -> None:
    found = tag("p", text, title=text)
    tags = re.findall(r"<[^>]*>", found)
    assert len(tags) == 2
    assert tags[0].startswith('<p title="')
    assert tags[1] == "</p>"


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_a_visible_text_acts_on_a_terminal(text: str) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", make_visible(text))
    assert len(to_one_line(text, 60)) <= 60
    assert "\n" not in to_one_line(text + "\nmore", 60)


def test_signs_say_which_character_was_there() -> None:
    assert make_visible("\x1b[31m\u202e\ud800") == "␛[31m‹U+202E›‹U+D800›"
    assert make_visible("tab\tline\n👩‍👧") == "tab\tline\n👩‍👧"


def test_markup_is_not_escaped_twice() -> None:
    assert tag("b", tag("i", "a & b"), Markup("&lt;"), 1.50, None) == "<b><i>a &amp; b</i>&lt;1.5</b>"


# --- axes and bins ---------------------------------------------------------------------------------------------------


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(2, 8))
def test_ticks_lie_on_the_axis_and_are_few(low: float, length: float, about: int) -> None:
    high = low + length
    ticks = linear_ticks(low, high, about)
    slack = length * 1e-6
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    assert len(ticks) <= 3 * about


@given(st.floats(0.5, 1e5), st.floats(31, 1e6))
def test_logarithmic_ticks_lie_on_the_axis(low: float, factor: float) -> None:
    ticks = log_ticks(low, low * factor)
    assert ticks == sorted(ticks)
    assert all(low <= tick <= low * factor for tick in ticks)
    assert ticks


def test_scales_clip_and_survive_a_range_without_length() -> None:
    assert Scale(0, 1, 10, 110)(2.0) == 110
    assert Scale(3, 3, 10, 110)(3.0) == 60
    assert Scale(1, 100, 0, 100, is_log=True)(10) == pytest.approx(50)


def test_numbers_are_short_and_a_share_is_never_rounded_to_all_or_nothing() -> None:
    assert [format_short(one) for one in (0.25, 12_000, 3_400_000, 2.5e9)] == ["0.25", "12k", "3.4M", "2.5G"]
    assert [format_percent(one) for one in (0.0, 0.0001, 0.5, 0.9999, 1.0)] == ["0%", "<0.1%", "50%", ">99.9%", "100%"]


@given(st.lists(st.one_of(st.floats(-5, 5), st.sampled_from([0.0, 1.0])), min_size=1, max_size=60))
def test_every_reward_is_in_one_bin(rewards: list[float]) -> None:
    values = np.asarray(rewards)
    bins = make_reward_bins([values])
    assert sum(bins.counts(values)) == len(rewards)
    assert len(bins.labels()) == len(bins)
    for value, index in zip(rewards, bins.indices(values).tolist(), strict=True):
        if bins.are_values:
            assert bins.edges[index] == value
        else:
            assert bins.edges[index] <= value <= bins.edges[index + 1] + 1e-9


def test_binary_rewards_have_a_bar_for_each_even_if_none_is_right() -> None:
    assert make_reward_bins([np.zeros(4)]).edges == (0.0, 1.0)


def test_rollouts_of_similar_length_are_put_together(tmp_path: Path) -> None:
    run = view(tmp_path, grid(20, 8))
    found = reward_by_tokens(run.table, run.tokens)
    assert sum(one.rollouts for one in found) == 160
    assert all(one.low <= one.median <= one.high for one in found)
    assert [one.median for one in found] == sorted(one.median for one in found)


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_the_headline_is_the_one_that_profile_prints(tmp_path: Path) -> None:
    output = write_run(tmp_path, grid(9, 4), failures=[failed(3, 4), failed(4, 4, "verifier_error")], missing=[(5, 4)])
    run = view_runs([output])[0]
    paths = RunPaths(output)
    assert run.headline == load_run((paths.materialized_inputs,), (output,), allow_partial=True).headline()
    told = summary(run)
    assert (told["requested"], told["scored"], told["missing"], told["excluded"]) == (39, 36, 1, 0)
    assert told["failed"] == {"model_timeout": 1, "verifier_error": 1}
    assert told["mean_reward"]["value"] == pytest.approx(float(run.rewards.mean()))
    json.dumps(told)


def test_tasks_are_summed_up_one_by_one(tmp_path: Path) -> None:
    rewards = {0: [1.0, 0.0, 0.5], 2: [0.25], 7: [0.0, 0.0]}
    rows = [record(task, at, one, tokens=10 * at) for task, mine in rewards.items() for at, one in enumerate(mine)]
    tasks = view(tmp_path, rows, failures=[failed(9, 0)], missing=[(2, 1)]).tasks
    assert tasks.ids.tolist() == [0, 2, 7, 9]
    assert tasks.expected.tolist() == [3, 2, 2, 1]
    assert tasks.scored.tolist() == [3, 1, 2, 0]
    assert tasks.failed.tolist() == [0, 0, 0, 1]
    assert tasks.mean[:3].tolist() == pytest.approx([0.5, 0.25, 0.0])
    assert tasks.spread[0] == pytest.approx(0.5)
    assert math.isnan(tasks.spread[1])
    assert math.isnan(tasks.mean[3])
    assert tasks.tokens[:3].tolist() == [10, 0, 5]
    assert tasks.low[0] <= tasks.mean[0] <= tasks.high[0]
    assert tasks.most_uncertain(5) == [0]


def test_the_slowest_tasks_go_by_seconds_where_records_have_them(tmp_path: Path) -> None:
    rows = [record(task, 0, 1.0, tokens=100 - task, seconds=float(task)) for task in range(5)]
    assert view(tmp_path, rows).tasks.slowest(2) == [4, 3]
    rows = [record(task, 0, 1.0, tokens=100 - task) for task in range(5)]
    assert view(tmp_path, rows).tasks.slowest(2) == [0, 1]


def test_records_without_a_reward_are_excluded_and_said_to_be(tmp_path: Path) -> None:
    run = view(tmp_path, [*grid(3, 2), record(3, 0, None)])
    assert (run.headline.scored, run.excluded, run.headline.missing) == (6, 1, 0)
    assert "1 records have no reward" in "\n".join(report_lines([run], 80))


# --- which transcripts -----------------------------------------------------------------------------------------------


def test_a_small_run_is_carried_whole(tmp_path: Path) -> None:
    run = view(tmp_path, grid(4, 3), failures=[failed(9, 0)])
    assert len(collect_transcripts(run, io.BytesIO())) == 13


def test_a_selection_has_something_of_every_kind(tmp_path: Path) -> None:
    kinds = ["model_timeout", "verifier_error", "tool_error"]
    run = view(tmp_path, grid(60, 6), failures=[failed(100 + at, 0, kinds[at % 3]) for at in range(30)])
    keys = list(islice(order_rollouts(run), 100))
    assert len(set(keys)) == len(keys) == 100
    failures = {run.loaded.failures.last_kind[key] for key in keys if key in run.loaded.failures.last_kind}
    assert failures == set(kinds)
    rewards = dict(zip(run.table.packed.tolist(), run.rewards.tolist(), strict=True))
    assert {rewards[key] for key in keys if key in rewards} == {0.0, 1.0}
    assert RolloutKey(59, 5).packed in keys  # the longest


def test_no_more_is_carried_than_there_is_room_for(tmp_path: Path) -> None:
    rows = [record(task, 0, 1.0, "".join(chr(97 + (task * at) % 26) for at in range(9000))) for task in range(20)]
    found = collect_transcripts(view(tmp_path, rows), io.BytesIO(), max_bytes=3000)
    assert 0 < len(found) < 20
    assert sum(map(len, found.read_chunks())) == found.size_bytes <= 3000


def test_no_transcript_is_carried_if_none_is_wanted(tmp_path: Path) -> None:
    written = write_report([view(tmp_path, grid(3, 2))], tmp_path / "r.html", limit=0)
    assert written.transcripts == 0


def test_a_few_transcripts_are_of_many_tasks_and_of_both_outcomes(tmp_path: Path) -> None:
    run = view(tmp_path, [record(task, at, float(at == 3)) for task in range(1000) for at in range(8)])
    keys = list(islice(order_rollouts(run), 600))
    tasks = {key >> 32 for key in keys}
    assert len(tasks) >= 200
    assert all(any(low <= task < low + 100 for task in tasks) for low in range(0, 1000, 100))
    rewards = dict(zip(run.table.packed.tolist(), run.rewards.tolist(), strict=True))
    share = sum(rewards[key] for key in keys) / len(keys)
    assert 0.3 < share < 0.7


def test_every_rollout_has_a_place_in_the_order(tmp_path: Path) -> None:
    rows = [*grid(30, 5), record(40, 0, None)]
    run = view(tmp_path, rows, failures=[failed(90 + at, 0, f"kind{at % 2}") for at in range(9)])
    keys = list(order_rollouts(run))
    assert len(keys) == len(set(keys)) == run.total == 160
    assert all(key >> 32 >= 90 for key in keys[:9])  # failures first


def test_transcripts_of_all_rollouts_can_be_asked_for_whatever_their_size(tmp_path: Path) -> None:
    run = view(tmp_path, grid(60, 6))
    assert write_report([run], tmp_path / "r.html", max_bytes=2000).transcripts < 360
    assert write_report([run], tmp_path / "r.html", max_bytes=None).transcripts == 360
    assert write_report([run], tmp_path / "r.html", limit=7, max_bytes=None).transcripts == 7


def test_a_page_has_the_chunks_that_its_index_names(tmp_path: Path) -> None:
    rows = [record(task, at, 1.0, f"{task} {at} " * 4000) for task in range(12) for at in range(2)]
    page = write_report([view(tmp_path, rows)], tmp_path / "r.html").path.read_text()
    blocks = dict(re.findall(r'<script type="text/plain" id="([^"]+)"[^>]*>([^<]*)<', page))
    unpacked = {name: json.loads(zlib.decompress(base64.b64decode(text))) for name, text in blocks.items()}
    places = unpacked["columns-0"]["transcripts"]
    assert len({chunk for own in places.values() for chunk in own.values()}) > 1
    for task, own in places.items():
        for rollout, chunk in own.items():
            block = unpacked[f"chunk-0-{chunk}"]["tasks"][task]
            assert block["rollouts"][rollout]["items"][0]["text"] == f"{task} {rollout} " * 4000
            assert block["prompt"]["prompt"][0]["text"] == "Which one?"


# --- how the run was made --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"duration_s": 2.5}, 2.5),
        ({"elapsed_ms": 2500}, 2.5),
        ({"latency_ms": 2500.0}, 2.5),
        ({"_ng_model_usage": {"calls": 1, "latency_ms": 2500.0}}, 2.5),
        ({"ng_model_call_capture": {"rollout_id": "x", "metrics": {"latency_total_ms": 2500}, "calls": []}}, 2.5),
        ({"duration_s": 2.5, "_ng_model_usage": {"latency_ms": 1.0}}, 2.5),
        ({"_ng_model_usage": {"latency_ms": None}}, None),
        ({"_ng_model_usage": {"latency_ms": "soon"}}, None),
        ({"_ng_model_usage": "free"}, None),
        ({}, None),
    ],
)
def test_durations_are_found_wherever_a_record_has_them(
    tmp_path: Path, fields: dict[str, Any], seconds: float | None
) -> None:
    run = view(tmp_path, [record(task, 0, 1.0, **fields) for task in range(2)])
    assert run.tasks.has_seconds == (seconds is not None)
    if seconds is not None:
        assert run.tasks.seconds.tolist() == [seconds, seconds]


def test_the_response_itself_may_have_the_times(tmp_path: Path) -> None:
    rows = [record(0, 0, 1.0)]
    rows[0]["response"] |= {"created_at": 100.0, "completed_at": 107.5}
    assert view(tmp_path, rows).setup.seconds.tolist() == [7.5]


def test_durations_stay_with_their_rollouts_in_whatever_order_they_were_written(tmp_path: Path) -> None:
    rows = [
        record(task, at, None if task == 3 else 1.0, _ng_model_usage={"latency_ms": 1000.0 * (10 * task + at)})
        for task in (5, 3, 4)
        for at in (2, 0, 1)
    ]
    run = view(tmp_path, rows)
    assert run.setup.seconds.tolist() == [40, 41, 42, 50, 51, 52]
    assert run.tasks.slowest(1) == [len(run.tasks) - 1]


def test_models_and_sampling_are_those_requested_or_else_reported(tmp_path: Path) -> None:
    rows = grid(3, 2)
    for number, row in enumerate(rows):
        row["response"] |= {"model": f"m{number % 2}", "temperature": 1.0, "top_p": 0.5}
        row["responses_create_params"]["temperature"] = 0.2
    told = dict(describe_setup(view(tmp_path, rows)))
    assert told["models"] == "m0 (3), m1 (3)"
    assert told["sampling"] == "temperature 0.2; top-p 0.5"
    assert told["repeats"] == "2 per task"


def test_a_run_without_any_of_it_says_nothing_about_it(tmp_path: Path) -> None:
    run = view(tmp_path, [], failures=[failed(0, 0)])
    assert [name for name, _ in describe_setup(run)] == ["repeats"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0312, "0.0312 s"), (45.68, "45.7 s"), (200, "3 min 20 s"), (120, "2 min"), (7500, "2 h 5 min")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_tokens_on_items_are_shown_as_what_each_prompt_adds() -> None:
    items = [
        {"prompt_token_ids": [1, 2, 3], "generation_token_ids": [4, 5], "generation_log_probs": [-1.0, -0.5]},
        {"type": "function_call_output", "output": "x"},
        {"prompt_token_ids": [1, 2, 3, 4, 5, 6], "generation_token_ids": [7], "generation_log_probs": [math.nan]},
        {"prompt_token_ids": [9], "generation_token_ids": [math.nan], "generation_log_probs": "none"},
    ]
    found = view_tokens({"response": {"output": items}}, TokenTexts(None))
    assert found is not None
    told = [(call["reason"], call["keep"], [part["count"] for part in call["parts"]]) for call in found["calls"]]
    assert told == [("first", 0, [3, 2]), ("extends", 5, [1, 1]), ("does not extend the call before", 0, [1, 1])]
    json.dumps(found, allow_nan=False)


def test_long_prompts_have_only_their_first_and_last_ids() -> None:
    items = [{"prompt_token_ids": list(range(5000)), "generation_token_ids": [1]}]
    found = view_tokens({"response": {"output": items}}, TokenTexts(None))
    assert found is not None
    part = found["calls"][0]["parts"][0]
    assert (part["count"], len(part["ids"]), part["end"][-1]) == (5000, 200, 4999)


@pytest.mark.parametrize(
    "ledger", [7, {"calls": 3}, {"schema_version": 99, "calls": [], "model": "x"}, {"calls": [{}]}]
)
def test_a_broken_ledger_is_a_note(ledger: Any) -> None:
    found = view_tokens({"_ng_token_ledger": ledger}, TokenTexts(None))
    assert found is not None
    assert "ledger" in found["note"]


# --- transcripts -----------------------------------------------------------------------------------------------------


def test_calls_stand_with_what_they_returned() -> None:
    items = [
        {"type": "function_call", "call_id": "a", "name": "add", "arguments": '{"x": 1}'},
        {"type": "function_call", "call_id": "b", "name": "sub", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "b", "output": "late"},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "first"}]},
        {"type": "function_call_output", "call_id": "z", "output": "nobody asked"},
        {"type": "code_interpreter_call", "code": "print(1)", "outputs": [{"type": "logs", "text": "1"}]},
    ]
    found = conversation_items(items, Limits())
    assert [(one["kind"], one.get("name"), one.get("result")) for one in found] == [
        ("call", "add", {"text": "first"}),
        ("call", "sub", {"text": "late"}),
        ("result", None, None),
        ("call", "code_interpreter", {"text": "1"}),
    ]


def test_long_texts_and_long_trajectories_say_what_was_cut() -> None:
    assert truncate("x" * 100, Limits(text=30)) == {"text": "x" * 20, "cut": 70, "rest": "x" * 10}
    items = [{"role": "user", "content": str(number)} for number in range(50)]
    found = conversation_items(items, Limits(items=10))
    assert [one.get("items") for one in found if one["kind"] == "gap"] == [40]
    assert (found[0]["text"], found[-1]["text"]) == ("0", "49")
    long = [{"role": "user", "content": "y" * 20_000} for _ in range(100)]
    kept = conversation_items(long, Limits(total=100_000))
    assert sum(len(one["text"]) + len(one["rest"]) for one in kept) <= 100_000


def test_training_fields_are_left_out() -> None:
    items = conversation_items([{"type": "strange", "generation_token_ids": list(range(99)), "kept": 1}], Limits())
    assert items[0]["text"] == '{"type": "strange", "kept": 1}'


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ],
)
def test_images_are_included_next_to_the_text(part: dict[str, Any]) -> None:
    items = [{"role": "user", "content": [{"type": "input_text", "text": "What is this?"}, part]}]
    found = conversation_items(items, Limits())[0]
    assert (found["text"], found["images"]) == ("What is this?", ["data:image/png;base64,AAAA"])
    large = conversation_items(items, Limits(image=10))[0]
    assert large["text"].startswith("What is this?\n[image")
    assert "images" not in large


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/a.png",
        "data:image/svg+xml;base64,AAAA",
        "data:text/html;base64,AAAA",
        'data:image/png;base64,AAAA"onerror=x',
        "javascript:alert(1)",
    ],
)
def test_an_image_that_is_not_a_picture_in_the_record_is_only_named(url: str) -> None:
    items = conversation_items([{"role": "user", "content": [{"type": "input_image", "image_url": url}]}], Limits())[0]
    assert "images" not in items
    assert items["text"].startswith("[image, ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "text", "output", "call_id", "summary", "name", "x"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(st.lists(JSON, max_size=6))
def test_any_items_become_something_to_read(items: list[Any]) -> None:
    found = conversation_items(items, Limits())
    json.dumps(found, allow_nan=False)
    assert all(isinstance(one.get("text", ""), str) for one in found)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5))
def test_any_record_has_facts_that_json_can_hold(record: dict[str, Any]) -> None:
    json.dumps(extract_facts(record), allow_nan=False)
    json.dumps(snippet(record.get("x")))


PARTS = ("status", "model", "usage", "output", "tools", "metrics", "latency_ms", "created_at", "completed_at", "calls")
FIELDS = ("responses_create_params", "response", "_ng_model_usage", "ng_model_call_capture", "_ng_token_ledger", "x")


@given(
    st.dictionaries(
        st.sampled_from(FIELDS), JSON | st.dictionaries(st.sampled_from(PARTS), JSON, max_size=5), max_size=5
    )
)
def test_any_record_has_a_transcript(record: dict[str, Any]) -> None:
    for source in (None, IN_MODEL_CALLS, "x"):
        json.dumps(total_seconds(record, source), allow_nan=False)
    details = [explain_incomplete(record), tool_items(record, Limits()), view_tokens(record, TokenTexts(None))]
    json.dumps([*details, extract_facts(record)], allow_nan=False)


def test_half_surrogates_and_deep_nesting_are_decoded_or_given_up() -> None:
    assert decode_record(b'{"a": "\\ud800"}') == {"a": "\ud800"}
    assert decode_record(b"[" * 100_000 + b"]" * 100_000) is None
    assert decode_record(b"[1]") is None


# --- the page --------------------------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """Every element and attribute that a browser would see, and the texts of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append((self.found[-1][0] if self.found else "", data))


def elements(path: Path) -> Elements:
    parser = Elements()
    parser.feed(path.read_text())
    return parser


def test_nothing_hostile_is_left_in_the_page(tmp_path: Path) -> None:
    lost = [failed(len(HOSTILE) + at, 0, text[:60] or "x", message=text) for at, text in enumerate(HOSTILE)]
    run = view(tmp_path, hostile_records(), failures=lost, name="<b>run<img src=x onerror=1>")
    page = elements(write_report([run], tmp_path / "r.html").path)
    names = [name for name, _ in page.found]
    assert [one for name, one in page.found if name == "script" and "type" not in one] == [{}]
    assert not {"iframe", "img", "object", "embed", "link", "base", "b"} & set(names)
    for _, attributes in page.found:
        assert not any(key.startswith("on") or key in {"style", "src", "srcdoc", "xlink:href"} for key in attributes)
        assert str(attributes.get("href", "#")).startswith("#")


def test_the_policy_allows_this_script_and_these_styles_and_nothing_else(tmp_path: Path) -> None:
    written = write_report([view(tmp_path, grid(3, 2))], tmp_path / "r.html")
    text = written.path.read_text()
    policy = next(one["content"] for _, one in elements(written.path).found if one.get("http-equiv"))
    assert policy is not None
    assert "default-src 'none'" in policy
    for name, rule in (("script", "script-src"), ("style", "style-src")):
        body = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
        assert len(body) == 1
        digest = base64.b64encode(hashlib.sha256(body[0].encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_data_is_packed_into_signs_without_meaning(tmp_path: Path) -> None:
    run = view(tmp_path, hostile_records())
    text = pack(make_columns(run))
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", text)
    back = json.loads(zlib.decompress(base64.b64decode(text)))
    assert back["ids"] == list(range(len(HOSTILE)))
    assert len(back["rewards"]) == 2 * len(HOSTILE)


def test_the_script_makes_no_markup_from_strings() -> None:
    folder = Path(__file__).parents[2] / "src" / "gymnast" / "report" / "assets"
    for path in folder.glob("*.js"):
        text = path.read_text()
        for sink in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
            "fetch(",
            "DOMParser",
        ):
            assert sink not in text, f"{path.name} uses {sink}"


def test_several_runs_are_drawn_into_one_plot(tmp_path: Path) -> None:
    outputs = [write_run(tmp_path, grid(12, 4, every), name=name) for name, every in (("a", 2), ("b", 3), ("c", 4))]
    runs = view_runs(outputs)
    assert default_output(runs) == tmp_path / "a_and_b_and_c_report.html"
    assert [write_report(runs, tmp_path / "few.html", limit=limit).transcripts for limit in (0, 2, 7)] == [0, 2, 7]
    text = write_report(runs, tmp_path / "r.html").path.read_text()
    for number in range(3):
        assert f'class="curve run-{number}"' in text
        assert f'id="columns-{number}"' in text


def test_runs_of_one_name_are_distinguished_by_their_folders(tmp_path: Path) -> None:
    outputs = []
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        outputs.append(write_run(tmp_path / name, grid(2, 2)))
    assert [run.name for run in view_runs(outputs)] == ["x/run", "y/run"]


# --- runs of every sort ----------------------------------------------------------------------------------------------

ODD: dict[str, Callable[[Path], Path]] = {
    "nothing scored": lambda folder: write_run(folder, [], failures=[failed(0, 0)], missing=[(1, 0)]),
    "an empty file": lambda folder: write_run(folder, [], failures=None, inputs=False),
    "one rollout": lambda folder: write_run(folder, [record(0, 0, 1.0)]),
    "one fractional rollout": lambda folder: write_run(folder, [record(0, 0, 0.3)]),
    "no usage": lambda folder: write_run(folder, [record(task, 0, 1.0, tokens=None) for task in range(3)]),
    "some usage": lambda folder: write_run(folder, [record(task, 0, 1.0, tokens=task or None) for task in range(9)]),
    "no inputs, no failures": lambda folder: write_run(folder, grid(3, 3), failures=None, inputs=False),
    "fractional rewards": lambda folder: write_run(
        folder, [record(task, at, task * 0.013 + at * 0.11) for task in range(40) for at in range(3)]
    ),
    "negative and large rewards": lambda folder: write_run(
        folder, [record(task, at, (task - 20) * 1.7 + at) for task in range(40) for at in range(2)]
    ),
    "the same reward": lambda folder: write_run(folder, [record(task, 0, -2.5) for task in range(4)]),
    "no reward at all": lambda folder: write_run(folder, [record(task, 0, None) for task in range(3)]),
    "two agents": lambda folder: write_run(
        folder, [record(task, at, 1.0, agent=f"a{task % 2}") for task in range(4) for at in range(2)]
    ),
    "hostile": lambda folder: write_run(folder, hostile_records()),
    "large indexes": lambda folder: write_run(folder, [record(10**6 + task, 5, 0.0) for task in range(3)]),
    "many tasks": lambda folder: write_run(folder, grid(700, 2)),
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD.keys())
def test_every_sort_of_run_has_a_report(make: Callable[[Path], Path], tmp_path: Path) -> None:
    run = view_runs([make(tmp_path)])[0]
    written = write_report([run], tmp_path / "r.html")
    text = written.path.read_text()
    shown = re.sub(r"<(script|style)>.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r'="[^"]*\b(nan|inf)\b', shown)
    assert "Nothing was scored" in text or len(run.rewards)
    for width in (80, 60):
        lines = list(report_lines([run], width))
        assert max(cell_len(line) for line in lines) <= width, lines
        assert not re.search("[\x00-\x1f\x7f-\x9f]", "".join(lines))


def test_inputs_and_rollouts_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    output = write_run(tmp_path, grid(3, 2))
    with output.open("a") as more:
        more.write(json.dumps(record(77, 0, 1.0)) + "\n")
    with pytest.raises(DataError, match="never requested: 77:0"):
        view_runs([output])


def test_a_report_never_takes_the_place_of_a_run(tmp_path: Path) -> None:
    run = view(tmp_path, grid(2, 2))
    before = run.paths.output.read_bytes()
    for taken in (run.paths.output, run.paths.failures, tmp_path):
        with pytest.raises(UserError, match="cannot write the report here"):
            write_report([run], taken)
    assert run.paths.output.read_bytes() == before


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_writes_a_report_next_to_the_run(invoke: Callable[..., Outcome], tmp_path: Path) -> None:
    write_run(tmp_path, grid(5, 3), failures=[failed(9, 0)])
    done = invoke("gymnast", "report", "run.jsonl")
    assert done.code == 0, done.err
    assert "15 scored, 1 failed, 0 excluded, 0 missing" in done.out
    assert (tmp_path / "run_report.html").stat().st_size > 10_000
    data = invoke("gymnast", "report", "run.jsonl", "--json", "-o", "here.html", "--transcripts", "2").json()
    assert data["report"] == "here.html"
    assert data["runs"][0]["pass_at"][0]["k"] == 1
    assert (data["transcripts"], data["rollouts"]) == (2, 16)
    assert invoke("gymnast", "report", "run.jsonl", "--json", "--transcripts", "all").json()["transcripts"] == 16


def test_the_terminal_form_fits_80_columns_in_a_pipe(invoke: Callable[..., Outcome], tmp_path: Path) -> None:
    write_run(tmp_path, grid(50, 4), failures=[failed(90, 0)])
    done = invoke("gymnast", "report", "run.jsonl", "--terminal", env={"COLUMNS": "200"})
    assert done.code == 0, done.err
    assert max(map(cell_len, done.out.splitlines())) <= 80
    for part in ("rewards", "pass rate per task", "pass@k", "model_timeout", "most uncertain tasks", "█"):
        assert part in done.out
    assert not list(tmp_path.glob("*.html"))


def test_an_output_that_knows_only_ascii_is_not_a_crash(invoke: Callable[..., Outcome], tmp_path: Path) -> None:
    write_run(tmp_path, grid(4, 2))
    done = invoke("gymnast", "report", "run.jsonl", "--terminal", encoding="ascii")
    assert done.code == 0, done.err
    assert "pass@k" in done.out


def test_the_transcript_of_any_rollout_can_be_printed(invoke: Callable[..., Outcome], tmp_path: Path) -> None:
    write_run(tmp_path, grid(3, 2), failures=[failed(9, 1, body="<b>\x1b[31m")])
    shown = invoke("gymnast", "report", "run.jsonl", "--show", "2:1")
    assert shown.code == 0, shown.err
    assert shown.out.startswith("task 2, rollout 1: reward 1.0\n")
    assert "The answer is B." in shown.out
    lost = invoke("gymnast", "report", "run.jsonl", "--show", "9:1")
    assert "failed (model_timeout)" in lost.out
    assert "body: <b>␛[31m" in lost.out
    assert invoke("gymnast", "report", "run.jsonl", "--show", "8:0").code == 2
    assert invoke("gymnast", "report", "run.jsonl", "--show", "here").code == 2


def test_every_hostile_transcript_can_be_printed(tmp_path: Path) -> None:
    paths = RunPaths(write_run(tmp_path, hostile_records()))
    for task in range(len(HOSTILE)):
        text = "\n".join(transcript_lines(paths, RolloutKey(task, 0)))
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("nowhere.jsonl",), 2, "there is no run 'nowhere.jsonl'"),
        (("run.jsonl", "-o", "run.jsonl"), 2, "this is a file of the run"),
        (("run.jsonl", "--terminal", "--json"), 2, "--terminal"),
        (("run.jsonl", "--transcripts", "many"), 2, "expected a number or 'all', got 'many'"),
        (("run.jsonl", "run.jsonl", "--show", "1:1"), 2, "one run"),
        ((), 2, "RUN"),
    ],
)
def test_mistakes_are_reported(
    invoke: Callable[..., Outcome], tmp_path: Path, arguments: tuple[str, ...], code: int, text: str
) -> None:
    write_run(tmp_path, grid(2, 2))
    done = invoke("gymnast", "report", *arguments)
    assert done.code == code
    assert text in done.err


def test_a_missing_run_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        view_runs([tmp_path / "x.jsonl"])


def test_assets_are_part_of_the_package() -> None:
    from importlib import resources

    names = {one.name for one in resources.files("gymnast.report").joinpath("assets").iterdir()}
    assert {"page.html", "page.css", "main.js"} <= names


def test_labels_choose_the_rollouts_of_a_report(tmp_path: Path) -> None:
    output = write_run(tmp_path, grid(4, 4), failures=[failed(1, 7), failed(9, 0)])
    for task, rollout, label in ((1, None, "bad task"), (0, 0, "reward hack"), (1, 1, "good")):
        append_annotation(annotations_path(output), Annotation(task=task, rollout=rollout, label=label))
    run = view_runs([output], LabelFilter(excluded=("bad task", "reward hack")))[0]
    assert sorted(run.table.packed.tolist()) == sorted(
        (task << 32) | rollout
        for task in range(4)
        for rollout in range(4)
        if (task, rollout) != (0, 0) and (task != 1 or rollout == 1)
    )
    assert (run.headline.requested, run.headline.missing, run.failed) == (13, 0, 1)
    assert dict(run.loaded.failures.attempts) == {"model_timeout": 1}
    note = "  note: Labels choose only rollouts without the label 'bad task' or 'reward hack'; 4 records are left out."
    assert note in list(report_lines([run], 200))
    assert {key >> 32 for key in order_rollouts(run)} == {0, 1, 2, 3, 9}
    only = view_runs([output], LabelFilter(wanted=("reward hack",)))[0]
    assert only.table.packed.tolist() == [0]
    with pytest.raises(UserError, match="no rollout or task has the label 'bod'"):
        view_runs([output], LabelFilter(wanted=("bod",)))


def choices_record(*texts: list[tuple[str, float]], **ids: Any) -> dict[str, Any]:
    """A record whose output texts have logprobs, each token with itself and one alternative."""
    own = record(0, 0, 1.0)
    message = own["response"]["output"][0]
    message["content"] = [
        {
            "type": "output_text",
            "text": "".join(token for token, _ in text),
            "logprobs": [
                {"token": token, "logprob": value, "top_logprobs": [{"token": token, "logprob": value}, {"token": "x"}]}
                for token, value in text
            ],
        }
        for text in texts
    ]
    message.update(ids)
    return own


def test_tokens_have_their_alternatives_where_records_name_them() -> None:
    text = [("a", -0.25), ("b", -1.5)]
    view = view_tokens(choices_record(text), TokenTexts(None), with_choices=True)
    assert view is not None
    part = view["calls"][0]["parts"][0]
    assert part["words"] == ["a", "b"]
    assert part["alternatives"][1] == [("b", -1.5), ("x", None)]
    assert view_tokens(choices_record(text), TokenTexts(None)) is None, "a report stays small"
    ids = {"prompt_token_ids": [1], "generation_token_ids": [5, 6, 7, 8]}
    with_ids = choices_record(text, **ids, generation_log_probs=[-0.25, -0.25, -1.5, -0.125])
    view = view_tokens(with_ids, TokenTexts(None), with_choices=True)
    assert view is not None
    found = view["calls"][0]["parts"][1]["alternatives"]
    assert [own is not None for own in found] == [False, True, True, False], "found by their logprobs, in order"
    other = choices_record(text, **ids, generation_log_probs=[-1.0, -1.0, -1.0, -1.0])
    view = view_tokens(other, TokenTexts(None), with_choices=True)
    assert view is not None
    assert "alternatives" not in view["calls"][0]["parts"][1], "alternatives of other tokens are not shown"


@pytest.mark.parametrize(
    "logprobs",
    [7, "x", [None, 3, {}], [{"token": 5, "logprob": "x", "top_logprobs": 3}], [{"top_logprobs": [1, None]}]],
)
def test_odd_logprobs_break_nothing(logprobs: Any) -> None:
    own = record(0, 0, 1.0)
    own["response"]["output"][0]["content"][0]["logprobs"] = logprobs
    view = view_tokens(own, TokenTexts(None), with_choices=True)
    assert view is None or view["calls"][0]["parts"][0]["count"] == len(view["calls"][0]["parts"][0]["ids"])


def test_long_texts_keep_the_alternatives_of_their_ends() -> None:
    text = [(str(number), -number / 8) for number in range(50)]
    view = view_tokens(choices_record(text), TokenTexts(None), 10, with_choices=True)
    assert view is not None
    part = view["calls"][0]["parts"][0]
    assert (part["words"], part["end_words"]) == ([*"01234"], ["45", "46", "47", "48", "49"])
    assert part["end_alternatives"][-1][0] == ("49", -6.125)


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([38.4, 29.0, 4.06], ["38.4", "29.0", "4.1"]),
        ([0.535, 0.5], ["0.535", "0.500"]),
        ([1234.5, 3.0], ["1,234", "3"]),
        ([3.0, 1.0], ["3", "1"]),
        ([float("nan"), 2.0], ["–", "2"]),
        ([], []),
    ],
)
def test_the_numbers_of_a_column_have_the_same_decimals(values: list[float], texts: list[str]) -> None:
    assert format_column(values) == texts
