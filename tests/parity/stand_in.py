"""Stands in for the original in tests: our own servers in another process, with the same protocol as original.py.

    python stand_in.py CHECKOUT

Where the checkout has a file `broken`, every reward of 1 is 0.5.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[2])


def main() -> None:
    """Answer until standard input ends."""
    from tests.parity.ours import Ours

    checkout = Path(sys.argv[1])
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    async def serve(environment: str) -> None:
        async with Ours(environment, checkout) as ours:
            print('{"ready": true}', file=replies, flush=True)
            while "close" not in (request := json.loads(await asyncio.to_thread(sys.stdin.readline))):
                found = await ours.score(request)
                print(json.dumps({"replies": _break(found, checkout)}), file=replies, flush=True)
        print('{"closed": 0}', file=replies, flush=True)

    while line := sys.stdin.readline():
        asyncio.run(serve(json.loads(line)["open"]))


def _break(replies: list[dict[str, Any]], checkout: Path) -> list[dict[str, Any]]:
    if (checkout / "broken").exists():
        for reply in replies:
            if isinstance(reply["body"], dict) and reply["body"].get("reward") == 1:
                reply["body"]["reward"] = 0.5
    return replies


if __name__ == "__main__":
    main()
