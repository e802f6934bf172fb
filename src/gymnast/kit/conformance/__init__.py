"""Conformance of environments: what every one must hold to, checked on a live one. See `gymnast.check_environment`."""

from gymnast.kit.conformance.cases import Case, parse_cases
from gymnast.kit.conformance.findings import Finding, Report, Result
from gymnast.kit.conformance.subject import Outcome, Subject, play
from gymnast.kit.conformance.suite import SuiteOptions, run_suite

__all__ = [
    "Case",
    "Finding",
    "Outcome",
    "Report",
    "Result",
    "Subject",
    "SuiteOptions",
    "parse_cases",
    "play",
    "run_suite",
]
