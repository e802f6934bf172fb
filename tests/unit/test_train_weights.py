"""Weights of vLLM and SGLang servers: which requests an update makes, and what happens if servers fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from gymnast.errors import UserError
from gymnast.train import EngineWeights, PolicyVersions, SglangWeights, VllmWeights, WeightUpdateError
from gymnast.wire.http_client import HttpClient

Reply = tuple[int, dict[str, Any]]


class Engine:
    """A server that answers as vLLM 0.32 (dev mode) and SGLang 0.5.9 do, and refuses what they refuse."""

    def __init__(self, *, broken: str = "") -> None:
        self.broken = broken
        self.requests: list[tuple[str, Any]] = []
        self.is_paused = False
        self.weights, self.label = "old", "step-0"

    def answer(self, target: str, body: Any) -> Reply:
        path = urlsplit(target).path
        self.requests.append((target, body))
        if path == self.broken:
            return 500, {"error": "CUDA out of memory"}
        handler = getattr(self, f"on{path.replace('/', '_')}", None)
        return handler(target, body) if handler is not None else (404, {"detail": "Not Found"})

    def on_pause(self, target: str, _: Any) -> Reply:
        assert urlsplit(target).query in {"mode=keep", "mode=abort", "mode=wait"}
        self.is_paused = True
        return 200, {"status": "paused"}

    def on_resume(self, *_: Any) -> Reply:
        self.is_paused = False
        return 200, {"status": "resumed"}

    def on_collective_rpc(self, _: str, body: Any) -> Reply:
        if "method" not in body:
            return 400, {"detail": "Missing 'method' in request body"}
        assert (body["method"], self.is_paused) == ("reload_weights", True)
        self.weights = body["kwargs"]["weights_path"]
        return 200, {"results": [None]}

    def on_init_weight_transfer_engine(self, _: str, body: Any) -> Reply:
        return (
            (200, {"message": "Weight transfer initialized"}) if "init_info" in body else (400, {"detail": "Missing"})
        )

    def on_start_weight_update(self, *_: Any) -> Reply:
        self.weights = ""
        return 200, {"message": "Weight update started"}

    def on_update_weights(self, _: str, body: Any) -> Reply:
        self.weights += body["update_info"]["names"]
        return 200, {"message": "Weights updated"}

    def on_finish_weight_update(self, _: str, body: Any) -> Reply:
        self.label = body["weight_version"]
        return 200, {"message": "Weight update finished"}

    def on_update_weight_version(self, _: str, body: Any) -> Reply:
        self.label = body["new_version"]
        return 200, {"success": True, "new_version": body["new_version"]}

    def on_pause_generation(self, _: str, body: Any) -> Reply:
        if body["mode"] not in {"abort", "retract", "in_place"}:
            return 422, {"detail": "mode"}
        self.is_paused = True
        return 200, {"message": "Generation paused successfully.", "status": "ok"}

    def on_continue_generation(self, *_: Any) -> Reply:
        self.is_paused = False
        return 200, {"message": "Generation continued successfully.", "status": "ok"}

    def on_update_weights_from_disk(self, _: str, body: Any) -> Reply:
        assert self.is_paused
        if body["model_path"] == "/nowhere":
            return 400, {"success": False, "message": "Failed to get model config: /nowhere", "num_paused_requests": 0}
        self.weights, self.label = body["model_path"], body["weight_version"]
        return 200, {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0}


@asynccontextmanager
async def serving(*engines: Engine, says_close: bool = True) -> AsyncIterator[list[str]]:
    closing = "connection: close\r\n" if says_close else ""

    def serve(engine: Engine) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:"))
            body = await reader.readexactly(length)
            status, reply = engine.answer(head.split(" ")[1], json.loads(body) if body else None)
            data = json.dumps(reply).encode()
            writer.write(f"HTTP/1.1 {status} X\r\n{closing}content-length: {len(data)}\r\n\r\n".encode() + data)
            await writer.drain()
            if not says_close:
                await reader.read(1)  # closes under the next request
            writer.close()

        return handle

    servers = [await asyncio.start_server(serve(engine), "127.0.0.1", 0) for engine in engines]
    try:
        yield [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1" for server in servers]
    finally:
        for server in servers:
            server.close()
            await server.wait_closed()


@pytest.mark.parametrize("kind", [VllmWeights, SglangWeights])
async def test_all_servers_load_a_folder_while_they_are_paused(http: HttpClient, kind: type[EngineWeights]) -> None:
    engines = [Engine(), Engine()]
    versions = PolicyVersions(["step-0"])
    async with serving(*engines) as urls:
        await kind(http, urls, versions=versions).update("step-1", "/checkpoints/1")
    assert [(engine.weights, engine.label, engine.is_paused) for engine in engines] == [
        ("/checkpoints/1", "step-1", False)
    ] * 2
    assert (versions.current, versions.updates) == ("step-1", 2)


@pytest.mark.parametrize(
    ("kind", "broken", "loaded"),
    [
        (VllmWeights, "/collective_rpc", ["old", "/new"]),
        (SglangWeights, "/update_weights_from_disk", ["old", "/new"]),
        (VllmWeights, "/pause", ["old", "old"]),
    ],
)
async def test_a_server_that_fails_is_named_and_tokens_keep_true_labels(
    http: HttpClient, kind: type[EngineWeights], broken: str, loaded: list[str]
) -> None:
    engines = [Engine(broken=broken), Engine()]
    versions = PolicyVersions(["step-0"])
    async with serving(*engines) as urls:
        weights = kind(http, urls, versions=versions)
        with pytest.raises(WeightUpdateError, match=f"1 of 2 servers failed: .*{broken}.*CUDA out of memory"):
            await weights.update("step-1", "/new")
        assert [engine.weights for engine in engines] == loaded
        assert [engine.label for engine in engines] == ["step-1" if name == "/new" else "step-0" for name in loaded]
        is_without_weights = (kind, broken) == (VllmWeights, "/collective_rpc")
        assert [engine.is_paused for engine in engines] == [is_without_weights, False]
        assert versions.current == "step-0"
        engines[0].broken = ""
        await weights.update("step-1", "/new")
        assert not any(engine.is_paused for engine in engines)
    assert [engine.label for engine in engines] == ["step-1"] * 2
    assert versions.current == "step-1"


async def test_a_transfer_that_fails_half_way_leaves_its_server_paused(http: HttpClient) -> None:
    engines = [Engine(broken="/finish_weight_update"), Engine()]
    async with serving(*engines) as urls:
        weights = VllmWeights(http, urls)
        with pytest.raises(WeightUpdateError, match=r"1 of 2 servers failed: .*stays paused until an update succeeds"):
            await weights.transfer("step-1", [{"names": "a"}])
        assert [engine.is_paused for engine in engines] == [True, False]
        await weights.resume()
        assert engines[0].is_paused, "one token would end it"
        engines[0].broken = ""
        await weights.update("step-1", "/new")
        assert not any(engine.is_paused for engine in engines)


async def test_an_error_is_not_hidden_by_a_server_that_cannot_be_resumed(http: HttpClient) -> None:
    async with serving(Engine(broken="/resume")) as urls:
        weights = VllmWeights(http, urls)
        with pytest.raises(RuntimeError, match="out of disk") as caught:
            async with weights.updating("step-1"):
                raise RuntimeError("out of disk")
        assert "could not be resumed either: 1 of 1 servers failed" in caught.value.__notes__[0]
        with pytest.raises(WeightUpdateError, match=r"/resume answered 500.*log has the reason"):
            await weights.update("step-1", "/new")


async def test_a_connection_that_was_closed_after_an_error_does_not_keep_servers_paused(http: HttpClient) -> None:
    """vLLM answers 500 as if the connection stayed open, and closes it."""
    engine = Engine(broken="/update_weight_version")
    async with serving(engine, says_close=False) as urls:
        with pytest.raises(WeightUpdateError, match="/update_weight_version"):
            await VllmWeights(http, urls).update("step-1", "/new")
    assert not engine.is_paused


async def test_vllms_own_transfer_goes_through_all_of_its_phases(http: HttpClient) -> None:
    engine = Engine()
    versions = PolicyVersions(["step-0"])
    async with serving(engine) as urls:
        weights = VllmWeights(http, urls, versions=versions)
        await weights.init_transfer({"master_address": "127.0.0.1", "rank_offset": 1})
        await weights.transfer("step-1", [{"names": "a"}, {"names": "b"}])
    paths = [urlsplit(target).path for target, _ in engine.requests]
    assert paths == [
        "/init_weight_transfer_engine",
        "/pause",
        "/start_weight_update",
        "/update_weights",
        "/update_weights",
        "/finish_weight_update",
        "/resume",
    ]
    assert (engine.weights, engine.label, versions.current) == ("ab", "step-1", "step-1")


async def test_sglang_says_what_it_could_not_load_and_pauses_so_that_caches_are_dropped(http: HttpClient) -> None:
    engine = Engine()
    async with serving(engine) as urls:
        with pytest.raises(WeightUpdateError, match="Failed to get model config: /nowhere"):
            await SglangWeights(http, urls).update("step-1", "/nowhere")
    assert engine.requests[0] == ("/pause_generation", {"mode": "retract"})
    assert engine.requests[1][1] == {"model_path": "/nowhere", "weight_version": "step-1", "flush_cache": True}
    with pytest.raises(UserError, match="mode 'wait' is not supported by SglangWeights"):
        SglangWeights(http, urls, mode="wait")


async def test_a_reply_that_says_false_is_a_failure(http: HttpClient) -> None:
    class Lying(Engine):
        def on_update_weights_from_disk(self, _: str, body: Any) -> Reply:
            return 200, {"success": False, "message": "shape mismatch"}

    async with serving(Lying()) as urls:
        with pytest.raises(WeightUpdateError, match="shape mismatch"):
            await SglangWeights(http, urls).update("step-1", "/new")


async def test_a_trainer_may_transfer_to_sglang_by_itself(http: HttpClient) -> None:
    engine = Engine()
    async with serving(engine) as urls, SglangWeights(http, urls, mode="abort").updating("step-1"):
        assert engine.is_paused
        engine.weights = "mine"
    assert [target for target, _ in engine.requests] == [
        "/pause_generation",
        "/update_weight_version",
        "/continue_generation",
    ]
    assert engine.label == "step-1"


async def test_a_server_without_the_route_says_how_to_start_it(http: HttpClient) -> None:
    class Plain(Engine):
        def on_pause(self, *_: Any) -> Reply:
            return 404, {"detail": "Not Found"}

    async with serving(Plain()) as urls:
        with pytest.raises(WeightUpdateError, match="VLLM_SERVER_DEV_MODE=1"):
            await VllmWeights(http, urls).update("step-1", "/new")
