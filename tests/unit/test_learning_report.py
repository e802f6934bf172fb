"""Learning curves as a page: every point is drawn and in the table, and nothing in it can run."""

from __future__ import annotations

from pathlib import Path

from gymnast.report.learning import Curve, Point, write_learning_report


def curve(name: str, *rewards: float) -> Curve:
    return Curve(
        name,
        [
            Point(10 * place, 60.0 * place, value, {"shop": value / 2, "sums": value * 1.5})
            for place, value in enumerate(rewards)
        ],
    )


def test_every_point_of_every_curve_is_drawn_and_in_the_table(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_learning_report(
        "Training", [curve("seed 1", 0.25, 0.75), curve("<b>control</b>", 0.25)], page, note="two runs"
    )
    text = page.read_text()
    assert text.count("<circle") == 3 * 3  # all points, in the whole and in both parts
    assert "seed 1, step 10: 0.750" in text
    assert "<td>0.375</td>" in text
    assert "&lt;b&gt;control&lt;/b&gt;" in text
    assert "<b>" not in text
    assert "<script" not in text


def test_a_training_that_has_not_started_is_an_empty_plot(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_learning_report("Training", [Curve("seed 1", [])], page)
    assert "<svg" in page.read_text()
