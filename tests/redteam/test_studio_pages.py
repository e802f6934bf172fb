"""Attacks on people who look at a run in the studio: in prompts, answers, tools, agents, labels, file names, addresses.

Each is shown as text. Nothing runs, nothing is loaded from elsewhere, no dialog opens, no element of the attacker's
making exists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.helpers.parts import needs
from tests.helpers.report_runs import HOSTILE, failed, hostile_records, record, write_run
from tests.helpers.studio_browser import Studio, browsing, serving_files, viewing

pytestmark = needs("chromium")
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
MARKDOWN = (
    "[click](javascript:window.pwned=20)",
    "![x](http://127.0.0.1:9/leak.png)",
    "[x]: javascript:window.pwned=21\n\n[x]",
    "<a href='javascript:window.pwned=22'>x</a> <img src=http://127.0.0.1:9/y.png>",
    "$\\href{javascript:window.pwned=23}{x}$ $\\text{<img src=x onerror=pwned=24>}$",
    "$$\\begin{matrix}<script>window.pwned=25</script>\\end{matrix}$$",
    "```html\n<script>window.pwned=26</script>\n```",
    "| <img src=x onerror='window.pwned=27'> | b |\n|---|---|\n| <svg onload='window.pwned=28'> | x |",
    "`<script>window.pwned=29</script>` **<b onclick='pwned=30'>x</b>** _<i>_</i>_",
    "https://user:pass@127.0.0.1:9/ <javascript:window.pwned=31>",
    "*" * 4000 + "_" * 4000 + "`" * 3001 + "[" * 3000,
    "> " * 2000 + "deep",
    "- " * 2000 + "deep",
    "$" + "{" * 1500 + "}" * 1500 + "$",
    "\\[" * 500 + "x" + "\\]" * 500,
    "|" * 3000 + "\n" + "|-" * 3000,
)
NAME = "<img src=x onerror=pwned=40>"
ELEMENTS = frozenset(
    re.findall(
        r"\w+",
        "a article aside b blockquote br button caption circle code col dd details dialog div dl dt em "
        "fieldset figcaption figure form h1 h2 h3 h4 hr i img input label legend li line main math mfrac mi "
        "mn mo mover mroot mrow mspace msqrt msub msubsup msup mtable mtd mtext mtr munder munderover "
        "semantics nav ol option output p polygon polyline pre rect s section select small span strong sub "
        "summary svg table tbody td text textarea th thead title tr ul",
    )
)
"""All that the studio itself makes."""


def markdown_records() -> list[dict[str, Any]]:
    return [record(100 + at, 0, 1.0, text, prompt=text, verdict=text[:200]) for at, text in enumerate(MARKDOWN)]


def image_records() -> list[dict[str, Any]]:
    urls = [
        "http://127.0.0.1:9/leak.png",
        "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9InB3bmVkPTEiLz4=",
        "data:text/html;base64,PHNjcmlwdD5wd25lZD0xPC9zY3JpcHQ+",
        "javascript:pwned=41",
        "file:///etc/passwd",
        PIXEL,
    ]
    parts = [{"type": "input_image", "image_url": url} for url in urls]
    return [record(200, 0, 1.0, prompt=[{"role": "user", "content": [*parts, {"type": "input_text", "text": "look"}]}])]


def tool_records() -> list[dict[str, Any]]:
    tools = [
        {"type": "function", "name": text[:80], "description": text, "parameters": {text[:40]: text}}
        for text in HOSTILE
    ]
    row = record(201, 0, 1.0)
    row.update({"</script><script>pwned=42</script>": NAME, "__proto__": NAME, "constructor": NAME})
    row["responses_create_params"]["tools"] = tools
    return [row]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    lost = [failed(300 + at, 1, text[:60], message=text, body=text) for at, text in enumerate(HOSTILE)]
    rows = [*hostile_records(), *markdown_records(), *image_records(), *tool_records()]
    write_run(root, rows, name=NAME, failures=lost)
    write_run(root, hostile_records(), name="other")
    (root / "${pwned} javascript:pwned=43 #?&=%2e%2e'\"").mkdir()
    write_run(root / "${pwned} javascript:pwned=43 #?&=%2e%2e'\"", rows[:4], name="a'b\"c<script>pwned=44<")
    labels = [
        {"task": at, "rollout": 1, "label": text[:60], "note": text, "by": text[:40], "at": 1794911500.1}
        for at, text in enumerate(HOSTILE)
    ]
    (root / f"{NAME}_annotations.jsonl").write_text("".join(json.dumps(label) + "\n" for label in labels))
    return root


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
    yield shared
    made = set(shared.page.evaluate("[...document.querySelectorAll('main, main *')].map((node) => node.localName)"))
    assert made <= ELEMENTS, made - ELEMENTS
    attributes = shared.page.evaluate(
        "[...document.querySelectorAll('main *')].flatMap((node) => node.getAttributeNames())"
        ".filter((name) => name.startsWith('on') || ['srcdoc', 'formaction', 'xlink:href'].includes(name))"
    )
    assert attributes == []
    images = shared.page.evaluate("[...document.images].map((node) => node.getAttribute('src'))")
    assert all(image == PIXEL for image in images)
    links = shared.page.evaluate(
        "[...document.querySelectorAll('main [href]')].map((node) => node.getAttribute('href'))"
    )
    assert all(link.startswith(("#/", "api/download?")) for link in links)
    assert shared.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shared.behaves()


def visit(studio: Studio, name: str, **params: Any) -> None:
    studio.go(name, **params)
    studio.page.evaluate(
        "document.querySelectorAll('main details:not(.menu)').forEach((node) => { node.open = true; })"
    )


def test_file_names_are_text_in_every_page(studio: Studio) -> None:
    visit(studio, "runs")
    expect(studio.at(".row-link", has_text=NAME)).to_have_count(1)
    for page in ("run", "tasks", "rollouts", "doctor"):
        visit(studio, page, run=NAME)
        expect(studio.at("h1")).to_have_text(NAME)
    names = studio.page.evaluate(
        "fetch('api/runs').then((answer) => answer.json()).then((all) => all.runs.map((run) => run.id))"
    )
    for name in names:
        visit(studio, "run", run=name)
        expect(studio.at("h1")).to_have_text(name)


@pytest.mark.parametrize("task", range(len(HOSTILE)))
def test_what_models_tools_agents_and_labels_say_is_text(studio: Studio, task: int) -> None:
    visit(studio, "rollout", run=NAME, task=task, rollout=1)
    text = HOSTILE[task]
    if text.isascii() and text.isprintable() and len(text) < 100:
        studio.page.keyboard.press("r")
        expect(studio.at(".turn.assistant .text").last).to_have_text(text)
        expect(studio.at(".turn.call .name").first).to_have_text(text)
        expect(studio.at(".labels button[aria-pressed=true]")).to_have_text(text[:60])
        studio.page.keyboard.press("r")


@pytest.mark.parametrize("at", range(len(MARKDOWN)))
def test_markdown_and_formulas_make_no_links_and_load_nothing(studio: Studio, at: int) -> None:
    visit(studio, "rollout", run=NAME, task=100 + at, rollout=0)
    expect(studio.at(".turn.assistant")).to_be_visible()
    assert studio.at(".turn a, .turn img").count() == 0


def test_only_embedded_images_are_shown(studio: Studio) -> None:
    visit(studio, "rollout", run=NAME, task=200, rollout=0)
    expect(studio.at("img.shown")).to_have_count(1)
    assert studio.at("img.shown").get_attribute("src") == PIXEL


def test_tools_and_fields_with_hostile_names(studio: Studio) -> None:
    visit(studio, "rollout", run=NAME, task=201, rollout=0)
    expect(studio.at(".facts").first).to_be_visible()
    visit(studio, "rollout", run=NAME, task=201, rollout=0, view="raw")
    expect(studio.at("pre.raw")).to_contain_text("pwned=42")


def test_failures_say_hostile_things(studio: Studio) -> None:
    for at in range(0, len(HOSTILE), 3):
        visit(studio, "rollout", run=NAME, task=300 + at, rollout=1)
        expect(studio.at(".turn.failure")).to_be_visible()


def test_tables_with_all_of_it(studio: Studio) -> None:
    for name, params in (
        ("rollouts", {"q": "<script>"}),
        ("rollouts", {"f": "state=failed"}),
        ("rollouts", {"f": "label!="}),
        ("tasks", {"sort": "-mean"}),
        ("rollouts", {"f": "</script><script>pwned=45</script>=<img src=x onerror=pwned=46>"}),
        ("rollouts", {"q": '"><img src=x onerror=pwned=47>', "columns": "task,<b>", "sort": "-task"}),
    ):
        studio.expected = ("Failed to load resource",)
        visit(studio, name, run=NAME, **params)
        expect(studio.at("table.rows")).to_be_visible()
        studio.page.wait_for_timeout(60)
    studio.expected = ()


def test_comparison_and_two_transcripts_side_by_side(studio: Studio) -> None:
    visit(studio, "compare", run=[NAME, "other"])
    expect(studio.at(".sentence")).to_be_visible()
    visit(studio, "side", run=NAME, task=1, rollout=0, run2="other", rollout2=0)
    expect(studio.at(".side-by-side > section")).to_have_count(2)


@pytest.mark.parametrize(
    "address",
    [
        "#/<img src=x onerror=pwned=50>",
        "#javascript:pwned=51",
        "#/run?run=<script>pwned=52</script>",
        "#/rollout?run=other&task=<svg onload=pwned=53>&rollout=0",
        "#/rollout?run=other&task=0&rollout=0&view=javascript:pwned=54",
        "#/run?run=../../../../etc/passwd",
        "#/compare?run=__proto__&run=constructor",
        "#/__proto__",
        "#/constructor?run=toString",
        "#/side?run=other&task=0&run2=javascript:pwned=55",
        "#/%E0%A4%A",
    ],
)
def test_hostile_addresses_show_a_page_and_run_nothing(studio: Studio, address: str) -> None:
    studio.expected = ("Failed to load resource",)
    studio.page.evaluate("(hash) => { location.hash = '#/none'; location.hash = hash; }", address)
    studio.page.wait_for_timeout(250)
    assert len(studio.at("main").inner_text()) > 20
    studio.page.evaluate("location.hash = '#/runs'")
    expect(studio.at("h1")).to_have_text("Runs")
    studio.expected = ()


def test_a_label_typed_in_the_page_stays_text(studio: Studio) -> None:
    visit(studio, "rollout", run="other", task=2, rollout=1)
    studio.page.get_by_label("Note", exact=True).fill("</textarea><script>window.pwned = 60</script>")
    studio.at("button", has_text="Save note").click()
    expect(studio.at(".saved")).to_contain_text("Saved")
    visit(studio, "rollout", run="other", task=2, rollout=1)
    expect(studio.page.get_by_label("Note", exact=True)).to_have_value("</textarea><script>window.pwned = 60</script>")


def test_should_an_escape_ever_be_forgotten_the_policy_refuses_it(browser: Any, url: str) -> None:
    studio = Studio(browser.new_page(), url)
    tried = studio.page.evaluate(
        """() => {
            const outcomes = [];
            const attempt = (act) => { try { act(); outcomes.push("done"); } catch { outcomes.push("refused"); } };
            attempt(() => { document.body.innerHTML += "<img src=x onerror='window.pwned=70'>"; });
            attempt(() => {
              const node = document.createElement("script");
              node.textContent = "window.pwned = 72";
              document.body.append(node);
            });
            attempt(() => {
              const node = document.createElement("div");
              node.setAttribute("onclick", "window.pwned = 73");
              document.body.append(node);
              node.click();
            });
            return outcomes;
        }"""
    )
    assert tried[0] == "refused"
    studio.page.wait_for_timeout(100)
    assert studio.page.evaluate("window.pwned === undefined")


def test_a_page_of_another_site_gets_nothing(browser: Any, url: str, tmp_path: Path) -> None:
    """A hostile page on the same machine: it can neither read the studio, nor frame it, nor label anything."""
    origin = url.split("?", maxsplit=1)[0]
    (tmp_path / "index.html").write_text(f"<h1>evil</h1><iframe src='{origin}'></iframe>")
    script = """async (origin) => {
        const attempts = [
            fetch(origin + "api/runs", {credentials: "include"}),
            fetch(origin + "api/control", {method: "POST", credentials: "include", body: "{}"}),
            fetch(origin + "api/annotations", {method: "POST", credentials: "include", mode: "no-cors", body: "{}"}),
        ];
        const outcome = (answer) => (answer.type === "opaque" ? "opaque" : answer.status);
        return Promise.all(attempts.map((one) => one.then(outcome, () => "refused")));
    }"""
    with serving_files(tmp_path) as evil:
        Studio(browser.new_page(), url).page.close()
        page = browser.new_page()
        statuses: list[int] = []
        page.on(
            "response", lambda answer: statuses.append(answer.status) if answer.url.startswith(origin + "api") else None
        )
        page.goto(evil)
        outcomes = page.evaluate(script, origin)
        assert outcomes[:2] == ["refused", "refused"]
        assert all(status >= 400 for status in statuses), statuses
        frame = page.frames[-1]
        assert "Runs" not in (frame.locator("body").inner_text() if frame.url.startswith(origin) else "")
