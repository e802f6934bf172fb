"""Probes servers from outside: a single GET, and waiting until policy endpoints answer."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from gymnast.errors import StartError, suggest
from gymnast.wire.addresses import are_published, expand_base_urls
from gymnast.wire.endpoint_errors import MEANINGS, Cause, Certainty, diagnose, diagnose_transport
from gymnast.wire.http_client import parse_target
from gymnast.wire.http_connection import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gymnast.config import Instance
    from gymnast.wire.http_client import Headers, HttpClient

_PERMANENT: Final = frozenset(
    {Cause.TLS_UNTRUSTED, Cause.TLS_ON_PLAIN, Cause.PLAIN_ON_TLS, Cause.REDIRECT, Cause.QUOTA}
)
"""What does not pass while waiting for an endpoint."""
_NOT_UP: Final = frozenset({401, 408, 421, 423, 425})
"""Statuses below 500 that refuse the key, or that pass while waiting."""
CONTEXT_KEYS: Final = ("max_model_len", "context_length", "context_window", "max_context_length", "n_ctx")
"""Where lists of models have the context length."""
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


async def probe_server(client: HttpClient, url: str, *, token: str | None = None, timeout_s: float = 2.0) -> Probe:
    """Whether a server answers. It need not have a page at its root: NeMo Gym's step servers have none."""
    result = await probe(client, url, token=token, timeout_s=timeout_s)
    has_answered = result.code is not None and result.code < 500 and result.code != 401
    return Probe("success", result.code, result.body) if has_answered else result


@dataclass(frozen=True, slots=True)
class UpstreamEndpoint:
    """An endpoint that a model instance calls."""

    instance: str
    model: str
    """The name that it sends; empty if unknown."""
    key: str
    headers: Headers
    """With the API key."""
    is_external: bool


def endpoint_urls(instances: Iterable[Instance]) -> dict[str, UpstreamEndpoint]:
    """The upstream endpoints of model instances, by base URL."""
    return dict(_upstream_endpoints(instances))


def _upstream_endpoints(instances: Iterable[Instance]) -> Iterator[tuple[str, UpstreamEndpoint]]:
    """Base URL and endpoint of each model instance; two may have the same URL and differ in key or model."""
    for instance in instances:
        if instance.kind != "responses_api_models":
            continue
        settings = instance.settings
        key = next((str(value) for name, value in settings.items() if name.endswith("api_key") and value), "")
        model = next((str(settings[name]) for name in ("model", "openai_model") if settings.get(name)), "")
        for name, value in settings.items():
            if name.endswith("base_url") and value:
                headers, is_external = _key_headers(instance, key), not are_published(value)
                for url in expand_base_urls(value):
                    yield str(url).rstrip("/"), UpstreamEndpoint(instance.name, model, key, headers, is_external)


def _key_headers(instance: Instance, key: str) -> Headers:
    if not key:
        return ()
    if instance.implementation == "anthropic_model":
        return (("x-api-key", key), ("anthropic-version", "2023-06-01"))
    return (("authorization", f"Bearer {key}"),)


async def wait_for_endpoints(
    client: HttpClient, instances: Iterable[Instance], timeout_s: float, say: Callable[[str], None]
) -> dict[str, int]:
    """Wait until every upstream endpoint answers. Raises StartError for the first that does not.

    Says if an endpoint does not list the model that it will be asked for: it may accept it all the same. Returns the
    largest context length that the endpoints of an instance list for its model.
    """
    contexts: dict[str, int] = {}
    if timeout_s <= 0:
        return contexts
    deadline = time.monotonic() + timeout_s
    replies: dict[tuple[str, Headers], Probe] = {}
    warned: set[tuple[str, str]] = set()
    for url, endpoint in _upstream_endpoints(instances):
        page = (url, endpoint.headers)
        if page not in replies:
            replies[page] = await _wait_for_endpoint(client, url, endpoint, deadline, timeout_s, say)
        listing = replies[page].body
        length = find_context(endpoint.model, listing)
        if length is not None:
            contexts[endpoint.instance] = max(length, contexts.get(endpoint.instance, 0))
        problem = _find_unlisted_model(endpoint, listing)
        if problem is not None and (endpoint.instance, endpoint.model) not in warned:  # once for all replicas
            warned.add((endpoint.instance, endpoint.model))
            say(f"warning: {problem}")
    return contexts


def find_context(model: str, listing: Any) -> int | None:
    """The context length in tokens that a list of models gives for one of them, or None."""
    entries = listing.get("data") if isinstance(listing, dict) else None
    entry = next((entry for entry in entries or () if isinstance(entry, dict) and entry.get("id") == model), None)
    values = (entry.get(key) for key in CONTEXT_KEYS) if entry is not None else ()
    return next((value for value in values if isinstance(value, int) and value > 0), None)


def _find_unlisted_model(endpoint: UpstreamEndpoint, listing: Any) -> str | None:
    entries = listing.get("data") if isinstance(listing, dict) else None
    names = [str(entry["id"]) for entry in entries or () if isinstance(entry, dict) and "id" in entry]
    if not names or not endpoint.model or endpoint.model in names:
        return None
    hint = suggest(endpoint.model, names)
    return f"the endpoint of '{endpoint.instance}' does not list a model '{endpoint.model}': {hint}"


async def _wait_for_endpoint(
    client: HttpClient,
    url: str,
    endpoint: UpstreamEndpoint,
    deadline: float,
    timeout_s: float,
    say: Callable[[str], None],
) -> Probe:
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
        if result.ok or _is_up_without_page(result):
            return result
        if result.cause in _PERMANENT:
            meaning = MEANINGS[result.cause]
            raise StartError(
                f"the endpoint of '{instance}' cannot be used: {meaning.reason} ({result.detail})",
                where=target,
                next=meaning.action.replace("{endpoint}", url),
            )
        if result.code in {401, 403}:
            raise _refused_key(endpoint, result, target)
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


def _is_up_without_page(result: Probe) -> bool:
    """Whether an endpoint is up and only the page that was asked for is missing, limited or not permitted."""
    if result.code is None or result.cause in _PERMANENT or result.cause is Cause.LOADING:
        return False
    if result.code == 403:  # a key may be restricted to completions
        return result.cause is Cause.ACCESS_DENIED
    return result.code == 501 or (400 <= result.code < 500 and result.code not in _NOT_UP)


def _refused_key(endpoint: UpstreamEndpoint, result: Probe, target: str) -> StartError:
    is_policy = endpoint.instance == "policy_model"
    if endpoint.key:
        what = f"the endpoint of '{endpoint.instance}' refuses our key ({result.code})"
        hint = "check policy_api_key, or the key that --model-key-name names" if is_policy else "check its api_key"
        return StartError(what, where=target, next=hint)
    hint = (
        "put it into your keys file and pass --model-key-name NAME, or set policy_api_key in env.yaml"
        if is_policy
        else "set its api_key"
    )
    return StartError(
        f"the endpoint of '{endpoint.instance}' needs a key, and none is set ({result.code})", where=target, next=hint
    )
