"""Looking at servers from outside: is it up, is it ours, does the policy endpoint answer. Good means a good status."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import orjson

from gymnast.errors import StartError
from gymnast.wire.addresses import expanded
from gymnast.wire.http_client import target_of
from gymnast.wire.http_connection import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gymnast.config import Instance
    from gymnast.wire.http_client import HttpClient

ProbeStatus = Literal["success", "connection_error", "timeout", "bad_status"]


@dataclass(frozen=True, slots=True)
class Probe:
    """What a GET found."""

    status: ProbeStatus
    code: int | None = None
    body: Any = None
    said: str = ""

    @property
    def ok(self) -> bool:
        return self.status == "success"


async def probe(client: HttpClient, url: str, *, token: str | None = None, timeout_s: float = 2.0) -> Probe:
    """GET a URL once."""
    headers = (("authorization", f"Bearer {token}"),) if token else ()
    try:
        async with asyncio.timeout(timeout_s):
            answer = await client.request("GET", target_of(url), headers, repeatable=True)
    except TimeoutError:
        return Probe("timeout", said=f"no answer within {timeout_s:g} s")
    except TransportError as error:
        return Probe("connection_error", said=str(error))
    try:
        body = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        body = None
    if 200 <= answer.status < 300:
        return Probe("success", answer.status, body)
    return Probe("bad_status", answer.status, body, said=f"status {answer.status}")


def endpoint_urls(instances: Iterable[Instance]) -> dict[str, tuple[str, str]]:
    """The upstream endpoints of model instances: base URL -> (instance, API key)."""
    found: dict[str, tuple[str, str]] = {}
    for instance in instances:
        if instance.kind != "responses_api_models":
            continue
        key = next((str(value) for name, value in instance.settings.items() if name.endswith("api_key") and value), "")
        for name, value in instance.settings.items():
            if name.endswith("base_url") and value:
                for url in expanded(value):
                    found[str(url).rstrip("/")] = (instance.name, key)
    return found


async def wait_for_endpoints(
    client: HttpClient, instances: Iterable[Instance], timeout_s: float, say: Callable[[str], None]
) -> None:
    """Wait until every upstream endpoint answers well, or raise naming the first that does not."""
    if timeout_s <= 0:
        return
    deadline = time.monotonic() + timeout_s
    for url, (instance, key) in endpoint_urls(instances).items():
        await _wait_for_endpoint(client, url, instance, key, deadline, timeout_s, say)


async def _wait_for_endpoint(
    client: HttpClient, url: str, instance: str, key: str, deadline: float, timeout_s: float, say: Callable[[str], None]
) -> None:
    target = f"{url}/models" if url.endswith("/v1") else url
    told, pause = False, 0.1
    while True:
        found = await probe(client, target, token=key or None, timeout_s=min(10.0, timeout_s))
        if found.ok or found.code in {404, 405}:  # alive, but without that page: nothing more to learn here
            return
        if found.code in {401, 403}:
            raise StartError(
                f"the endpoint of '{instance}' refuses our key ({found.code})",
                where=target,
                next="check policy_api_key",
            )
        if time.monotonic() + pause > deadline:
            raise StartError(
                f"the endpoint of '{instance}' did not become ready within {timeout_s:g} s: {found.said}",
                where=target,
                next="start it, correct its URL, or wait longer: ++model_endpoint_readiness_timeout_seconds=600",
            )
        if not told:
            say(f"waiting up to {timeout_s:g} s for {target} ({found.said})")
            told = True
        await asyncio.sleep(pause)
        pause = min(pause * 2, 3.0)
