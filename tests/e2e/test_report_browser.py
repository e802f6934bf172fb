"""The report in a real browser: it opens offline, runs nothing that a rollout said, and shows every transcript it has.

Needs Debian's chromium (`apt-get install chromium`) and is skipped where there is none.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from gymnast.report.build import write_report
from gymnast.report.run_view import view_runs
from tests.helpers.parts import needs
from tests.helpers.report_runs import HOSTILE, failed, grid, hostile_records, record, write_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = needs("chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started.new_context(offline=True, viewport={"width": 1280, "height": 900})
        started.close()


class Tab:
    """A page without a network, and everything that it did besides showing itself."""

    def __init__(self, browser: Any, report: Path, fragment: str = "") -> None:
        self.did: list[str] = []
        self.page = browser.new_page()
        self.page.set_default_timeout(10_000)
        self.page.on("console", lambda told: self.did.append(f"console: {told.text}"))
        self.page.on("pageerror", lambda error: self.did.append(f"error: {error}"))
        self.page.on("dialog", self._refuse)
        self.page.on("request", lambda request: self.did.append(f"request: {request.url[:80]}"))
        self.page.goto(report.as_uri() + fragment)
        self.page.wait_for_selector("html[data-ready]")
        assert self.did.pop(0).startswith("request: file:")

    def _refuse(self, dialog: Any) -> None:
        self.did.append("dialog")
        dialog.dismiss()

    def until(self, claim: str) -> None:
        """Wait until a claim about the page is true. Asked from here: the page's policy lets nobody poll inside it."""
        deadline = time.monotonic() + 300
        while not self.page.evaluate(claim):
            assert time.monotonic() < deadline, claim
            self.page.wait_for_timeout(10)

    def open(self, task: int, rollout: int) -> None:
        """Go to a rollout by its fragment."""
        self.page.evaluate(f"location.hash = 'task={task}&rollout={rollout}'")
        self.until(f"document.getElementById('viewer-title')?.textContent === 'Task {task}, rollout {rollout}'")

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def close(self) -> None:
        """Nothing but the file itself was loaded, nothing was said, nothing was run."""
        assert self.did == []
        assert self.page.evaluate("window.pwned === undefined")
        self.page.close()


def report_of(folder: Path, records: list[dict[str, Any]], limit: int = 500, **options: Any) -> Path:
    return write_report(view_runs([write_run(folder, records, **options)]), folder / "r.html", limit=limit).path


def test_headline_and_plots_are_there_offline(browser: Any, tmp_path: Path) -> None:
    lost = [failed(90, 0), failed(91, 0, "verifier_error")]
    tab = Tab(browser, report_of(tmp_path, grid(30, 4), failures=lost, missing=[(92, 0)]))
    text = tab.text(".headline")
    for part in ("0.3333", "95% interval", "tasks\n33", "scored\n120", "failed\n2", "missing\n1", "pass@4"):
        assert part in text
    titles = tab.page.locator("figure h3").all_inner_texts()
    assert titles == [
        "Rewards",
        "Pass rate per task",
        "pass@k",
        "Reward and tokens",
        "Failures",
        "Most uncertain tasks",
        "Slowest tasks",
        "Tasks with failures",
    ]
    for plot in tab.page.locator("figure > svg").all():
        box = plot.bounding_box()
        assert box["width"] > 300
        assert box["height"] > 100
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.close()


def test_no_script_of_a_rollout_ever_runs_and_every_text_is_shown_as_it_is(browser: Any, tmp_path: Path) -> None:
    lost = [failed(100 + at, 1, text[:60], message=text, body=text) for at, text in enumerate(HOSTILE)]
    report = report_of(tmp_path, hostile_records(), failures=lost, name="<img src=x onerror=alert(1)>")
    tab = Tab(browser, report)
    for task, text in enumerate(HOSTILE):
        tab.open(100 + task, 1)
        tab.open(task, 1)
        shown, signs, made, fits = tab.page.evaluate(SHOWN)
        acting = sum(one in ACTING for one in text)
        assert signs == acting
        assert acting or shown == text
        assert set(made) <= OURS
        assert fits
    links = tab.page.evaluate("[...document.querySelectorAll('a')].map((one) => one.getAttribute('href'))")
    assert all(link.startswith("#") for link in links)
    tab.close()


