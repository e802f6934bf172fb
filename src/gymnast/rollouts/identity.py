"""What determines a run's results besides its rows: certain settings, and the code of its instances.

Where things run, how long they may take and how often they are retried does not change results, so a run may be resumed
at another endpoint or with other deadlines, but not with another model, environment or step limit.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gymnast.config.secrets import is_secret_key, mask_urls
from gymnast.rollouts.tool_modes import MODES, tool_modes
from gymnast.rollouts.tool_modes import SETTING as TOOLS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gymnast.config import Instance
    from gymnast.rollouts.options import RunOptions
    from gymnast.types.json import JsonObject
    from gymnast.types.truncation import TruncatedPolicy

_TRUNCATED: Final[TruncatedPolicy] = "score"
"""Runs that do not say otherwise."""
_IRRELEVANT_KEY: Final = re.compile(
    r"(base_url|_timeout_s|^timeout_s|session_ttl_s|max_attempts|max_concurrent_requests|max_concurrent_requests_per_endpoint|max_rollouts|max_sessions|_headers|latency_s|^prices|^replica_choice|health_interval_s|^measure_ttft)$"
)


def comparable_settings(instances: Iterable[Instance], options: RunOptions) -> JsonObject:
    """The settings that a resume compares."""
    plan = options.plan
    planned: JsonObject = {
        "params": dict(plan.params),
        "add_seed": plan.add_seed,
        "template": {"user": plan.template.user, "system": plan.template.system} if plan.template else None,
        "skills": plan.skills,
    }
    if options.engine.truncated != _TRUNCATED:
        planned["truncated"] = options.engine.truncated
    instances = list(instances)
    planned[TOOLS] = tool_modes(instances)
    return {"plan": planned, **instance_settings(instances)}


def truncated_policy(settings: Mapping[str, Any]) -> TruncatedPolicy:
    """What happens to truncated rollouts, according to a run's settings."""
    policy: TruncatedPolicy = (settings.get("plan") or {}).get("truncated", _TRUNCATED)
    return policy


def instance_settings(instances: Iterable[Instance]) -> JsonObject:
    """Each instance's implementation and the settings that determine its results."""
    return {
        instance.name: {
            "implementation": f"{instance.kind}/{instance.implementation}",
            "settings": _relevant(_without_tool_mode(instance.settings)),
        }
        for instance in instances
    }


def _without_tool_mode(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The mode is compared as part of the plan, where runs that are older than the setting have none."""
    return {key: value for key, value in settings.items() if not (key == TOOLS and value in MODES)}


def code_digests(instances: Iterable[Instance]) -> dict[str, str]:
    """A digest of each instance's Python code, where its folder is known."""
    return {
        instance.name: folder_digest(instance.directory) for instance in instances if instance.directory is not None
    }


def _relevant(value: Any, *, inside_secret: bool = False) -> Any:
    """The value without irrelevant keys and secrets, at any depth. A number is never a secret, whatever its key."""
    if isinstance(value, Mapping):
        relevant = {}
        for key, inner in value.items():
            is_secret = inside_secret or is_secret_key(str(key))
            if not _IRRELEVANT_KEY.search(str(key)) and not (isinstance(inner, str) and is_secret):
                relevant[key] = _relevant(inner, inside_secret=is_secret)
        return relevant
    if isinstance(value, (list, tuple)):
        return [
            _relevant(inner, inside_secret=inside_secret)
            for inner in value
            if not (inside_secret and isinstance(inner, str))
        ]
    return mask_urls(value) if isinstance(value, str) else value


def folder_digest(folder: Path) -> str:
    """A digest of the Python code below a folder, without tests."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(folder.rglob("*.py")):
        relative = path.relative_to(folder)
        if "tests" not in relative.parts and ".venv" not in relative.parts:
            digest.update(str(relative).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
