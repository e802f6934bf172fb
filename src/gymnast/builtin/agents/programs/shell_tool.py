"""`tool NAME '{"argument": 1}'`: calls a tool of the environment from a shell. Without a name it lists the tools.

Runs in any Python 3 with nothing but the standard library.
"""

import json
import os
import sys
import urllib.error
import urllib.request


def send(path: str, body: bytes | None) -> str:
    """POST the body, or GET without one."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ['GYMNAST_API_KEY']}"}
    request = urllib.request.Request(os.environ["GYMNAST_TOOLS_URL"] + path, body, headers)  # noqa: S310 - the gateway
    with urllib.request.urlopen(request) as reply:  # noqa: S310
        text: str = reply.read().decode()
        return text


def main(arguments: list[str]) -> int:
    """Call the tool and print its reply."""
    if not arguments:
        print(json.dumps(json.loads(send("", None))["tools"], indent=2))
        return 0
    text = arguments[1] if len(arguments) > 1 else "{}"
    try:
        body = json.dumps(json.loads(text if text != "-" else sys.stdin.read())).encode()
    except ValueError as error:
        print(f"the arguments are not JSON: {error}", file=sys.stderr)
        return 2
    try:
        print(send(f"/{arguments[0]}", body))
    except urllib.error.HTTPError as error:
        print(f"HTTP {error.code}: {error.read().decode(errors='replace')}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