ACTING = "\x1b\x07\x00\x7f\x9b\u202e\u202c\u2066\u2069\u2028\u2029\ufeff"
OURS = {"a", "button", "code", "dd", "details", "div", "dl", "dt", "h2", "header", "p", "small", "span", "summary"}
SHOWN = """() => {
    const viewer = document.getElementById("viewer");
    const said = viewer.querySelector(".turn.assistant .text");
    for (const one of viewer.querySelectorAll("details")) one.open = true;
    const made = [...new Set([...viewer.querySelectorAll("*")].map((one) => one.localName))];
    return [said.textContent, said.querySelectorAll(".sign").length, made, viewer.scrollWidth <= viewer.clientWidth];
}"""


def test_half_a_surrogate_in_a_prompt_is_shown_as_a_sign(browser: Any, tmp_path: Path) -> None:
    output = write_run(tmp_path, grid(2, 2))
    inputs = tmp_path / "run_materialized_inputs.jsonl"
    inputs.write_text(inputs.read_text().replace("Which one?", "half \\ud83d here"))
    tab = Tab(browser, write_report(view_runs([output]), tmp_path / "r.html").path)
    assert "half ‹U+D83D› here" in tab.text("#task-table")
    tab.close()


def test_the_policy_refuses_what_is_not_ours(browser: Any, tmp_path: Path) -> None:
    """Should an escape ever be forgotten, nothing would come of it."""
    report = report_of(tmp_path, grid(2, 2))
    forgotten = (
        "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'><a id=x href='javascript:pwned=3'>x</a>"
    )
    report.write_text(report.read_text().replace("<main>", f"<main>{forgotten}"))
    page = browser.new_page()
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready]")
    page.click("#x")
    refused = page.evaluate("""() => [
        () => document.body.insertAdjacentHTML("beforeend", "<b>x</b>"),
        () => (document.createElement("script").textContent = "window.pwned = 4"),
        () => document.body.setAttribute("onclick", "window.pwned = 5"),
        () => document.write("<p>6</p>"),
    ].map((act) => { try { act(); return false; } catch (error) { return error instanceof TypeError; } })""")
    assert refused == [True, True, True, True]
    assert page.evaluate("window.pwned === undefined")
    page.close()


def test_a_fragment_opens_a_rollout_and_closing_it_leaves_the_page(browser: Any, tmp_path: Path) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": '{"city": "Bern"}'}
    answer = {"type": "function_call_output", "call_id": "c", "output": '{"degrees": 21}'}
    rows = [*grid(5, 3), record(41, 3, 0.5, "It is warm.", items=[call, answer], prompt="How warm is Bern?")]
    tab = Tab(browser, report_of(tmp_path, rows), "#task=41&rollout=3")
    assert tab.text("#viewer-title") == "Task 41, rollout 3"
    assert "reward 0.5" in tab.text("#viewer header")
    assert "How warm is Bern?" in tab.text("#viewer")
    assert '"degrees": 21' in tab.text("#viewer .turn.call")
    tab.page.keyboard.press("ArrowLeft")
    tab.until("location.hash === '#task=4'")
    tab.page.keyboard.press("Escape")
    tab.until("location.hash === ''")
    assert not tab.page.locator("#viewer").is_visible()
    tab.close()


def test_every_transcript_that_is_carried_is_a_click_away(browser: Any, tmp_path: Path) -> None:
    tab = Tab(browser, report_of(tmp_path, grid(40, 5), limit=8, failures=[failed(90, 0)]))
    tab.page.select_option("#which", "here")
    opened = 0
    for link in tab.page.locator("#task-table tbody a").all():
        link.dispatch_event("click")
        tab.page.wait_for_selector("#viewer[open]")
        for chip in tab.page.locator("#viewer .chip:not(.away)").all():
            chip.dispatch_event("click")
            tab.page.wait_for_selector("#viewer .label")
            assert "is not in this file" not in tab.text("#viewer")
            opened += 1
        tab.page.keyboard.press("Escape")
    assert opened == 8
    tab.close()


