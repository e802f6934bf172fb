"""The time to the first token, measured on an engine that takes its time."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

from gymnast.wire.asgi import Receive, Send, read_body
from gymnast.wire.calls import Scope
from gymnast.wire.http_client import HttpClient
from gymnast.wire.progress import AttemptProgress
from tests.helpers.chat_streams import delta, sse
from tests.helpers.model_bench import USAGE, Bench, chat


class Streaming:
    """An engine that streams chunks, and waits where there is a number of seconds among them."""

    def __init__(self, *chunks: Any) -> None:
        self._chunks = chunks
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, _: Any, receive: Receive, send: Send) -> None:
        self.asked.append(json.loads(await read_body(receive)))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for chunk in self._chunks:
            await asyncio.sleep(chunk if isinstance(chunk, float) else 0)
            if not isinstance(chunk, float):
                await send({"type": "http.response.body", "body": sse(chunk, done=False).encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def test_the_time_to_the_first_token_is_measured_and_the_reply_is_the_same(http: HttpClient) -> None:
    streaming = Streaming(
        delta(role="assistant", content=""),
        0.1,
        delta(reasoning_content="hm"),
        delta(content="an"),
        0.5,
        delta(content="swer"),
        delta("stop"),
        {**delta(), "choices": [], "usage": USAGE},
    )
    async with AsyncExitStack() as stack:
        bench = Bench(stack, http)
        bench.vllm(f"{await bench.listen(streaming)}/v1", measure_ttft=True)
        progress = AttemptProgress()
        streamed = (await bench.ask(Scope("0-0", progress))).body
        whole = await bench.endpoint(chat("answer", reasoning_content="hm"))
        bench.vllm(whole.url)
        plain = (await bench.ask(Scope("0-0"))).body
    assert progress.usage_counter is not None
    usage = progress.usage_counter.usage()
    assert usage.ttft_ms is not None
    assert 90 <= usage.ttft_ms < usage.latency_ms - 100
    assert usage.tokens == USAGE["total_tokens"]
    assert streaming.asked[0]["stream"] is True
    assert streaming.asked[0]["stream_options"] == {"include_usage": True}
    forget = {"id": None, "created_at": None}
    assert [{**item, **forget} for item in streamed["output"]] == [{**item, **forget} for item in plain["output"]]
    assert streamed["usage"] == plain["usage"]
