"""The studio in a real browser where runs are of other kinds: workers, training, two runs side by side, tokens with
alternatives, a site opened from disk, and a server that is stopped while pages are open."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from gymnast.store.paths import RunPaths
from tests.helpers.commands import BIN, SCRIPTED
from tests.helpers.parts import needs
from tests.helpers.report_runs import grid, record, write_run
from tests.helpers.studio_browser import Studio, browsing, viewing
from tests.helpers.waiting import wait_until

pytestmark = needs("chromium")
POLICY = "policy_model.responses_api_models.scripted_model"
LONG = {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": "the map"}'}


def top(*pairs: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"token": text, "logprob": logprob, "bytes": list(text.encode())} for text, logprob in pairs]


def with_alternatives() -> dict[str, Any]:
    """A record as an endpoint with `top_logprobs` gives it: texts of tokens, no ids."""
    own = record(0, 0, 1.0, "Yes, it is <b>.")
    own["response"]["output"][0]["content"][0]["logprobs"] = [
        {"token": "Yes", "logprob": -0.25, "top_logprobs": top(("Yes", -0.25), ("No", -1.6))},
        {"token": ", it is", "logprob": -0.01, "top_logprobs": top((", it is", -0.01))},
        {"token": " <b>.", "logprob": -2.5, "top_logprobs": top((" <i>.", -0.2), (" <b>.", -2.5))},
    ]
    return own


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    write_run(root, grid(6, 3), name="a")
    write_run(root, [*grid(6, 3)[:-1], record(5, 2, 1.0, "Something else.", items=[LONG])], name="b")
    write_run(root, [with_alternatives()], name="choices")
    (root / "trained").mkdir()
    steps = [
        {"step": step, "seconds": 3.5, "reward": step / 100, "groups": 8, "rollouts": 64, "mixed_groups": 6, "kl": 0.01}
        for step in range(1, 61)
    ]
    points = [{"step": step, "reward": step / 90, "seconds": step * 4.0} for step in (0, 30, 60)]
    (root / "trained" / "curve.json").write_text(json.dumps({"points": points, "steps": steps}))
    return root


@pytest.fixture(scope="module")
def submitted(folder: Path) -> Iterator[Path]:
    """A run of two local workers that outlasts the tests."""
    arguments = ["-e", "mcqa", "-i", "resources_servers/mcqa/data/example.jsonl", "-o", "many.jsonl", "-c", SCRIPTED]
    settings = [f'++{POLICY}.replies=["\\\\boxed{{A}}"]', f"++{POLICY}.latency_s=1", "-n", "2000", "--concurrency", "2"]
    words = ["gymnast", "submit", *arguments, *settings, "--workers", "2", "--chunk-rows", "100"]
    done = subprocess.run([str(BIN / words[0]), *words[1:]], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    output = folder / "many.jsonl"
    wait_until(lambda: status(output)["scored"] >= 2)
    yield output
    subprocess.run([str(BIN / "gymnast"), "cancel", str(output)], capture_output=True, check=False)
    wait_until(lambda: all(job["state"] != "running" for job in status(output)["jobs"]))


def status(output: Path) -> Any:
    done = subprocess.run(
        [str(BIN / "gymnast"), "status", str(output), "--json"], capture_output=True, text=True, check=False
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with viewing(folder) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing() as context:
        yield context


@pytest.fixture
def studio(browser: Any, url: str) -> Iterator[Studio]:
    own = Studio(browser.new_page(), url)
    yield own
    own.behaves()
    own.page.close()


# Training.


def test_a_training_run_shows_its_curve_and_the_groups_of_each_step(studio: Studio) -> None:
    studio.go("runs")
    studio.at(".row-link", has_text="trained/training").click()
    expect(studio.at("h1")).to_have_text("trained/training")
    expect(studio.at(".tabs a")).to_have_text(["Training"])
    expect(studio.at("figure h3").filter(has_text=re.compile("^Reward$"))).to_have_count(1)
    expect(studio.at("figure h3").filter(has_text="Mixed groups")).to_have_count(1)
    expect(studio.rows()).to_have_count(50)
    expect(studio.rows().first).to_contain_text("60")
    studio.at(".pager button").last.click()
    expect(studio.rows()).to_have_count(10)
    assert "page=1" in studio.hash()


def test_the_overview_of_a_training_run_is_its_own_page(studio: Studio) -> None:
    studio.page.goto(f"{studio.origin}#/run?run=trained/training")
    expect(studio.at(".tabs a")).to_have_text(["Training"])
    assert studio.hash().startswith("#/training")


def test_a_training_run_that_goes_on_is_followed(studio: Studio, folder: Path) -> None:
    studio.go("training", run="trained/training")
    path = folder / "trained" / "curve.json"
    curve = json.loads(path.read_text())
    curve["steps"].append({"step": 61, "reward": 0.9, "groups": 8, "mixed_groups": 2, "rollouts": 64, "seconds": 3.5})
    path.write_text(json.dumps(curve))
    expect(studio.rows().first).to_contain_text("61")


# Two runs side by side.


def test_the_same_task_of_two_runs_side_by_side(studio: Studio) -> None:
    studio.go("side", run="a", task=5, rollout=2, run2="b", task2=5, rollout2=2)
    expect(studio.at("h1")).to_have_text("Side by side")
    expect(studio.at(".side-by-side > section")).to_have_count(2)
    expect(studio.at(".page-head .meta")).to_contain_text("2 of 2 items differ")
    expect(studio.at(".side-by-side .differs")).to_have_count(3)
    expect(studio.at("main details.fold")).to_contain_text("Which one?")
    studio.at(".side-by-side h2 a").last.click()
    expect(studio.at("#crumbs a", has_text=re.compile("^b$"))).to_have_count(1)


def test_a_rollout_leads_to_the_same_task_of_another_run(studio: Studio) -> None:
    studio.go("rollout", run="a", task=5, rollout=2)
    studio.at("summary", has_text="Side by side").click()
    studio.at("details.menu a", has_text="this task in b").click()
    expect(studio.at(".side-by-side h2").last).to_contain_text("Task 5")
    expect(studio.at(".side-by-side > section").last).to_contain_text("b")


def test_a_comparison_leads_to_both_transcripts(studio: Studio) -> None:
    studio.go("compare", run=["a", "b"])
    studio.rows().first.locator("a").first.click()
    expect(studio.at("h1")).to_have_text("Side by side")
    expect(studio.at(".side-by-side > section")).to_have_count(2)


def test_another_rollout_is_chosen_on_either_side(studio: Studio) -> None:
    studio.go("side", run="a", task=5, rollout=0, rollout2=1)
    studio.page.get_by_label("Rollout on the right").select_option("2")
    expect(studio.at(".side-by-side h2").last).to_have_text("Task 5, rollout 2")
    assert "rollout2=2" in studio.hash()


def test_a_task_leads_to_its_best_and_worst_rollout(studio: Studio) -> None:
    studio.go("task", run="a", task=5)
    studio.at("a.button", has_text="Best and worst").click()
    expect(studio.at(".side-by-side > section").first).to_contain_text("reward 1")
    expect(studio.at(".side-by-side > section").last).to_contain_text("reward 0")


# Finding one's way.


def test_going_back_leads_to_the_place_that_was_left(studio: Studio) -> None:
    studio.page.set_viewport_size({"width": 800, "height": 300})
    studio.go("rollouts", run="a")
    studio.at(".row-link").nth(15).scroll_into_view_if_needed()
    wait_until(lambda: (studio.page.evaluate("history.state?.y") or 0) > 100)
    left = studio.page.evaluate("scrollY")
    studio.at(".row-link").nth(15).click()
    expect(studio.at("h1")).to_contain_text("Task 5")
    assert studio.page.evaluate("scrollY") == 0
    studio.page.go_back()
    wait_until(lambda: abs(studio.page.evaluate("scrollY") - left) < 5)


@pytest.mark.parametrize("page", ["rollout", "task"])
def test_a_note_outlives_what_arrives_while_it_is_typed(browser: Any, url: str, page: str) -> None:
    """Replies are slow, so the stream of events announces itself before the first and asks for the page again."""
    studio = Studio(browser.new_page(), url)
    studio.page.evaluate(
        """() => {
          const real = window.fetch;
          let asked = 0;
          window.fetch = async (...request) => {
            const delayMs = 500 * (asked += 1);
            const reply = await real(...request);
            await new Promise((wake) => setTimeout(wake, delayMs));
            window.lastReply = Date.now();
            return reply;
          };
        }"""
    )
    studio.go(page, run="a", task=1, **({"rollout": 1} if page == "rollout" else {}))
    note = studio.page.get_by_label("Note", exact=True)
    expect(note).to_have_count(1)
    note.fill("a note of some length")
    while studio.page.evaluate("Date.now() - window.lastReply") < 4000:
        studio.page.wait_for_timeout(200)
    expect(note).to_have_count(1)
    expect(note).to_have_value("a note of some length")
    expect(studio.at("button", has_text="Save note")).to_be_enabled()
    studio.behaves()
    studio.page.close()


def test_labels_have_keys(studio: Studio, folder: Path) -> None:
    studio.go("rollout", run="b", task=1, rollout=1)
    label = studio.at(".labels button", has_text="reward hack")
    studio.page.keyboard.press("3")
    expect(label).to_have_attribute("aria-pressed", "true")
    assert '"reward hack"' in (folder / "b_annotations.jsonl").read_text()
    studio.page.keyboard.press("3")
    expect(label).to_have_attribute("aria-pressed", "false")
    studio.at("textarea").press("3")
    expect(studio.at("textarea")).to_have_value("3")
    expect(label).to_have_attribute("aria-pressed", "false")


def test_a_note_typed_while_a_label_is_saved_is_kept(studio: Studio) -> None:
    """The reply to the label arrives after the first letters of the note, and must not take them away."""
    waiting: list[Any] = []
    studio.go("rollout", run="b", task=2, rollout=1)
    studio.page.route(
        "**/api/annotations",
        lambda route: waiting.append(route) if route.request.method == "POST" else route.fallback(),
    )
    studio.page.keyboard.press("1")
    studio.at("textarea").press_sequentially("seen")
    assert len(waiting) == 1
    waiting[0].continue_()
    expect(studio.at(".labels button", has_text="good")).to_have_attribute("aria-pressed", "true")
    expect(studio.at("textarea")).to_have_value("seen")
    expect(studio.at("button", has_text="Save note")).to_be_enabled()
    studio.page.unroute_all()


@pytest.mark.parametrize(
    ("page", "params"),
    [
        ("rollout", {"task": "abc", "rollout": 1}),
        ("rollout", {"task": 1}),
        ("task", {"task": -1}),
        ("side", {}),
    ],
)
def test_an_address_without_numbers_says_so(studio: Studio, page: str, params: dict[str, Any]) -> None:
    studio.go(page, run="a", **params)
    expect(studio.at("h1")).to_have_text("Incomplete address")


def test_a_message_and_a_record_are_copied(studio: Studio) -> None:
    studio.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    studio.go("rollout", run="b", task=5, rollout=2)
    studio.at(".turn.assistant").hover()
    studio.at(".turn.assistant .copy").click()
    expect(studio.at("#toast")).to_have_text("Copied")
    assert studio.page.evaluate("navigator.clipboard.readText()") == "Something else."
    studio.go("rollout", run="b", task=5, rollout=2, view="raw")
    studio.at("main .meta button", has_text="Copy").click()
    wait_until(lambda: studio.page.evaluate("navigator.clipboard.readText()").startswith("{"))


# Tokens.


def test_alternatives_of_a_token_are_shown_under_the_pointer_and_by_keys(studio: Studio) -> None:
    studio.go("rollout", run="choices", task=0, rollout=0, view="tokens")
    card = studio.at(".token-card")
    expect(card).to_be_hidden()
    studio.at(".token", has_text="<b>").hover()
    expect(card).to_contain_text('" <i>."')
    expect(card.locator("li.chosen")).to_contain_text('" <b>."')
    studio.at(".token-call [role=group]").focus()
    studio.page.keyboard.press("Home")
    expect(card.locator("li")).to_have_count(2)
    expect(card).to_contain_text('"No"')
    studio.page.keyboard.press("ArrowRight")
    expect(card.locator("li")).to_have_count(1)
    studio.page.keyboard.press("End")
    expect(card).to_contain_text("logprob -2.5 (8.21%)")


# A site opened from disk.


def test_a_static_site_is_opened_from_disk(browser: Any, folder: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    runs = [folder / "a.jsonl", folder / "b.jsonl", folder / "choices.jsonl"]
    done = subprocess.run(
        [str(BIN / "gymnast"), "view", *map(str, runs), "--export", str(site)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "index.html" in done.stderr
    studio = Studio(browser.new_page(), (site / "index.html").as_uri())
    expect(studio.rows()).to_have_count(3)
    names = [row.inner_text() for row in studio.at(".row-link").all()]
    a, b, choices = (next(name for name in names if name.endswith(end)) for end in ("a", "b", "choices"))
    studio.go("run", run=a)
    expect(studio.at("figure h3").filter(has_text="Rewards")).to_have_count(1)
    studio.go("rollouts", run=a, f="reward=1")
    expect(studio.rows()).to_have_count(6)
    studio.go("compare", run=[a, b])
    expect(studio.at(".sentence")).to_be_visible()
    studio.go("rollout", run=choices, task=0, rollout=0)
    expect(studio.at("main")).to_contain_text("Yes, it is <b>.")
    studio.go("rollout", run=choices, task=0, rollout="../../../../elsewhere")
    expect(studio.at("h1")).to_have_text("Incomplete address")
    studio.behaves()
    studio.expected = ("Failed to load resource",)
    studio.go("rollout", run=choices, task=0, rollout=99)
    expect(studio.at("main")).to_contain_text("not in the export")
    studio.behaves()
    studio.page.close()


# Workers.


def test_workers_are_watched_and_cancelled(studio: Studio, submitted: Path) -> None:
    studio.go("run", run="many")
    expect(studio.at("section.live")).to_contain_text("in flight on 2 workers")
    studio.at("section.live a", has_text="Workers").click()
    workers = studio.at("table.rows").first.locator("tbody tr")
    expect(workers).to_have_count(2)
    expect(workers.first).to_contain_text("working")
    expect(studio.at("table.rows").last).to_contain_text("held")
    workers.first.locator("button", has_text="Cancel").click()
    studio.at("dialog button", has_text="Keep going").click()
    workers.first.locator("button", has_text="Cancel").click()
    studio.at("dialog button.primary").click()
    expect(studio.at("#toast")).to_contain_text("cancelled 1 worker")
    wait_until(lambda: sum(job["state"] == "running" for job in status(submitted)["jobs"]) == 1)
    studio.at(".steer button", has_text="Cancel all workers").click()
    studio.at("dialog button.primary").click()
    expect(studio.at("#toast")).to_contain_text("cancelled 1 worker")
    expect(studio.at(".page-head .badge").first).to_contain_text("interrupted")
    expect(studio.at(".steer")).to_have_count(0)


# The server's end.


def test_a_server_stops_while_a_page_is_computed(tmp_path: Path) -> None:
    output = write_run(tmp_path, grid(2, 2), name="slow")
    inputs = RunPaths(output).materialized_inputs
    inputs.unlink()
    os.mkfifo(inputs)  # reading it waits for ever
    process = subprocess.Popen(
        [str(BIN / "gymnast"), "view", "--no-open", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address, _, token = process.stdout.readline().strip().partition("/?token=")
    request = urllib.request.Request(f"{address}/api/tasks?run=slow", headers={"Authorization": f"Bearer {token}"})
    with pytest.raises(OSError):  # noqa: PT011 - any of them: the page does not come
        urllib.request.urlopen(request, timeout=5)
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_server_with_open_pages_stops_without_a_traceback(browser: Any, folder: Path, sign: signal.Signals) -> None:
    process = subprocess.Popen(
        [str(BIN / "gymnast"), "view", "--no-open", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    pages = []
    for place in ("", "#/run?run=a", "#/rollouts?run=b&q=answer", "#/compare?run=a&run=b"):
        page = browser.new_page()
        page.goto(url.split("?")[0] + place if place else url)
        page.wait_for_selector("html[data-ready]")
        pages.append(page)
    process.send_signal(sign)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "press Ctrl-C to stop\n")
    expect(pages[0].locator("#connection")).to_contain_text("reconnecting")
    for page in pages:
        page.close()
