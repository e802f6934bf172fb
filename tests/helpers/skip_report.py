"""What was skipped and how to run it: listed at the end of a test run, and refused in CI where CI can have the part."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator

import pytest

from tests.helpers.parts import missing_part


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Of a skip: its last part, without pytest's own word."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def _refuse_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make a skip a failure unless its reason is a part that CI cannot have."""
    if not os.environ.get("CI") or not report.skipped or hasattr(report, "wasxfail"):
        return
    part = missing_part(_reason(report))
    if part is None or part.is_for_ci:
        report.outcome = "failed"
        report.longrepr = f"skipped, and CI skips nothing that it can run: {_reason(report)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_in_ci(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the skipped tests by reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    counts = Counter(_reason(report) for report in skipped)
    terminalreporter.section("skipped, and what makes them run")
    for reason, count in counts.most_common():
        terminalreporter.line(f"{count:5}  {reason}")
