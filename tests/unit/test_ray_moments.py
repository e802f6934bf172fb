"""Ray at moments when it is starting or ending something."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gymnast.executors.ray import get_actor, init_ray


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


ABORTED = ConnectionAbortedError("Starting Ray client server failed.")
REFUSED = ConnectionError("ray client connection timeout")


@pytest.mark.parametrize(
    ("address", "answers", "error", "left"),
    [
        ("ray://head:10001", [None], None, 0),
        ("ray://head:10001", [ABORTED, None], None, 1),
        ("ray://head:10001", [ABORTED] * 5, ABORTED, 5),
        ("ray://head:10001", [REFUSED], REFUSED, 1),
        ("head:6379", [ABORTED], ABORTED, 0),
    ],
)
def test_a_failed_client_connection_is_left_before_the_next(
    monkeypatch: pytest.MonkeyPatch, address: str, answers: list[Any], error: Exception | None, left: int
) -> None:
    remaining, disconnects = list(answers), []
    client = SimpleNamespace(ray=SimpleNamespace(disconnect=lambda: disconnects.append(1)))
    monkeypatch.setattr("gymnast.executors.ray.import_module", {"ray.util.client": client}.__getitem__)

    def init(own_address: str, **_: Any) -> None:
        assert own_address == address
        if (answer := remaining.pop(0)) is not None:
            raise answer

    if error is None:
        init_ray(SimpleNamespace(init=init), address)
    else:
        with pytest.raises(type(error), match=str(error)):
            init_ray(SimpleNamespace(init=init), address)
    assert (remaining, len(disconnects)) == ([], left)
