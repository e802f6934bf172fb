"""Reads the results of tests from logs, and says whether they resolve an instance: NeMo Gym's rules, which are
SWE-bench's. Pure.

Logs are what programs print, so a program can print results that it does not have; strict scoring does not use them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

FULL: Final = "RESOLVED_FULL"
PARTIAL: Final = "RESOLVED_PARTIAL"
NO: Final = "RESOLVED_NO"
_STATUSES: Final = ("FAILED", "PASSED", "SKIPPED", "ERROR")
_FAILURES: Final = (
    *("error: patch", "Reset Failed", "Tests Errored", "Tests Timed Out"),
    *("Failed to reset task environment", "Could not fix"),
)
_COLOR: Final = re.compile(r"\[(\d+)m")
_PERCENT: Final = re.compile(r"\s*\[\s*\d+\s*%\s*\]$")
_CONTROLS: Final = dict.fromkeys(range(1, 32))
_PARAMETERS: Final = re.compile(r"(.*?)\[(.*)\]")
_SYMPY_FAILURE: Final = re.compile(r"(_*) (.*)\.py:(.*) (_*)")
_DJANGO_PASSED: Final = (" ... ok", " ... OK", " ...  OK", "... OK")
_DJANGO_INTERRUPTED: Final = (
    re.compile(r"^(.*?)\s\.\.\.\sTesting against Django installed in (?s:.*?) silenced\)\.\nok$", re.MULTILINE),
    re.compile(r"^(.*?)\s\.\.\.\sInternal Server Error: /.*/\nok$", re.MULTILINE),
    re.compile(r"^(.*?)\s\.\.\.\sSystem check identified no issues \(0 silenced\)\nok$", re.MULTILINE),
)
_SCIKIT_PARAMETER: Final = r".*\\(1"
Results = dict[str, str]


def resolution(log: str, instance: Mapping[str, Any], results: Results | None = None) -> str:
    """The resolution of an instance whose whole log is given; `results` if its own parser has read them."""
    if not is_patched(log):
        return NO
    if results is None:
        results = PARSERS.get(str(instance["repo"]).rsplit("/", 1)[-1], read_pytest)(log)
    fixed = _share(names_of(instance, "FAIL_TO_PASS"), results)
    kept = _share([name.replace(_SCIKIT_PARAMETER, "") for name in names_of(instance, "PASS_TO_PASS")], results)
    if kept < 1 or fixed == 0:
        return NO
    return FULL if fixed == 1 else PARTIAL


def is_patched(log: str) -> bool:
    """Whether a patch was applied and nothing is known to have failed before the tests."""
    return "applied patch" in log.lower() and not any(text in log for text in _FAILURES)


def names_of(instance: Mapping[str, Any], key: str) -> list[str]:
    """The tests of a list that may be JSON text, and may have one of three names."""
    for name in (key, f"{key.lower()}_select", key.lower()):
        if name in instance:
            value = instance[name]
            return json.loads(value) if isinstance(value, str) else value  # type: ignore[no-any-return]
    return []


def _share(names: Sequence[str], results: Results) -> float:
    """The share of tests that passed; skipped ones are left out."""
    passed = sum(results.get(name) == "PASSED" for name in names)
    failed = sum(results.get(name, "FAILED") in {"FAILED", "ERROR"} for name in names)
    return passed / (passed + failed) if passed + failed else 1.0


def read_pytest(log: str) -> Results:
    """Lines such as `PASSED tests/test_a.py::test_b`, or the other way round as older versions print them."""
    return _read_pytest(log, _clean, _test_name)


def read_plain_pytest(log: str) -> Results:
    """The same for pytest's own tests, whose names may contain anything."""
    return _read_pytest(log, str, str)


def _read_pytest(log: str, clean: Callable[[str], str], name: Callable[[str], str]) -> Results:
    results: Results = {}
    for raw in log.split("\n"):
        line = clean(raw)
        if line.startswith(_STATUSES):
            words = (line.replace(" - ", " ") if line.startswith("FAILED") else line).split()
            if len(words) > 1:
                results[name(words[1])] = words[0]
        elif line.endswith(_STATUSES):
            words = line.split()
            if len(words) > 1:
                results[name(words[0])] = words[1]
    return results


def _clean(line: str) -> str:
    line = _PERCENT.sub("", _COLOR.sub("", line)).translate(_CONTROLS)
    return line.replace("MouseButton.LEFT", "1").replace("MouseButton.RIGHT", "3")


def _test_name(text: str) -> str:
    """A test's name; of a parameter that is a path, only the last part."""
    match = _PARAMETERS.search(text)
    if not match:
        return text
    main, option = match.groups()
    if option.startswith("/") and not option.startswith("//") and "*" not in option and "-/" not in option:
        option = "/" + option.split("/")[-1]
    return f"{main}[{option}]"


def read_django(log: str) -> Results:
    """Lines such as `test_a (app.tests.ATests) ... ok`."""
    results: Results = {}
    last: str | None = None
    for raw in log.split("\n"):
        line = raw.strip().replace("…", "...")
        if " ... " in line:
            last = line.split(" ... ")[0]
        _read_django_line(line, results)
        if line.startswith("ok") and last is not None:  # it printed something before its result
            results[last] = "PASSED"
    for pattern in _DJANGO_INTERRUPTED:
        results.update({match[1]: "PASSED" for match in pattern.finditer(log)})
    return results


def _read_django_line(line: str, results: Results) -> None:
    suffix = next((suffix for suffix in _DJANGO_PASSED if line.endswith(suffix)), None)
    if suffix is not None:
        passed = line
        if line.startswith("Applying sites.0002_alter_domain_unique...test_no_migrations"):
            passed = line.split("...", 1)[-1].strip()
        results[passed.rsplit(suffix, 1)[0]] = "PASSED"
    if " ... skipped" in line:
        results[line.split(" ... skipped", maxsplit=1)[0]] = "SKIPPED"
    for ending, start, status in ((" ... FAIL", "FAIL:", "FAILED"), (" ... ERROR", "ERROR:", "ERROR")):
        if line.endswith(ending):
            results[line.split(ending, maxsplit=1)[0]] = status
        if line.startswith(start):
            results[line.split()[1].strip()] = status


def read_sympy(log: str) -> Results:
    """Lines such as `test_a ok`, and headings of failures such as `___ sympy/a.py:test_a ___`."""
    results = {f"{match[1]}.py:{match[2]}": "FAILED" for match in _SYMPY_FAILURE.findall(log)}
    for raw in log.split("\n"):
        line = raw.replace("[OK]", "").replace("[FAIL]", "").strip()
        words = line.split()
        if line.startswith("test_"):
            for ending, status in ((" E", "ERROR"), (" F", "FAILED"), (" ok", "PASSED")):
                if line.endswith(ending):
                    results[words[0]] = status
        elif "PASSED" in line and len(words) > 1:
            results[words[1] if words[0] == "PASSED" else words[0]] = "PASSED"
    return results


PARSERS: Final[dict[str, Callable[[str], Results]]] = {
    "sympy": read_sympy,
    "django": read_django,
    "pytest": read_plain_pytest,
}
