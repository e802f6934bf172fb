"""The studio for everyone: names, roles, contrast, headings and focus, in light, dark and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_studio_flows import A, B, rows_of
from tests.helpers.parts import AXE, needs
from tests.helpers.report_runs import failed, write_run
from tests.helpers.studio_browser import Studio, browsing, viewing

pytestmark = needs("chromium")
PAGES: list[tuple[str, dict[str, Any]]] = [
    ("runs", {}),
    ("run", {"run": A}),
    ("tasks", {"run": A}),
    ("rollouts", {"run": A, "q": "plus"}),
    ("task", {"run": A, "task": 3}),
    ("rollout", {"run": A, "task": 3, "rollout": 0}),
    ("rollout", {"run": A, "task": 40, "rollout": 0}),
    ("rollout", {"run": A, "task": 3, "rollout": 0, "view": "raw"}),
    ("side", {"run": A, "task": 3, "rollout": 0, "rollout2": 1}),
    ("compare", {"run": [A, B]}),
    ("doctor", {"run": A}),
]
PROBLEMS = (Path(__file__).parents[1] / "helpers" / "studio_access.js").read_text()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("runs")
    (root / "sweep").mkdir()
    write_run(root / "sweep", rows_of(0), name="baseline", failures=[failed(40, 0), failed(41, 1, "verifier_error")])
    write_run(root / "sweep", rows_of(1), name="candidate")
    with viewing(root) as address:
        yield address


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1360), ("dark", 1360), ("light", 390)], ids=["light", "dark", "phone"]
)
def test_every_control_has_a_name_and_every_text_enough_contrast(url: str, scheme: str, width: int) -> None:
    with browsing(color_scheme=scheme, viewport={"width": width, "height": 844}) as context:
        studio = Studio(context.new_page(), url)
        for name, params in PAGES:
            studio.go(name, **params)
            assert studio.page.evaluate(PROBLEMS) == [], (name, params)
        studio.behaves()


def test_the_studio_is_walked_with_the_keyboard_alone(url: str) -> None:
    with browsing() as context:
        studio = Studio(context.new_page(), url)
        studio.page.keyboard.press("Tab")
        assert studio.page.evaluate("document.activeElement.id") == "skip"
        studio.page.keyboard.press("Enter")
        assert studio.page.evaluate("document.activeElement.id") == "main"
        for _ in range(20):
            studio.page.keyboard.press("Tab")
            if studio.page.evaluate("document.activeElement.classList.contains('row-link')"):
                break
        outline = studio.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        studio.page.keyboard.press("Enter")
        studio.page.wait_for_selector(".cards .hero")
        studio.behaves()


@needs("axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(url: str, scheme: str) -> None:
    with browsing(color_scheme=scheme, bypass_csp=True) as context:
        studio = Studio(context.new_page(), url)
        studio.page.add_script_tag(path=AXE)
        for name, params in PAGES:
            studio.go(name, **params)
            told = studio.page.evaluate("axe.run().then((result) => result.violations)")
            serious = [
                (one["id"], one["nodes"][0]["html"][:160]) for one in told if one["impact"] in {"serious", "critical"}
            ]
            assert serious == [], (name, params)
