"""A policy for rows of all shipped environments at once: it plays their verifier cases, and judges where it is asked.

Which case a conversation plays stands in the row's metadata, where the agent passes that on, else in the prompt.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import yaml

from gymnast.builtin.responses_api_models.scripted_model.script import Script, ScriptedCall, ScriptedReply, parse_script
from gymnast.checks.conformance.subject import turns_of
from gymnast.config.roots import BUILTIN
from gymnast.kit import input_items
from gymnast.types.responses import message_text, reasoning_texts
from tests.helpers.jsonl import read_jsonl

FLAVORS: Final = {
    "gymnasium": ("blackjack", "frozen_lake", "gymnasium", "word_game"),
    "text_to_sql": ("text_to_sql_execution",),
}
"""Of environments with several configs: those that can be used together."""
PLAYED_BY_PROMPT: Final = frozenset({"verifiers"})
"""Harnesses of other makers ask the policy in words of their own."""


@cache
def playable() -> dict[str, tuple[str, dict[str, Any]]]:
    """The cases that an agent can play, by key: the environment (NAME/FLAVOR) and the case."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for folder in sorted((BUILTIN / "resources_servers").iterdir()):
        for flavor in FLAVORS.get(folder.name, (folder.name,)):
            own = folder / "data" / f"{flavor}_verifier_cases.jsonl"
            path = own if own.exists() else folder / "data" / "verifier_cases.jsonl"
            for number, case in enumerate(read_jsonl(path) if path.exists() else ()):
                if "expected_reward" in case and _is_natural(case["request"]):
                    found[_key(folder.name, flavor, number, case)] = (f"{folder.name}/{flavor}", case)
    return found


def _key(name: str, flavor: str, number: int, case: dict[str, Any]) -> str:
    return asked_in(case) if name in PLAYED_BY_PROMPT else f"{name}/{flavor}/{number}"


def asked_in(case: dict[str, Any]) -> str:
    """The first message of a case's row."""
    return message_text(case["request"]["responses_create_params"]["input"][0])


def _is_natural(request: dict[str, Any]) -> bool:
    """Whether an agent would have gone on after each turn but the last: after a call, or in a game."""
    response = request["response"]
    turns = turns_of(response)
    in_between = [item for item in response["output"] if item.get("role") == "user"]
    calls = [any(item.get("type") == "function_call" for item in turn["output"]) for turn in turns]
    return not response.get("incomplete_details") and (bool(in_between) or all(calls[:-1]))


def answer(call: ScriptedCall) -> Any:
    """The script's function."""
    key = (call.params.get("metadata") or {}).get("case") or call.user_text
    if key not in playable():
        return _judge(call)
    request = playable()[key][1]["request"]
    turns = turns_of(request["response"])
    turn = call.turn - sum(item.get("role") == "assistant" for item in input_items(request["responses_create_params"]))
    return _reply(turns[turn]["output"]) if turn < len(turns) else "Done."


def _reply(items: list[dict[str, Any]]) -> ScriptedReply:
    calls = [item for item in items if item["type"] == "function_call"]
    thoughts = [text for item in items if item["type"] == "reasoning" for text in reasoning_texts(item)]
    texts = [message_text(item) for item in items if item["type"] == "message"]
    return ScriptedReply.model_validate(
        {
            "text": "".join(texts) if texts else None,
            "reasoning": "".join(thoughts) or None,
            "tool_calls": tuple({"name": item["name"], "arguments": item["arguments"]} for item in calls),
        }
    )


async def _judge(call: ScriptedCall) -> ScriptedReply:
    return await _judge_script().reply(call)


@cache
def _judge_script() -> Script:
    """The scripted judges of the environments' own checks."""
    rules: list[Any] = []
    for path in sorted((BUILTIN / "resources_servers").glob("*/data/check.yaml")):
        policy = yaml.safe_load(path.read_text()).get("policy_model")
        if policy is not None:
            given = policy["responses_api_models"]["scripted_model"]["replies"]
            rules += [rule for rule in given if "when" in rule]
    return parse_script([*rules, {"replies": ["They differ. [[A!=B]]"]}], "data/check.yaml")
