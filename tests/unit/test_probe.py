"""What the first look at an endpoint says: about its key, and about the model's name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from gymnast.config import compose, read_environ
from gymnast.errors import StartError
from gymnast.runtime.probe import wait_for_endpoints

JUDGE = (
    "++judge.responses_api_models.vllm_model={entrypoint: app.py, base_url: 'http://one:1/v1', api_key: k2, model: big}"
)


class FakeClient:
    """Answers `/models` with a listing, if the key is right."""

    def __init__(self, *names: str, keys: tuple[str, ...] = (), listing: Any = None) -> None:
        self.listing = listing if listing is not None else {"data": [{"id": name} for name in names]}
        self.keys = keys
        self.requests = 0

    async def request(self, _method: str, _target: Any, headers: Any, *, idempotent: bool) -> Any:
        assert idempotent
        self.requests += 1
        key = dict(headers).get("authorization", "").removeprefix("Bearer ")
        status = 200 if not self.keys or key in self.keys else 401
        return SimpleNamespace(status=status, body=orjson.dumps(self.listing), header=lambda _name: None)


async def look(client: FakeClient, *overrides: str, key: str = "k1") -> list[str]:
    config = compose(
        read_environ({}),
        environments=["mcqa"],
        overrides=(f"+policy_api_key={key}", *overrides),
        model="goood",
        model_url="http://one:1/v1",
    ).require_valid()
    messages: list[str] = []
    await wait_for_endpoints(client, config.instances.values(), 1.0, messages.append)  # type: ignore[arg-type]
    return messages


async def test_a_model_that_the_endpoint_does_not_list_is_reported_before_anything_is_spent() -> None:
    (line,) = await look(FakeClient("good", "better"))
    assert line == "warning: the endpoint of 'policy_model' does not list a model 'goood': did you mean 'good'?"
    assert await look(FakeClient("goood")) == []


@pytest.mark.parametrize("listing", [{}, {"data": []}, {"data": "x"}, [], {"data": [{"name": "x"}, 3]}, {"data": None}])
async def test_an_endpoint_that_lists_nothing_is_taken_at_its_word(listing: Any) -> None:
    assert await look(FakeClient(listing=listing)) == []


async def test_a_judge_at_the_same_url_is_looked_at_too() -> None:
    client = FakeClient("goood")
    (line,) = await look(client, JUDGE)
    assert "the endpoint of 'judge' does not list a model 'big'" in line
    with pytest.raises(StartError, match="the endpoint of 'policy_model' refuses our key"):
        await look(FakeClient("goood", "big", keys=("k2",)), JUDGE)
    with pytest.raises(StartError, match="the endpoint of 'judge' refuses our key") as caught:
        await look(FakeClient("goood", "big", keys=("k1",)), JUDGE)
    assert "policy_api_key" not in str(caught.value)


async def test_a_key_that_is_missing_is_not_called_refused() -> None:
    with pytest.raises(StartError, match="needs a key, and none is set") as caught:
        await look(FakeClient(keys=("k1",)), key="''")
    assert "--model-key-name" in str(caught.value)
