"""What a model server costs: the conversion of a call, and a call through a served one against a call without it.

    python bench/model_server.py [--calls 4000] [--rounds 3] [--json]

Conversion: a Responses request to Chat Completions and the completion back, 4 KB of text in all; bar: 0.15 ms a call.
Pass-through: a bare aiohttp loop calls (a) the mock policy, (b) `vllm_model` in `gymnast serve` in front of it, in
Responses and in Chat Completions. The loop has a core, the policy and the server share the other; in (a) the policy has
it alone. Bar: b >= 0.5 a in calls per second. The server's CPU time of a call is printed, too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from running import OUR_CORE, POLICY_CORE, policy

CONCURRENCIES = (64, 256)
CONVERSION_BAR_MS = 0.15
PASS_BAR = 0.5
TEXT = "What a long question this is, and it goes on and on. " * 38  # about 2 KB


# --- conversion ------------------------------------------------------------------------------------------------------


def conversion_ms(rounds: int) -> float:
    """CPU milliseconds of converting one call there and back; the best of the rounds."""
    from gymnast.wire.dialects.chat_replies import completion_to_response
    from gymnast.wire.dialects.chat_requests import params_to_chat
    from gymnast.wire.validate import validate_params

    tool = {"type": "function", "name": "find", "parameters": {"type": "object", "properties": {}}, "strict": True}
    asked: Any = {
        "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT}],
        "tools": [tool],
        "temperature": 1.0,
        "max_output_tokens": 512,
    }
    completion = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": f"<think>{TEXT[:1000]}</think>{TEXT[:1000]}",
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}
                    ],
                },
            }
        ],
        "usage": {"prompt_tokens": 500, "completion_tokens": 500, "total_tokens": 1000},
    }
    size = len(json.dumps(asked)) + len(json.dumps(completion))
    assert 4000 < size < 6000, size
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(1000):
            params = validate_params(asked)
            params_to_chat(params)
            completion_to_response(cast("Any", completion), params, model="m", new_id=str, parse_thinking=True)
        best = min(best, time.process_time() - began)
    return best  # a thousand calls: seconds of all are milliseconds of one


# --- pass-through ----------------------------------------------------------------------------------------------------


def bodies() -> dict[str, tuple[str, dict[str, Any]]]:
    """Path and body of a call in both dialects."""
    messages = [{"role": "user", "content": TEXT}]
    return {
        "chat": ("/v1/chat/completions", {"model": "mock", "messages": messages, "temperature": 1.0}),
        "responses": ("/v1/responses", {"input": messages, "temperature": 1.0}),
    }


def loop(url: str, dialect: str, calls: int, concurrency: int) -> float:
    """Seconds that a bare client needs for so many calls."""
    import aiohttp
    import orjson
    import uvloop

    path, body = bodies()[dialect]
    headers = {"content-type": "application/json", "authorization": "Bearer key"}

    async def run() -> float:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
            left = iter(range(calls))

            async def worker() -> None:
                for _ in left:
                    async with session.post(url + path, data=orjson.dumps(body), headers=headers) as answer:
                        assert answer.status == 200, await answer.text()
                        orjson.loads(await answer.read())

            began = time.perf_counter()
            await asyncio.gather(*(worker() for _ in range(concurrency)))
            return time.perf_counter() - began

    seconds: float = uvloop.run(run())
    return seconds


def measured(url: str, dialect: str, calls: int, concurrency: int) -> float:
    """The same in a process of its own on our core."""
    spec = json.dumps({"url": url, "dialect": dialect, "calls": calls, "concurrency": concurrency})
    command = [sys.executable, __file__, "--child", spec]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


@contextlib.contextmanager
def served(port: int) -> Iterator[tuple[str, int]]:
    """A model server in `gymnast serve` beside the policy; yields its URL and process id."""
    command = [sys.executable, "-m", "gymnast.cli.main", "serve", "--json", "--head-port", "auto"]
    command += [
        "+config_paths=[responses_api_models/vllm_model/configs/vllm_model.yaml]",
        f"+policy_base_url=http://127.0.0.1:{port}/v1",
        "+policy_api_key=key",
        "+policy_model_name=mock",
        "+model_endpoint_readiness_timeout_seconds=0",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    os.sched_setaffinity(process.pid, {POLICY_CORE} if (os.cpu_count() or 1) > 1 else {0})
    try:
        assert process.stdout is not None
        data = json.loads(process.stdout.readline())
        yield next(row["url"] for row in data["instances"] if row["process_name"] == "policy_model"), process.pid
    finally:
        process.terminate()
        process.wait()


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pass_through(calls: int, rounds: int) -> list[dict[str, Any]]:
    """Calls a second without and with the server; interleaved rounds, the best of each counts."""
    rows: list[dict[str, Any]] = []
    with policy() as port, served(port) as (url, pid):
        for concurrency in CONCURRENCIES:
            direct: list[float] = []
            through: dict[str, list[tuple[float, float]]] = {"chat": [], "responses": []}
            for _ in range(rounds):
                direct.append(measured(f"http://127.0.0.1:{port}", "chat", calls, concurrency))
                for dialect, found in through.items():
                    before = cpu_s(pid)
                    seconds = measured(url, dialect, calls, concurrency)
                    found.append((seconds, cpu_s(pid) - before))
            for dialect, found in through.items():
                seconds, cpu = min(found)
                rows.append(
                    {
                        "dialect": dialect,
                        "concurrency": concurrency,
                        "direct_per_s": calls / min(direct),
                        "through_per_s": calls / seconds,
                        "server_cpu_ms": 1000 * cpu / calls,
                        "ratio": min(direct) / seconds,
                    }
                )
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        os.sched_setaffinity(0, {OUR_CORE})
        print(loop(**json.loads(options.child)))
        return
    took_ms = conversion_ms(max(options.rounds, 3))
    rows = pass_through(options.calls, options.rounds)
    if options.json:
        print(json.dumps({"conversion_ms": took_ms, "pass_through": rows}, indent=2))
        return
    met = "met" if took_ms <= CONVERSION_BAR_MS else "MISSED"
    print(f"conversion of a 4 KB exchange  {took_ms:.3f} ms  <= {CONVERSION_BAR_MS} {met}\n")
    print(f"{'dialect':<10} {'conc.':>5} {'direct/s':>9} {'through/s':>10} {'server CPU ms':>14} {'ratio':>6}  bar")
    for row in rows:
        met = "met" if row["ratio"] >= PASS_BAR else "MISSED"
        print(
            f"{row['dialect']:<10} {row['concurrency']:>5} {row['direct_per_s']:>9.0f} {row['through_per_s']:>10.0f} "
            f"{row['server_cpu_ms']:>14.3f} {row['ratio']:>6.2f}  >= {PASS_BAR} {met}"
        )


if __name__ == "__main__":
    main()
