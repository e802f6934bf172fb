"""Conformance checks that every environment must pass, run on a live one. See `gymnast.check_environment`."""

from gymnast.checks.conformance.cases import Case, parse_cases
from gymnast.checks.conformance.results import CheckResult, EnvironmentResult
from gymnast.checks.conformance.subject import Outcome, Subject, play
from gymnast.checks.conformance.suite import SuiteOptions, run_suite

__all__ = [
    "Case",
    "CheckResult",
    "EnvironmentResult",
    "Outcome",
    "Subject",
    "SuiteOptions",
    "parse_cases",
    "play",
    "run_suite",
]