def test_for_the_others_there_is_a_command_that_prints_them(browser: Any, tmp_path: Path) -> None:
    tab = Tab(browser, report_of(tmp_path, grid(40, 5), limit=2))
    tab.open(17, 3)
    assert tab.text("#viewer .command code") == f"gymnast report {tmp_path}/run.jsonl --show 17:3"
    tab.page.evaluate("location.hash = 'task=17&rollout=99'")
    tab.until("document.getElementById('viewer').innerText.includes('no recorded result or failure')")
    tab.close()


def test_many_tasks_are_paged_sorted_and_found(browser: Any, tmp_path: Path) -> None:
    rows = [record(task, 0, float(task % 7 == 0), tokens=task, prompt=f"Question {task}?") for task in range(1000)]
    tab = Tab(browser, report_of(tmp_path, rows, failures=[failed(2000, 0)]))
    assert tab.page.locator("#task-table tbody tr").count() == 25
    assert tab.text("#page") == "Page 1 of 41"
    tab.page.click("#next")
    assert tab.text("#task-table tbody tr:first-child th") == "25"
    tab.page.click("#task-table thead [data-key=tokens] button")
    assert tab.text("#task-table tbody tr:first-child th") == "999"
    tab.page.fill("#find", "question 77")
    assert tab.text("#found") == "11 of 1,001 tasks"
    tab.page.fill("#find", "")
    tab.page.select_option("#which", "owed")
    assert tab.text("#task-table tbody tr th") == "2000"
    tab.page.click("#task-table tbody tr td.prompt")
    tab.page.wait_for_selector("#viewer[open]")
    assert "model_timeout" in tab.text("#viewer")
    tab.close()


def test_pointing_at_the_sorted_tasks_names_and_opens_them(browser: Any, tmp_path: Path) -> None:
    tab = Tab(browser, report_of(tmp_path, grid(30, 4)))
    plot = tab.page.locator('[data-plot="pass-rates"]')
    plot.hover(position={"x": 90, "y": 120})
    told, _, rest = tab.text("#tip").partition(":")
    assert rest.startswith(" 0.5 [")
    plot.click(position={"x": 90, "y": 120})
    tab.page.wait_for_selector("#viewer[open]")
    assert tab.text("#viewer-title").startswith(f"{told},")
    tab.close()


def test_two_runs_stand_side_by_side(browser: Any, tmp_path: Path) -> None:
    outputs = [write_run(tmp_path, grid(12, 4, every), name=name) for name, every in (("before", 3), ("after", 2))]
    report = write_report(view_runs(outputs), tmp_path / "r.html").path
    tab = Tab(browser, report, "#task=3&rollout=1&run=1")
    assert "after" in tab.text("#viewer header")
    assert "reward 1" in tab.text("#viewer header")
    tab.page.keyboard.press("Escape")
    assert tab.page.locator(".headline h2").all_inner_texts() == ["before", "after"]
    assert tab.page.locator("figure .legend").first.inner_text().split() == ["before", "after"]
    tab.page.select_option("#run", "1")
    tab.page.click("#task-table tbody tr:first-child td.prompt")
    tab.until("location.hash.endsWith('run=1')")
    tab.close()


CONTRAST = """() => {
    const light = (text) => {
        const canvas = new OffscreenCanvas(1, 1).getContext("2d");
        canvas.fillStyle = text;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((one) => {
            const share = one / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = light(getComputedStyle(document.querySelector(".card")).backgroundColor);
    const ratio = (selector) => {
        const ink = light(getComputedStyle(document.querySelector(selector)).color);
        return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
    };
    return [".big", "figcaption p", ".facts dt", ".ranking a", ".facts .bad dd"].map(ratio);
}"""


