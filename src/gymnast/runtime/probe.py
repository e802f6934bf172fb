"""Probes servers from outside: a single GET, and waiting until policy endpoints answer."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from gymnast.errors import StartError
from gymnast.wire.addresses import are_published, expand_base_urls
from gymnast.wire.endpoint_errors import MEANINGS, Cause, Certainty, diagnose, diagnose_transport
from gymnast.wire.http_client import parse_target
from gymnast.wire.http_connection import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gymnast.config import Instance
    from gymnast.wire.http_client import Headers, HttpClient

_PERMANENT: Final = frozenset(
    {Cause.TLS_UNTRUSTED, Cause.TLS_ON_PLAIN, Cause.PLAIN_ON_TLS, Cause.REDIRECT, Cause.QUOTA}
)
"""What does not pass while waiting for an endpoint."""
ProbeStatus = Literal["success", "connection_error", "timeout", "bad_status"]


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of a GET."""

    status: ProbeStatus
    code: int | None = None
    body: Any = None
    detail: str = ""
    """Why it failed."""
    cause: Cause | None = None
    """What that means."""

    @property
    def ok(self) -> bool:
        return self.status == "success"


async def probe(
    client: HttpClient,
    url: str,
    *,
    token: str | None = None,
    headers: Headers = (),
    timeout_s: float = 2.0,
    external: bool = False,
) -> Probe:
    """GET a URL once. `external` ones may be reached through a proxy."""
    if token:
        headers = (*headers, ("authorization", f"Bearer {token}"))
    try:
        async with asyncio.timeout(timeout_s):
            reply = await client.request("GET", parse_target(url, external=external), headers, idempotent=True)
    except TimeoutError:
        return Probe("timeout", detail=f"no answer within {timeout_s:g} s")
    except TransportError as error:
        return Probe("connection_error", detail=str(error), cause=diagnose_transport(str(error)).cause)
    try:
        body = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        body = None
    if 200 <= reply.status < 300:
        return Probe("success", reply.status, body)
    location = reply.header("location")
    detail = f"status {reply.status}" + (f", a redirect to {location}" if location is not None else "")
    diagnosis = diagnose(reply.status, reply.body.decode("utf-8", errors="replace"))
    cause = None if diagnosis.certainty is Certainty.STATUS else diagnosis.cause
    return Probe("bad_status", reply.status, body, detail=detail, cause=cause)


@dataclass(frozen=True, slots=True)
class UpstreamEndpoint:
    """An endpoint that a model instance calls."""

    instance: str
    key: str
    headers: Headers
    """With the API key."""
    is_external: bool


def endpoint_urls(instances: Iterable[Instance]) -> dict[str, UpstreamEndpoint]:
    """The upstream endpoints of model instances, by base URL."""
    urls: dict[str, UpstreamEndpoint] = {}
    for instance in instances:
        if instance.kind != "responses_api_models":
            continue
        key = next((str(value) for name, value in instance.settings.items() if name.endswith("api_key") and value), "")
        for name, value in instance.settings.items():
            if name.endswith("base_url") and value:
                headers, is_external = _key_headers(instance, key), not are_published(value)
                for url in expand_base_urls(value):
                    urls[str(url).rstrip("/")] = UpstreamEndpoint(instance.name, key, headers, is_external)
    return urls


def _key_headers(instance: Instance, key: str) -> Headers:
    if not key:
        return ()
    if instance.implementation == "anthropic_model":
        return (("x-api-key", key), ("anthropic-version", "2023-06-01"))
    return (("authorization", f"Bearer {key}"),)


async def wait_for_endpoints(
    client: HttpClient, instances: Iterable[Instance], timeout_s: float, say: Callable[[str], None]
) -> None:
    """Wait until every upstream endpoint answers. Raises StartError for the first that does not."""
    if timeout_s <= 0:
        return
    deadline = time.monotonic() + timeout_s
    for url, endpoint in endpoint_urls(instances).items():
        await _wait_for_endpoint(client, url, endpoint, deadline, timeout_s, say)


async def _wait_for_endpoint(
    client: HttpClient,
    url: str,
    endpoint: UpstreamEndpoint,
    deadline: float,
    timeout_s: float,
    say: Callable[[str], None],
) -> None:
    instance = endpoint.instance
    target = f"{url}/models" if url.endswith("/v1") else url
    is_announced, pause_s = False, 0.1
    while True:
        result = await probe(
            client,
            target,
            headers=endpoint.headers,
            timeout_s=min(10.0, timeout_s),
            external=endpoint.is_external,
        )
        if result.ok or result.code in {404, 405}:  # up, but without that page
            return
        if result.cause in _PERMANENT:
            meaning = MEANINGS[result.cause]
            raise StartError(
                f"the endpoint of '{instance}' cannot be used: {meaning.reason} ({result.detail})",
                where=target,
                next=meaning.action.replace("{endpoint}", url),
            )
        if result.code in {401, 403}:
            raise StartError(
                f"the endpoint of '{instance}' refuses our key ({result.code})",
                where=target,
                next="check policy_api_key",
            )
        if time.monotonic() + pause_s > deadline:
            raise StartError(
                f"the endpoint of '{instance}' did not become ready within {timeout_s:g} s: {result.detail}",
                where=target,
                next="start it, correct its URL, or wait longer: ++model_endpoint_readiness_timeout_seconds=600",
            )
        if not is_announced:
            say(f"waiting up to {timeout_s:g} s for {target} ({result.detail})")
            is_announced = True
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, 3.0)
