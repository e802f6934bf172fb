"""The studio as people use it, in a real browser: runs, tables, transcripts, labels, comparison, a run that goes on.

Needs Debian's chromium (`apt-get install chromium`) and is skipped where there is none.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import gymnast.studio as studio_package
from tests.helpers.commands import BIN, SCRIPTED
from tests.helpers.parts import needs
from tests.helpers.report_runs import failed, record, write_run
from tests.helpers.studio_browser import Studio, browsing, serving_files, viewing
from tests.helpers.waiting import wait_until

pytestmark = needs("chromium")
CALL = {"type": "function_call", "call_id": "c", "name": "calculator", "arguments": '{"expression": "17 + 4"}'}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "21"}
THOUGHT = {"type": "reasoning", "id": "t", "summary": [{"type": "summary_text", "text": "Seventeen plus four."}]}
ANSWER = """## Sum

It is **21**, that is $\\frac{42}{2}$:

```python
print(17 + 4)
```

| a | b |
|---|---|
| 17 | 4 |
"""
A, B = "sweep/baseline", "sweep/candidate"


def rows_of(shift: int) -> list[dict[str, Any]]:
    return [
        record(
            task,
            rollout,
            float((task + rollout + shift) % 3 == 0 or (shift == 1 and task % 2 == 0)),
            ANSWER if task == 3 else f"The answer is {task}.",
            tokens=10 + 7 * task + rollout,
            items=[THOUGHT, CALL, RESULT] if task == 3 else None,
            prompt=f"What is 17 plus {task}? Take your time, zebra." if task == 5 else f"What is 17 plus {task}?",
            level=task % 4,
        )
        for task in range(30)
        for rollout in range(4)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    (root / "sweep").mkdir()
    write_run(root / "sweep", rows_of(0), name="baseline", failures=[failed(40, 0), failed(41, 1, "verifier_error")])
    write_run(root / "sweep", rows_of(1), name="candidate")
    write_run(root, rows_of(2)[:8], name="small")
    return root


@pytest.fixture(scope="module")
def live(folder: Path) -> Iterator[None]:
    """A scripted run that outlasts the tests."""
    policy = "policy_model.responses_api_models.scripted_model"
    arguments = ["-e", "mcqa", "-i", "resources_servers/mcqa/data/example.jsonl", "-o", "live.jsonl", "-c", SCRIPTED]
    settings = [f'++{policy}.replies=["\\\\boxed{{A}}"]', f"++{policy}.latency_s=2", "-n", "5000", "--concurrency", "4"]
    process = subprocess.Popen(
        [str(BIN / "gymnast"), "collect", *arguments, *settings],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until((folder / "live.sock").exists)
    yield
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with viewing(folder) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing() as context:
        yield context


@pytest.fixture(scope="module")
def shared(browser: Any, url: str) -> Studio:
    return Studio(browser.new_page(), url)


@pytest.fixture
def studio(shared: Studio) -> Iterator[Studio]:
    """The page that all flows share; each must leave it without a misdeed."""
    shared.page.set_viewport_size({"width": 1360, "height": 900})
    yield shared
    shared.behaves()


def test_the_first_page_is_small_and_loads_its_modules_at_once() -> None:
    web = Path(studio_package.__file__).parent / "web"
    page = (web / "index.html").read_text()
    for module in web.glob("*.js"):
        assert f'"web/{module.name}"' in page
    assert len(gzip.compress(b"".join(path.read_bytes() for path in web.iterdir()))) < 100_000


# The table of runs.


def test_all_runs_below_the_folder_are_listed(studio: Studio) -> None:
    studio.go("runs")
    expect(studio.rows()).to_have_count(3)
    expect(studio.at("main")).to_contain_text(A)
    assert "token" not in studio.page.url


def test_a_filter_on_runs_is_in_the_address(studio: Studio) -> None:
    studio.go("runs")
    studio.at("input[type=search]").fill("candid")
    expect(studio.rows()).to_have_count(1)
    assert "q=candid" in studio.hash()
    studio.at("input[type=search]").fill("nothing like it")
    expect(studio.at("tr.none")).to_contain_text("No run matches")


def test_runs_are_sorted_by_a_click_on_a_column(studio: Studio) -> None:
    studio.go("runs")
    studio.at("th button", has_text="Run").click()
    expect(studio.at("th[aria-sort=ascending]")).to_contain_text("Run")
    first = studio.rows().first.inner_text()
    studio.at("th button", has_text="Run").click()
    expect(studio.at("th[aria-sort=descending]")).to_contain_text("Run")
    assert studio.rows().first.inner_text() != first


def test_several_runs_are_selected_to_compare(studio: Studio) -> None:
    studio.go("runs", q="sweep")
    studio.page.get_by_label(f"Select {A}").check()
    expect(studio.at(".selection-bar")).to_contain_text("Select one more")
    studio.page.get_by_label(f"Select {B}").check()
    studio.at(".selection-bar a", has_text="Compare").click()
    expect(studio.at("h1")).to_have_text("Compare 2 runs")


def test_a_run_that_appears_and_goes_is_followed_without_a_reload(studio: Studio, folder: Path) -> None:
    studio.go("runs")
    late = write_run(folder, rows_of(0)[:4], name="late")
    expect(studio.at("main")).to_contain_text("late")
    for path in folder.glob("late*"):
        path.unlink()
    assert not late.exists()
    expect(studio.at("main .row-link", has_text="late")).to_have_count(0)


# One run.


def test_a_run_opens_with_its_headline_and_plots(studio: Studio) -> None:
    studio.go("runs", q="baseline")
    studio.at(".row-link").click()
    expect(studio.at("h1")).to_have_text(A)
    expect(studio.at(".cards .hero")).to_contain_text("95% interval")
    titles = studio.at("figure h3")
    expect(titles.filter(has_text="Rewards")).to_have_count(1)
    expect(titles.filter(has_text="pass@k")).to_have_count(1)


def test_a_bar_of_a_plot_opens_its_rollouts(studio: Studio) -> None:
    studio.go("run", run=A)
    studio.at("figure", has_text="Rewards").locator("svg a").last.click()
    expect(studio.at("h1")).to_have_text(A)
    expect(studio.at(".chip")).to_contain_text("reward")
    expect(studio.rows()).to_have_count(40)


def test_the_values_under_the_pointer_are_shown(studio: Studio) -> None:
    studio.go("run", run=A)
    studio.at("figure", has_text="pass@k").locator("svg").hover()
    expect(studio.at("figure", has_text="pass@k").locator(".plot-tip")).to_be_visible()


def test_tabs_lead_through_a_run(studio: Studio) -> None:
    studio.go("run", run=A)
    for tab in ("Tasks", "Rollouts", "Diagnosis", "Overview"):
        studio.at(".tabs a", has_text=tab).click()
        expect(studio.at(".tabs a[aria-current]")).to_contain_text(tab)
    expect(studio.at("#crumbs")).to_contain_text(A)


def test_findings_link_to_the_rollouts_that_are_their_evidence(studio: Studio) -> None:
    studio.go("doctor", run=A)
    expect(studio.at(".finding").first).to_be_visible()
    studio.at(".finding .chip", has_text="40:0").first.click()
    expect(studio.at("h1")).to_have_text("Task 40, rollout 0")
    expect(studio.at(".turn.failure")).to_contain_text("model_timeout")


def test_a_run_that_is_not_there_is_reported_in_place(studio: Studio) -> None:
    studio.expected = ("Failed to load resource",)
    studio.go("run", run="nowhere/at all")
    expect(studio.at("h1")).to_have_text("Not found")
    studio.at(".state-page a", has_text="All runs").click()
    expect(studio.at("h1")).to_have_text("Runs")
    studio.expected = ()


def test_a_run_removed_while_one_looks_keeps_its_page(studio: Studio, folder: Path) -> None:
    write_run(folder, rows_of(0)[:8], name="doomed")
    studio.go("runs")
    studio.at(".row-link", has_text="doomed").click()
    expect(studio.at(".cards .hero")).to_be_visible()
    studio.expected = ("Failed to load resource",)
    for path in folder.glob("doomed*"):
        path.unlink()
    expect(studio.at(".notice", has_text="was removed")).to_be_visible()
    expect(studio.at(".cards .hero")).to_be_visible()
    studio.go("runs")
    studio.expected = ()


def test_a_page_that_does_not_exist_says_so(studio: Studio) -> None:
    studio.page.evaluate("location.hash = '#/no-such-page'")
    expect(studio.at("h1")).to_have_text("No such page")


# Tables of tasks and rollouts.


def test_the_first_page_of_rollouts_and_the_next(studio: Studio) -> None:
    studio.go("rollouts", run=A)
    expect(studio.rows()).to_have_count(50)
    expect(studio.at(".pager")).to_contain_text("1–50 of 122")
    studio.page.get_by_label("Next page").click()
    expect(studio.at(".pager")).to_contain_text("51–100 of 122")
    assert "page=1" in studio.hash()


def test_full_text_search_marks_what_it_found(studio: Studio) -> None:
    studio.go("rollouts", run=A)
    studio.page.keyboard.press("/")
    studio.page.keyboard.type("zebra")
    expect(studio.rows()).to_have_count(4)
    expect(studio.at("mark").first).to_have_text("zebra")
    assert "q=zebra" in studio.hash()


def test_search_reaches_tool_calls(studio: Studio) -> None:
    studio.go("rollouts", run=A, q="calculator")
    expect(studio.rows()).to_have_count(4)


def test_quick_filters(studio: Studio) -> None:
    studio.go("rollouts", run=A)
    studio.at("[aria-label='Quick filters'] button", has_text="Failed").click()
    expect(studio.rows()).to_have_count(2)
    expect(studio.at("main table")).to_contain_text("verifier_error")
    studio.at("button", has_text="Clear all").click()
    expect(studio.rows()).to_have_count(50)


def test_a_filter_on_any_field_of_the_record(studio: Studio) -> None:
    studio.go("rollouts", run=A)
    studio.at("summary", has_text="Filter").click()
    studio.page.get_by_label("Field").select_option("level")
    studio.page.get_by_label("Condition").select_option(">=")
    field = studio.page.get_by_label("Value")
    (field.select_option if field.evaluate("node => node.localName") == "select" else field.fill)("3")
    studio.at("button", has_text="Add filter").click()
    expect(studio.at(".chip")).to_contain_text("level ≥ 3")
    expect(studio.at(".pager")).to_contain_text("of 28")
    studio.at(".chip button").click()
    expect(studio.at(".pager")).to_contain_text("of 122")


def test_rollouts_are_sorted_by_tokens(studio: Studio) -> None:
    studio.go("rollouts", run=A, sort="-output_tokens")
    expect(studio.rows().first).to_contain_text("29")
    expect(studio.at("th[aria-sort=descending]")).to_have_count(1)


def test_columns_are_chosen_and_stay_in_the_address(studio: Studio) -> None:
    studio.go("rollouts", run=A)
    studio.at("summary", has_text="Columns").click()
    studio.at("details.menu label", has_text="Agent").locator("input").uncheck()
    expect(studio.at("thead th", has_text="Agent")).to_have_count(0)
    assert "columns=" in studio.hash()


def test_what_is_shown_is_downloaded(studio: Studio) -> None:
    studio.go("rollouts", run=A, q="zebra")
    studio.at("summary", has_text="Download").click()
    with studio.page.expect_download() as download:
        studio.at("details.menu a", has_text="CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert len(lines) == 1 + 4
    assert "reward" in lines[0]


def test_a_link_shows_a_colleague_the_same_view(studio: Studio, browser: Any, url: str) -> None:
    studio.go("rollouts", run=A, q="plus 7", sort="-reward", f="reward>=0")
    shown = studio.rows().first.inner_text()
    other = Studio(browser.new_page(), url + studio.hash())
    expect(other.rows().first).to_have_text(shown, use_inner_text=True)
    other.behaves()
    other.page.close()


def test_tasks_show_their_rewards_and_are_filtered(studio: Studio) -> None:
    studio.go("tasks", run=A)
    expect(studio.rows().first.locator(".strip i")).to_have_count(4)
    studio.at("button", has_text="With failures").click()
    expect(studio.rows()).to_have_count(2)


def test_a_task_lists_its_rollouts_and_prompt(studio: Studio) -> None:
    studio.go("tasks", run=A)
    studio.at(".row-link", has_text="5").first.click()
    expect(studio.at("h1")).to_have_text("Task 5")
    expect(studio.rows()).to_have_count(4)
    expect(studio.at(".turn.user")).to_contain_text("zebra")


def test_rows_are_walked_with_j_and_k_and_opened_with_enter(studio: Studio) -> None:
    studio.go("rollouts", run=A)
    for key in "jjjk":
        studio.page.keyboard.press(key)
    expect(studio.rows().nth(1).locator(".row-link")).to_be_focused()
    studio.page.keyboard.press("Enter")
    expect(studio.at("h1")).to_have_text("Task 0, rollout 1")


# A rollout.


def test_a_transcript_has_reasoning_tool_calls_and_a_rendered_answer(studio: Studio) -> None:
    studio.go("rollout", run=A, task=3, rollout=1)
    expect(studio.at(".turn.reasoning")).to_contain_text("Seventeen plus four.")
    expect(studio.at(".turn.call")).to_contain_text("calculator")
    expect(studio.at(".turn.call .text").last).to_have_text("21")
    answer = studio.at(".turn.assistant")
    expect(answer.locator("h4")).to_have_text("Sum")
    expect(answer.locator("strong")).to_have_text("21")
    expect(answer.locator("mfrac")).to_have_count(1)
    expect(answer.locator("pre code")).to_have_text("print(17 + 4)")
    expect(answer.locator("table td")).to_have_count(2)


def test_raw_text_on_a_key(studio: Studio) -> None:
    studio.go("rollout", run=A, task=3, rollout=1)
    studio.page.keyboard.press("r")
    expect(studio.at(".turn.assistant .text")).to_contain_text("It is **21**")
    studio.page.keyboard.press("r")
    expect(studio.at(".turn.assistant strong")).to_have_text("21")


def test_next_and_previous_rollout_on_keys(studio: Studio) -> None:
    studio.page.evaluate("sessionStorage.clear()")
    studio.go("rollout", run=A, task=3, rollout=1)
    studio.page.keyboard.press("n")
    expect(studio.at("h1")).to_have_text("Task 3, rollout 2")
    studio.page.keyboard.press("p")
    expect(studio.at("h1")).to_have_text("Task 3, rollout 1")


def test_n_walks_through_the_filtered_list(studio: Studio) -> None:
    studio.go("rollouts", run=A, f=["rollout=2", "reward=1"])
    keys = [row.inner_text().split()[0] for row in studio.rows().all()[:2]]
    studio.rows().first.locator(".row-link").click()
    expect(studio.at(".page-head .meta")).to_contain_text("in the list")
    studio.page.keyboard.press("n")
    expect(studio.at("h1")).to_have_text(f"Task {keys[1]}, rollout 2")


def test_items_are_walked_with_j(studio: Studio) -> None:
    studio.go("rollout", run=A, task=3, rollout=0)
    studio.page.keyboard.press("j")
    studio.page.keyboard.press("j")
    expect(studio.at(".turn.current")).to_have_count(1)


def test_the_raw_record_is_shown(studio: Studio) -> None:
    studio.go("rollout", run=A, task=3, rollout=0)
    studio.at(".tabs a", has_text="Raw JSON").click()
    text = studio.at("pre.raw")
    expect(text).to_contain_text('"_ng_task_index": 3')
    json.loads(text.inner_text())


def test_a_rollout_without_token_ids_says_so(studio: Studio) -> None:
    studio.go("rollout", run=A, task=3, rollout=0, view="tokens")
    expect(studio.at(".reader")).to_contain_text("no token ids")


def test_find_in_a_transcript_counts_hits(studio: Studio) -> None:
    studio.go("rollout", run=A, task=3, rollout=0)
    studio.page.get_by_label("Find in this transcript").fill("seventeen")
    expect(studio.at(".filters [role=status]")).to_have_text("1 hit")


def test_everything_folds_and_unfolds(studio: Studio) -> None:
    studio.go("rollout", run=A, task=3, rollout=0)
    studio.at("button", has_text="Fold").click()
    expect(studio.at("details.turn[open]")).to_have_count(0)
    studio.at("button", has_text="Unfold").click()
    expect(studio.at("details.turn[open]")).to_have_count(2)


def test_a_rollout_that_is_not_on_record_says_so(studio: Studio) -> None:
    studio.expected = ("Failed to load resource",)
    studio.go("rollout", run=A, task=999, rollout=0)
    expect(studio.at("main")).to_contain_text("999")
    studio.expected = ()


def test_two_rollouts_side_by_side(studio: Studio) -> None:
    studio.go("rollout", run=A, task=3, rollout=0)
    studio.at("summary", has_text="Side by side").click()
    studio.at("details.menu a", has_text="rollout 2").click()
    expect(studio.at(".side-by-side > section")).to_have_count(2)
    expect(studio.at("main")).to_contain_text("the same, item by item")


# Labels.


def test_a_label_and_a_note_are_kept_in_a_file_and_filtered_by(studio: Studio, folder: Path) -> None:
    studio.go("rollout", run=B, task=2, rollout=1)
    studio.at(".labels button", has_text="reward hack").click()
    expect(studio.at(".labels button[aria-pressed=true]")).to_have_text("reward hack")
    studio.page.get_by_label("Note", exact=True).fill("prints the <b>expected</b> answer")
    studio.at("button", has_text="Save note").click()
    expect(studio.at(".saved")).to_contain_text("Saved")
    kept = [json.loads(line) for line in (folder / "sweep" / "candidate_annotations.jsonl").read_text().splitlines()]
    assert (kept[-1]["label"], kept[-1]["note"]) == ("reward hack", "prints the <b>expected</b> answer")
    studio.go("rollouts", run=B, f="label=reward hack")
    expect(studio.rows()).to_have_count(1)
    expect(studio.at("td .badge", has_text="reward hack")).to_be_visible()


def test_a_label_is_taken_back_by_a_second_click(studio: Studio) -> None:
    studio.go("rollout", run=B, task=4, rollout=0)
    good = studio.at(".labels button", has_text=re.compile("^good$"))
    good.click()
    expect(good).to_have_attribute("aria-pressed", "true")
    good.click()
    expect(good).to_have_attribute("aria-pressed", "false")


def test_a_task_gets_a_label_of_its_own(studio: Studio) -> None:
    studio.go("task", run=B, task=6)
    studio.at(".labels button", has_text="bad task").click()
    expect(studio.at(".labels button[aria-pressed=true]")).to_have_text("bad task")
    studio.go("tasks", run=B, f="label=bad task")
    expect(studio.rows()).to_have_count(1)


# Comparison.


def test_a_comparison_ends_in_a_sentence_and_shows_both_transcripts(studio: Studio) -> None:
    studio.go("compare", run=[A, B])
    expect(studio.at(".sentence")).to_contain_text(re.compile("better|difference", re.IGNORECASE))
    expect(studio.at(".legend", has_text="wins")).to_be_visible()
    sizes = [abs(float(text.replace("−", "-"))) for text in studio.at("td .good, td .bad").all_inner_texts()]
    assert sizes == sorted(sizes, reverse=True)
    studio.rows().first.locator(".row-link").click()
    expect(studio.at(".side-by-side > section")).to_have_count(2)
    expect(studio.at(".side-by-side")).to_contain_text(B)


def test_a_comparison_is_swapped(studio: Studio) -> None:
    studio.go("compare", run=[A, B])
    studio.at("a.button", has_text="Swap").click()
    expect(studio.at(".run-key").first).to_contain_text(B)


def test_what_to_compare_with_is_chosen_from_a_list(studio: Studio) -> None:
    studio.go("compare", run=A)
    studio.at(".row-link", has_text=B).click()
    expect(studio.at(".sentence")).to_be_visible()


# Everywhere.


def test_the_list_of_keys(studio: Studio) -> None:
    studio.go("runs")
    studio.page.keyboard.press("?")
    expect(studio.at("dialog")).to_contain_text("Next or previous rollout")
    studio.at("dialog button", has_text="Close").click()
    expect(studio.at("dialog")).to_have_count(0)


def test_light_and_dark_are_remembered(studio: Studio) -> None:
    studio.go("runs")
    studio.at("#theme").click()
    expect(studio.at("html")).to_have_class(re.compile("dark"))
    ground = studio.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(15, 18, 22)"
    studio.at("#theme").click()
    expect(studio.at("html")).to_have_class(re.compile("light"))


@pytest.mark.parametrize("width", [390, 1360])
def test_no_page_is_wider_than_the_screen(studio: Studio, width: int) -> None:
    studio.page.set_viewport_size({"width": width, "height": 844})
    pages: list[tuple[str, dict[str, Any]]] = [
        ("runs", {}),
        ("run", {"run": A}),
        ("tasks", {"run": A}),
        ("rollouts", {"run": A}),
        ("task", {"run": A, "task": 3}),
        ("rollout", {"run": A, "task": 3, "rollout": 0}),
        ("compare", {"run": [A, B]}),
        ("doctor", {"run": A}),
    ]
    for name, params in pages:
        studio.go(name, **params)
        assert studio.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert len(studio.at("main").inner_text()) > 40, name


def test_the_list_of_runs_is_not_cut_off_on_a_small_laptop(studio: Studio) -> None:
    studio.page.set_viewport_size({"width": 1280, "height": 844})
    studio.go("runs")
    expect(studio.rows().first).to_be_visible()
    fits = "(table) => table.offsetWidth <= table.parentElement.clientWidth"
    assert studio.at("table.rows").evaluate(fits)


def test_going_back_leads_through_the_views(studio: Studio) -> None:
    studio.go("runs", q="baseline")
    studio.at(".row-link").click()
    studio.at(".tabs a", has_text="Tasks").click()
    expect(studio.rows().first).to_be_visible()
    studio.page.go_back()
    expect(studio.at(".cards .hero")).to_be_visible()
    studio.page.go_back()
    expect(studio.at("h1")).to_have_text("Runs")


def test_read_only_disables_labels_and_single_run_opens_straight_away(browser: Any, folder: Path) -> None:
    with viewing("--read-only", folder / "small.jsonl") as address:
        studio = Studio(browser.new_page(), address)
        expect(studio.at("h1")).to_contain_text("small")
        run = studio.page.evaluate("document.querySelector('.tabs a').getAttribute('href')").split("run=")[1]
        studio.page.evaluate(f"location.hash = '#/rollout?run={run}&task=0&rollout=0'")
        expect(studio.at(".labels button").first).to_be_disabled()
        expect(studio.at(".annotation")).to_contain_text("cannot be changed")
        studio.behaves()
        studio.page.close()


def test_an_empty_folder_says_what_to_do_and_a_stopped_server_is_noticed(browser: Any, tmp_path: Path) -> None:
    with viewing(tmp_path) as address:
        studio = Studio(browser.new_page(), address)
        expect(studio.at("h1").last).to_have_text("No runs yet")
        write_run(tmp_path, rows_of(0)[:4], name="first")
        expect(studio.at(".row-link")).to_contain_text("first")
        studio.expected = ("Failed to load resource",)
    expect(studio.at("#connection")).to_contain_text("reconnecting")
    expect(studio.at(".row-link")).to_contain_text("first")
    studio.page.close()


# A run that goes on.


def in_flight(studio: Studio) -> int:
    return int(studio.at("[data-live=text]").inner_text().split()[0])


def scored(studio: Studio) -> int:
    return int(studio.at(".cards > div:has(dt:text-is('Scored')) dd").inner_text().split()[0].replace(",", ""))


def cancel_newest(studio: Studio) -> bool:
    """Press the last button of the list, which changes all the time; whether that was in time."""
    name = studio.page.evaluate(
        """() => {
            const button = [...document.querySelectorAll(".in-flight button")].at(-1);
            button?.click();
            return button?.getAttribute("aria-label") ?? "";
        }"""
    )
    if not name:
        return False
    expect(studio.at("#toast")).to_contain_text(name.removeprefix("Cancel rollout "))
    return "not in flight" not in studio.at("#toast").inner_text()


@pytest.mark.usefixtures("live")
def test_a_live_run_is_watched_steered_and_one_rollout_cancelled(studio: Studio) -> None:
    studio.go("runs")
    studio.at(".row-link", has_text="live").click()
    expect(studio.at("section.live")).to_be_visible()
    wait_until(lambda: scored(studio) > 0)
    before = scored(studio)
    wait_until(lambda: scored(studio) > before)
    expect(studio.at(".in-flight tbody tr").first).to_contain_text("model")

    studio.page.get_by_role("spinbutton", name="Concurrency").fill("6")
    studio.at(".steer button", has_text="Set").click()
    expect(studio.at(".steer output")).to_contain_text("6")
    expect(studio.at("[data-live=text]")).to_contain_text("at most 6")

    studio.expected = ("Failed to load resource",)  # it may be done before the click arrives
    wait_until(lambda: cancel_newest(studio))
    studio.expected = ()

    studio.at(".steer button", has_text="Pause").click()
    expect(studio.at(".steer button", has_text="Resume")).to_be_visible()
    wait_until(lambda: in_flight(studio) == 0)
    studio.at(".steer button", has_text="Resume").click()
    expect(studio.at(".steer button", has_text="Pause")).to_be_visible()
    wait_until(lambda: in_flight(studio) > 0)


@pytest.mark.usefixtures("live")
def test_a_rollout_in_flight_shows_its_stage_and_then_its_transcript(studio: Studio) -> None:
    studio.expected = ("Failed to load resource",)
    studio.go("run", run="live")
    studio.at(".in-flight tbody tr").last.locator("a").click()
    expect(studio.at("h1")).to_contain_text("rollout")
    expect(studio.at(".turn.assistant")).to_contain_text("boxed")
    studio.go("runs")
    studio.expected = ()


@pytest.mark.usefixtures("live")
def test_a_live_run_is_drained_after_a_question(studio: Studio) -> None:
    studio.go("run", run="live")
    studio.at(".steer button", has_text="Drain").click()
    expect(studio.at("dialog")).to_contain_text("Drain this run?")
    studio.at("dialog button", has_text="Drain").click()
    expect(studio.at(".page-head .badge").first).to_contain_text(re.compile("interrupted|incomplete"))
    expect(studio.at(".steer")).to_be_hidden()


# A static export.


def test_a_static_export_shows_the_same_pages(browser: Any, folder: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = subprocess.run(
        [str(BIN / "gymnast"), "view", str(folder / "sweep"), "--export", str(site), "--transcripts", "20"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with serving_files(site) as address:
        studio = Studio(browser.new_page(), address)
        expect(studio.rows()).to_have_count(2)
        expect(studio.at("#connection")).to_contain_text("static")
        runs = [row.inner_text() for row in studio.at(".row-link").all()]
        baseline = next(name for name in runs if "baseline" in name)
        studio.go("run", run=baseline)
        expect(studio.at(".cards .hero")).to_contain_text("95% interval")
        studio.go("rollouts", run=baseline, q="zebra", sort="-output_tokens")
        expect(studio.rows()).to_have_count(4)
        studio.go("compare", run=runs)
        expect(studio.at(".sentence")).to_be_visible()
        studio.expected = ("Failed to load resource",)
        studio.go("rollout", run=baseline, task=29, rollout=3)
        expect(studio.at("main")).to_contain_text(re.compile("not in the export|Rollout"))
        studio.behaves()
        studio.page.close()
    shutil.rmtree(site)
