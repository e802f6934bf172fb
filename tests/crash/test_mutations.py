"""The schedules notice when a sync, a lock or a check is missing: otherwise their silence would mean nothing."""

from __future__ import annotations

import pytest

from tests.crash.mutations import MUTATIONS, find_schedule


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_schedules_notice(name: str) -> None:
    assert find_schedule(MUTATIONS[name]) is not None
