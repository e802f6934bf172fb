"""Runs inside the sandbox, in the process of the tests: pytest with a plugin that reports each test's outcome.

Every line carries a secret that only this process knows. Reports go to a separate file, because standard output
belongs to the code under test.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123 - for as long as the process lives
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as `python -m pytest` does
    import pytest  # noqa: PLC0415 - before any code of the repository

    secret, channel, write = request["secret"], request["channel"], os.write
    files = [name for name in request["files"] if os.path.isfile(name)]  # noqa: PTH113 - as above
    request.clear()

    def tell(**fields: Any) -> None:
        write(channel, (json.dumps({"secret": secret, **fields}) + "\n").encode())

    class Reporter:
        def pytest_runtest_logreport(self, report: Any) -> None:
            tell(test=report.nodeid, when=report.when, outcome=report.outcome, xfail=hasattr(report, "wasxfail"))

        def pytest_sessionfinish(self) -> None:
            tell(end=True)

    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "--rootdir", os.getcwd()]  # noqa: PTH109 - as above
    pytest.main([*options, *files], plugins=[Reporter()])


main()
