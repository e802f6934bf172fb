"""A running collection as OpenMetrics."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gymnast.cli.options import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gymnast.rollouts.snapshot import Snapshot


@contextmanager
def metrics_endpoint(port: int, take_snapshot: Callable[[], Snapshot]) -> Iterator[None]:
    """Serve `/metrics` on loopback while the block is open."""
    from gymnast.runtime.listener import Listener
    from gymnast.runtime.ports import bind_socket
    from gymnast.wire.asgi import AsgiScope, Receive, Send

    async def app(scope: AsgiScope, _: Receive, send: Send) -> None:
        is_metrics = scope["type"] == "http" and scope["path"] == "/metrics"
        body = open_metrics(take_snapshot()).encode() if is_metrics else b"not found\n"
        kind = b"application/openmetrics-text; version=1.0.0; charset=utf-8" if is_metrics else b"text/plain"
        await send(
            {"type": "http.response.start", "status": 200 if is_metrics else 404, "headers": [(b"content-type", kind)]}
        )
        await send({"type": "http.response.body", "body": body})

    sock = bind_socket("127.0.0.1", port, what="metrics", hint="choose another --metrics-port, or 0")
    say(f"metrics at http://127.0.0.1:{sock.getsockname()[1]}/metrics")

    async def serve() -> None:
        async with Listener(app, sock):
            await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    try:
        yield
    finally:
        task.cancel()
        task.add_done_callback(lambda _: sock.close())  # a task that never started closes nothing


def open_metrics(now: Snapshot) -> str:
    """The snapshot in the OpenMetrics text format."""
    lines: list[str] = []

    def gauge(name: str, text: str, values: dict[str, float]) -> None:
        lines.append(f"# TYPE gymnast_{name} gauge")
        lines.append(f"# HELP gymnast_{name} {text}")
        lines.extend(f"gymnast_{name}{labels} {_number(value)}" for labels, value in values.items())

    gauge("rollouts_requested", "Rollouts of the run.", {"": now.requested})
    gauge("rollouts_scored", "Rollouts that have a reward.", {"": now.scored})
    gauge(
        "rollouts_failed", "Permanently failed rollouts.", {_label("kind", kind): n for kind, n in now.failed.items()}
    )
    gauge("rollouts_owed", "Rollouts that are neither scored nor permanently failed.", {"": now.owed})
    gauge("rollouts_in_flight", "Attempts running.", {_label("stage", stage): n for stage, n in now.stages.items()})
    gauge("concurrency_limit", "Rollouts that may be in flight.", {"": now.limit})
    gauge("rollouts_per_second", "Settled rollouts per second, recently.", {"": now.per_second})
    means = {_label("agent", name): a.mean_reward for name, a in now.agents.items() if a.mean_reward is not None}
    gauge("mean_reward", "Mean reward of the run.", means)
    truncated = {_label("agent", name): a.truncated for name, a in now.agents.items()}
    gauge("rollouts_truncated", "Scored rollouts that a length or step limit cut off.", {**truncated})
    gauge("event_loop_lag_seconds", "How late the event loop runs.", {"": now.loop_lag_s})
    gauge("model_calls", "Calls to policy endpoints of this invocation.", {"": now.model_calls})
    gauge("model_rejections", "Calls that the endpoints rejected.", {"": now.rejections})
    spent = now.spent
    tokens = {_label("kind", "input"): spent.input_tokens, _label("kind", "output"): spent.output_tokens}
    details = {"cached": spent.cached_tokens, "reasoning": spent.reasoning_tokens}
    tokens |= {_label("kind", kind): number for kind, number in details.items() if number is not None}
    if spent.calls:
        gauge("model_tokens", "Tokens used by all attempts.", {**tokens})
    if spent.calls and spent.cost is not None:
        gauge("model_cost", "Cost of all attempts.", {"": spent.cost})
    oldest = now.oldest[0].seconds if now.oldest else 0.0
    gauge("oldest_rollout_seconds", "Age of the oldest attempt in flight.", {"": oldest})
    return "\n".join([*lines, "# EOF", ""])


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _label(name: str, value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{{name}="{escaped}"}}'
