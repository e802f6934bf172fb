"""What `gymnast doctor` says about a run, each finding with its rollouts."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gymnast.doctor.examine import examine, find_target
from gymnast.errors import UserError
from gymnast.rollouts.control import send_request
from gymnast.types.failure import FailureKind

if TYPE_CHECKING:
    from gymnast.studio.library import Entry
    from gymnast.types.json import JsonObject


async def read_stuck(entry: Entry) -> dict[str, Any]:
    """What a running collection says, for doctor."""
    if entry.live is None:
        return {}
    try:
        live = await send_request(entry.source.paths.socket, {"command": "status"})
        stacks = await send_request(entry.source.paths.socket, {"command": "stacks"})
    except UserError:
        return {}
    return {"live": live, "stacks": tuple(stacks)}


def doctor_page(entry: Entry, live: dict[str, Any]) -> JsonObject:
    """What `gymnast doctor` says about a run, each finding with the rollouts behind it."""
    version = (entry.stamp, bool(live))
    if entry.doctor is not None and entry.doctor[0] == version and not live:
        return entry.doctor[1]
    page = examine(replace(find_target(entry.source.paths.output), **live)).as_json()
    kinds = {kind.value for kind in FailureKind}
    for finding in page["findings"]:
        keys = dict.fromkeys(key for evidence in finding["evidence"] for key in evidence.get("keys", ()))
        finding["rollouts"] = [rollout for key in keys if (rollout := _parse_key(key)) is not None][:200]
        finding["filter"] = _filter_of(finding, kinds)
    page["at"] = time.time()
    entry.doctor = (version, page)
    return page


def _parse_key(text: str) -> JsonObject | None:
    task, _, rollout = text.partition(":")
    if not task.isdecimal() or not rollout.isdecimal():
        return None
    return {"task": int(task), "rollout": int(rollout)}


def _filter_of(finding: JsonObject, kinds: set[str]) -> str | None:
    """A filter of the table of rollouts that shows those of a finding."""
    texts = [finding["id"], finding["symptom"], *(own["what"] for own in finding["evidence"])]
    named = [kind for kind in kinds if any(kind in text.replace("-", "_").split() for text in texts)]
    if len(named) == 1:
        return f"f=failure={named[0]}"
    return "f=truncated!=" if "truncat" in finding["id"] else None
