"""A process with the packages of a server that scores the cases of its verifier, as `nemo_gym.verifier_fixture` does.

Reads a request from stdin and writes the result as the last line of stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

import orjson

from gymnast.compat.nemo_gym.verifier_fixture import VerifierFixture, exercise_verifier_fixture
from gymnast.config import compose, read_environ
from gymnast.errors import UserError
from gymnast.runtime.loader import import_entry


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Import the server of a config, score its cases."""
    folders = [Path(path) for path in request["search_dirs"]]
    config = compose(
        read_environ(), config_paths=[request["config"]], search_dirs=folders, stub_policy=True, unread="ignore"
    )
    module = import_entry(config.instance(request["instance"]))
    fixture = getattr(module, "VERIFIER_FIXTURE", None)
    if not isinstance(fixture, VerifierFixture):
        raise UserError("VERIFIER_FIXTURE is not a VerifierFixture")
    results = asyncio.run(
        exercise_verifier_fixture(
            fixture,
            reward_range=request["reward_range"],
            higher_is_better=request["higher_is_better"],
            determinism=request["determinism"],
            update_expected=request["update_expected"],
        )
    )
    cases = [{"name": each.name, "kind": each.kind, "observed_rewards": each.observed_rewards} for each in results]
    return {"fixture_path": str(Path(fixture.cases_path).expanduser().resolve()), "cases": cases}


def main() -> None:
    """The process."""
    request = orjson.loads(sys.stdin.buffer.read())
    try:
        with contextlib.redirect_stdout(sys.stderr):
            result = run(request)
    except Exception as error:  # noqa: BLE001 - the server's code may raise anything
        result = {"error": str(error) or type(error).__name__}
    sys.stdout.buffer.write(orjson.dumps(result) + b"\n")


if __name__ == "__main__":
    main()
