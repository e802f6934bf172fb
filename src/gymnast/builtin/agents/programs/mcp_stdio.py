"""The environment's tools as an MCP server on standard input and output, for programs that cannot connect over HTTP.

Passes each message on to the rollout's gateway (GYMNAST_MCP_URL). Runs in any Python 3 with nothing but the standard
library.
"""

import json
import os
import sys
import urllib.error
import urllib.request


def forward(line: str) -> str:
    """The gateway's answer to one message; empty for a notification."""
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "authorization": f"Bearer {os.environ['GYMNAST_API_KEY']}",
    }
    request = urllib.request.Request(os.environ["GYMNAST_MCP_URL"], line.encode(), headers)  # noqa: S310 - the gateway
    try:
        with urllib.request.urlopen(request) as reply:  # noqa: S310
            text: str = reply.read().decode()
            return text
    except urllib.error.HTTPError as error:
        return _error(line, f"HTTP {error.code}: {error.read().decode(errors='replace')[:500]}")
    except OSError as error:
        return _error(line, f"the gateway cannot be reached: {error}")


def _error(line: str, text: str) -> str:
    try:
        request_id = json.loads(line).get("id")
    except (ValueError, AttributeError):
        request_id = None
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": {"code": -32603, "message": text}})


def main() -> None:
    """Answer until standard input ends."""
    for line in sys.stdin:
        answer = forward(line).strip() if line.strip() else ""
        if answer:
            sys.stdout.write(answer.replace("\n", " ") + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
