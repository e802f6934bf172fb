"""Fixtures of the integration tests: commands and serves in this process, where one of their own is not the point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.helpers.command_functions import invoke_command
from tests.helpers.commands import Outcome
from tests.helpers.local_serve import LocalServe, serving_here


@pytest.fixture
def invoke(tmp_path: Path) -> Callable[..., Outcome]:
    """Calls one of our commands as a function, in the test's folder: invoke('gymnast', 'status')."""
    return partial(invoke_command, tmp_path)


@pytest.fixture
def serve_here(tmp_path: Path) -> Iterator[Callable[..., LocalServe]]:
    """Serves a configuration from this process until the test is over."""
    with ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(serving_here(tmp_path, *arguments, **options))
