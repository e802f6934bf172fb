"""Looking up an actor of Ray that is about to end."""

from __future__ import annotations

from typing import Any

import pytest

from gymnast.executors.ray import get_actor


class EndingRay:
    """Ray that has forgotten the class of an actor before its name."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def get_actor(self, name: str, namespace: str) -> Any:
        assert (name, namespace) == ("job_0", "gymnast")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


FORGOTTEN = AssertionError("Expected str or bytes, got <class 'NoneType'>")
GONE = ValueError("Failed to look up actor with name 'job_0'")


@pytest.mark.parametrize(
    ("answers", "actor"),
    [
        (["actor"], "actor"),
        ([GONE], None),
        ([FORGOTTEN, FORGOTTEN, GONE], None),
        ([FORGOTTEN, "actor"], "actor"),
        ([FORGOTTEN] * 10, None),
    ],
)
def test_an_actor_that_is_ending_has_ended(answers: list[Any], actor: str | None) -> None:
    assert get_actor(EndingRay(*answers), "job_0", pause_s=0) == actor
