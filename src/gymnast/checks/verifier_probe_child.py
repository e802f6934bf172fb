"""The child process of `verifier_probe`: loads an environment as `gymnast check env` does, and scores answers."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from gymnast.checks.environment import find_environment, open_subject
from gymnast.checks.verifier_answers import probe_subject
from gymnast.checks.verifier_probe import ProbeResult
from gymnast.errors import GymnastError

if TYPE_CHECKING:
    from collections.abc import Sequence


async def probe(name: str, settings: dict[str, Any], rows: Sequence[dict[str, Any]]) -> ProbeResult:
    """Probe the environment `name`."""
    target = find_environment(name)
    instance = target.instance
    if instance.refs:
        return ProbeResult(problem="it needs other servers, such as a judge")
    target = replace(target, instance=replace(instance, settings={**instance.settings, **settings}))
    with tempfile.TemporaryDirectory(prefix="gymnast-doctor-") as logs:
        async with open_subject(target, Path(logs)) as subject:
            return await probe_subject(subject, rows)


def main() -> None:
    """Read a request from stdin, and write the result as the last line of stdout."""
    request = orjson.loads(sys.stdin.buffer.read())
    try:
        with contextlib.redirect_stdout(sys.stderr):
            result = asyncio.run(probe(request["name"], request["settings"], request["rows"]))
    except GymnastError as error:
        result = ProbeResult(problem=str(error).partition("\n")[0][:200])
    except Exception as error:  # noqa: BLE001 - the environment's code may raise anything
        result = ProbeResult(problem=f"{type(error).__name__}: {error}"[:200])
    sys.stdout.buffer.write(orjson.dumps(result) + b"\n")


if __name__ == "__main__":
    main()