def test_light_dark_and_narrow_can_be_read(browser: Any, tmp_path: Path) -> None:
    tab = Tab(browser, report_of(tmp_path, hostile_records(), failures=[failed(90, 0)]))
    grounds = set()
    for scheme in ("light", "dark"):
        tab.page.emulate_media(color_scheme=scheme)
        grounds.add(tab.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert min(tab.page.evaluate(CONTRAST)) >= 4.5
    assert len(grounds) == 2
    tab.page.click("#theme")
    assert tab.page.evaluate("document.documentElement.style.colorScheme") == "light"
    tab.page.set_viewport_size({"width": 390, "height": 800})
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390
    tab.close()


def test_on_a_phone_the_navigation_is_whole_and_plots_have_text_that_can_be_read(browser: Any, tmp_path: Path) -> None:
    tab = Tab(browser, report_of(tmp_path, hostile_records(), failures=[failed(90, 0)]))
    tab.page.set_viewport_size({"width": 390, "height": 800})
    assert tab.page.evaluate(
        "[...document.querySelectorAll('.top nav a')].every((link) => link.getBoundingClientRect().right <= innerWidth)"
    )
    texts = "[...document.querySelectorAll('figure svg text:not([transform])')]"
    assert min(tab.page.evaluate(f"{texts}.map((text) => text.getBoundingClientRect().height)")) >= 10
    tab.close()


def test_a_run_without_a_score_says_so(browser: Any, tmp_path: Path) -> None:
    tab = Tab(browser, report_of(tmp_path, [], failures=[failed(0, 0)], missing=[(1, 0)]))
    assert "Nothing was scored" in tab.text("main")
    assert tab.page.locator("figure h3").first.inner_text() == "Failures"
    tab.page.click("#task-table tbody a")
    tab.page.wait_for_selector("#viewer[open]")
    assert "no answer" in tab.text("#viewer")
    tab.close()


# --- what a first reader looks for -----------------------------------------------------------------------------------


def called(task: int, rollout: int, reward: float, **more: Any) -> dict[str, Any]:
    """A rollout with a tool call, reasoning, usage and tools."""
    call = {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": '{"city": "Bern"}'}
    result = {"type": "function_call_output", "call_id": "c", "output": f'{{"degrees": {20 + task}}}'}
    thought = {"type": "reasoning", "id": "t", "summary": [{"type": "summary_text", "text": "perhaps a zephyr"}]}
    usage = {"calls": 2, "input_tokens": 9, "output_tokens": 4, "latency_ms": 1500.0 * (task + 1)}
    items = [thought, call, result]
    return record(task, rollout, reward, f"It is warm, says oracle {task}.", items=items, _ng_model_usage=usage, **more)


def search(tab: Tab, text: str) -> str:
    """Search, wait until every transcript was searched, and say how many rollouts were found."""
    tab.page.fill("#find", text)
    tab.until("!document.getElementById('searched').textContent.includes('%')")
    return tab.text("#searched")


def test_every_transcript_of_a_run_of_some_hundred_rollouts_is_in_the_file(browser: Any, tmp_path: Path) -> None:
    """'The transcripts of 500 of 576 rollouts are in this file', which had 256 KB."""
    report = write_report(view_runs([write_run(tmp_path, grid(72, 8))]), tmp_path / "r.html")
    assert (report.transcripts, report.rollouts) == (576, 576)
    tab = Tab(browser, report.path)
    assert "All transcripts are in this file: 576 rollouts." in tab.text("main")
    tab.open(71, 7)
    assert "not in this file" not in tab.text("#viewer")
    tab.close()


def test_what_was_left_out_is_reported_with_the_command_that_includes_it(browser: Any, tmp_path: Path) -> None:
    output = write_run(tmp_path, grid(40, 5), failures=[failed(90, 0)])
    report = write_report(view_runs([output]), tmp_path / "r.html", max_bytes=3000)
    assert 0 < report.transcripts < 201
    tab = Tab(browser, report.path)
    note = tab.text("#tasks .notice")
    assert f"{report.transcripts} of 201 transcripts are in this file" in note
    assert f"Left out: {201 - report.transcripts} rollouts with a result" in note
    assert f"gymnast report {output} --transcripts all" in note
    tab.close()


@pytest.mark.parametrize(
    ("text", "rollouts"),
    [
        ("look_up", 6),
        ("bern", 6),
        ('"degrees": 21', 2),
        ("says ORACLE 2", 2),
        ("zephyr", 6),
        ("weather_agent", 6),
        ("verifier_error", 1),
        ("no answer", 1),
        ("grade: excellent", 6),
        ("hidden at the end of a long prompt", 0),
        ("mock", 6),
    ],
)
def test_a_search_finds_more_than_prompts(browser: Any, tmp_path: Path, text: str, rollouts: int) -> None:
    """Tool names, answers and agents gave 0 hits."""
    prompt = "long " * 100 + "hidden at the end of a long prompt"
    rows = [
        {**called(task, at, float(at), grade="excellent", prompt=prompt), "agent_ref": {"name": "weather_agent"}}
        for task in range(3)
        for at in range(2)
    ]
    tab = Tab(browser, report_of(tmp_path, rows, failures=[failed(9, 0, "verifier_error")]))
    assert search(tab, text) == f"{rollouts} {'rollout' if rollouts == 1 else 'rollouts'} found in 7 transcripts"
    assert tab.page.locator("#task-table tbody tr").count() > 0
    assert search(tab, "nowhere to be found") == "0 rollouts found in 7 transcripts"
    tab.close()


def test_a_hit_opens_its_rollout_and_is_marked_there(browser: Any, tmp_path: Path) -> None:
    rows = [called(task, at, 1.0) for task in range(3) for at in range(2)]
    tab = Tab(browser, report_of(tmp_path, rows))
    search(tab, "oracle 2")
    tab.page.click("#task-table .hit >> nth=1")
    tab.until("document.getElementById('viewer-title')?.textContent === 'Task 2, rollout 1'")
    assert tab.page.evaluate("[...CSS.highlights.get('found')].map(String)") == ["oracle 2"]
    tab.page.keyboard.press("Escape")
    search(tab, "1:1")
    assert tab.page.locator("#task-table .hit").count() == 1
    tab.close()


def test_tasks_that_always_get_the_same_reward_are_all_listed(browser: Any, tmp_path: Path) -> None:
    """'Always the same' listed the solved ones only: 9 of 11."""
    rewards = {0: (1.0, 1.0), 1: (0.0, 0.0), 2: (0.0, 1.0), 3: (0.5, 0.5)}
    rows = [record(task, at, reward) for task, own in rewards.items() for at, reward in enumerate(own)]
    tab = Tab(browser, report_of(tmp_path, rows))
    for choice, tasks in {"same": ["0", "1", "3"], "always": ["0", "3"], "never": ["1"], "mixed": ["2"]}.items():
        tab.page.select_option("#which", choice)
        assert tab.page.locator("#task-table tbody th").all_inner_texts() == tasks
    tab.close()


def test_tool_results_are_open_and_long_ones_clipped(browser: Any, tmp_path: Path) -> None:
    long = "\n".join(f"line {number}" for number in range(500))
    items = [
        {"type": "function_call", "call_id": "c", "name": "bash", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": long},
    ]
    tab = Tab(browser, report_of(tmp_path, [record(0, 0, 1.0, items=items)]), "#task=0&rollout=0")
    assert tab.page.locator("#viewer .call .text").is_visible()
    assert "line 0" in tab.text("#viewer .call")
    assert tab.page.locator("#viewer .call .text").bounding_box()["height"] < 400
    tab.page.click(".show-all")
    assert tab.page.locator("#viewer .call .text").bounding_box()["height"] > 4000
    tab.close()


def test_the_headline_says_which_model_and_how(browser: Any, tmp_path: Path) -> None:
    rows = [called(task, at, 1.0) for task in range(3) for at in range(2)]
    for row in rows:
        row["response"] |= {"temperature": 0.7, "top_p": 0.9, "created_at": 1_760_000_000.0}
    tab = Tab(browser, report_of(tmp_path, rows))
    text = tab.text(".setup")
    for part in ("mock", "temperature 0.7", "top-p 0.9", "2 per task", "2025-10-09 08:53 UTC"):
        assert part in text
    tab.open(1, 0)
    assert "3 s" in tab.text("#viewer header")
    tab.close()


def test_the_slowest_tasks_go_by_the_latency_of_their_model_calls(browser: Any, tmp_path: Path) -> None:
    """'Records carry no durations', although they have latency_ms."""
    tab = Tab(browser, report_of(tmp_path, [called(task, 0, 1.0) for task in range(4)]))
    slowest = tab.text("figure:has-text('Slowest tasks')")
    assert "By mean seconds in model calls." in slowest
    assert slowest.index("\n3\t") < slowest.index("\n0\t")
    tab.page.click("text=All tasks in this order")
    assert tab.page.locator("#task-table tbody th").all_inner_texts() == ["3", "2", "1", "0"]
    tab.close()


def test_tokens_are_text_with_their_sources_and_ids_behind_a_button(browser: Any, tmp_path: Path) -> None:
    """The ledger was a wall of integers."""
    calls = [
        {
            "reason": "first",
            "delta": [1, 317, 15],
            "sources": [["template", 1], ["user", 2]],
            "sampled": [302, 63],
            "logprobs": [-0.5, -0.1],
            "finish": "stop",
        }
    ]
    ledger = {"schema_version": 1, "calls": calls, "model": "gymnast-embedded", "renderer": "bc4441c1465c279f"}
    rows = [record(0, 0, 1.0, _ng_token_ledger=ledger), record(0, 1, 1.0, _ng_token_ledger={**ledger, "renderer": "x"})]
    tab = Tab(browser, report_of(tmp_path, rows))
    tab.open(0, 0)
    summary = tab.page.locator("#viewer .tokens summary")
    assert summary.inner_text() == "tokens: 1 model call, 3 prompt tokens, 2 sampled and trainable"
    assert "1 317 15" not in tab.text("#viewer")
    summary.click()
    text = tab.text("#viewer .token-call")
    assert "template 1 · user 2 · sampled 2, trainable, mean logprob -0.3" in text
    tab.open(0, 1)
    tab.page.click("#viewer .tokens summary")
    assert "so they have no text here" in tab.text("#viewer .tokens")
    tab.page.click("text=Show ids")
    assert "302 63" in tab.text("#viewer .token-call")
    tab.close()


def test_images_of_a_prompt_are_shown_and_nothing_is_loaded(browser: Any, tmp_path: Path) -> None:
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    urls = [f"data:image/png;base64,{pixel}", "https://example.com/a.png", "data:image/svg+xml;base64,AAAA"]
    content = [{"type": "input_image", "image_url": url} for url in urls]
    tab = Tab(browser, report_of(tmp_path, [record(0, 0, 1.0, prompt=[{"role": "user", "content": content}])]))
    tab.page.evaluate("location.hash = 'task=0&rollout=0'")
    tab.until("document.querySelector('#viewer img')?.naturalWidth === 1")
    assert tab.page.locator("#viewer img").count() == 1
    assert tab.text("#viewer .turn.user").count("not in this file") == 2
    tab.close()


def test_excluded_rollouts_can_be_opened(browser: Any, tmp_path: Path) -> None:
    tab = Tab(browser, report_of(tmp_path, [*grid(2, 2), record(1, 7, None, "no verdict here")]))
    tab.open(1, 7)
    assert "excluded" in tab.text("#viewer header")
    assert "no verdict here" in tab.text("#viewer")
    tab.close()


def test_tasks_of_one_agent_can_be_listed(browser: Any, tmp_path: Path) -> None:
    rows = [{**record(task, 0, 1.0), "agent_ref": {"name": f"agent {task % 2}"}} for task in range(4)]
    tab = Tab(browser, report_of(tmp_path, rows, inputs=False))
    tab.page.select_option("#agent", label="agent 1")
    assert tab.page.locator("#task-table tbody th").all_inner_texts() == ["1", "3"]
    tab.close()


def test_an_open_transcript_is_printed_whole(browser: Any, tmp_path: Path) -> None:
    tab = Tab(browser, report_of(tmp_path, [record(0, 0, 1.0, "word\n" * 300)]), "#task=0&rollout=0")
    tab.page.emulate_media(media="print")
    assert not tab.page.locator("main").is_visible()
    assert tab.page.locator("#viewer .assistant .text").bounding_box()["height"] > 3000
    tab.close()
