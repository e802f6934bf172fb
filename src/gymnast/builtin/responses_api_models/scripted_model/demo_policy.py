"""A scripted policy for demos: it reads the prompt, uses the offered tools, and is sometimes wrong.

It sees only what a model would see (messages and tool declarations). Its mistakes depend on the call's random numbers,
so that repeats of a task differ and a run is reproducible.
"""

from __future__ import annotations

import re

import orjson

from .script import ScriptedCall, ScriptedReply, ScriptedToolCall

_OPTION = re.compile(r"^\s*([A-J])[):.]\s+(.+)$", re.MULTILINE)
_KNOWN = re.compile(r"Paris|Jupiter|Au\b|seven|7\b|Shakespeare|oxygen|1969|photosynthesis|Tokyo", re.IGNORECASE)


def answer(call: ScriptedCall) -> ScriptedReply:
    """Reply with one turn of the demo policy."""
    tools = {tool.get("name") for tool in call.params.get("tools") or ()}
    if "get_weather" in tools:
        return _weather(call)
    if "get_synonym_value" in tools:
        return _synonyms(call)
    if "increment_counter" in tools:
        return _counter(call)
    if _OPTION.search(call.user_text):
        return _choice(call)
    return _follow_up(call)


def _choice(call: ScriptedCall) -> ScriptedReply:
    options = dict(_OPTION.findall(call.user_text))
    known = [letter for letter, text in options.items() if _KNOWN.search(text)]
    sure = len(known) == 1 and call.random.random() < 0.7
    letter = known[0] if sure else call.random.choice(sorted(options))
    return ScriptedReply(text=f"The best option is {letter}. \\boxed{{{letter}}}")


def _weather(call: ScriptedCall) -> ScriptedReply:
    if call.turn:
        return ScriptedReply(text="Here is the weather: " + " ".join(call.tool_outputs))
    city = re.search(r"\bin ([A-Z][\w ]+?)(?:[?.,]|$)", call.user_text)
    arguments = {"city": city[1] if city else "Lisbon"}
    return ScriptedReply(tool_calls=(ScriptedToolCall(name="get_weather", arguments=arguments),))


def _synonyms(call: ScriptedCall) -> ScriptedReply:
    words = re.findall(r"'([^']+)'", call.user_text)[1:]
    if call.turn == 0:
        return ScriptedReply(
            reasoning="I look up each word first.",
            tool_calls=tuple(ScriptedToolCall(name="get_synonym_value", arguments={"synonym": word}) for word in words),
        )
    if call.turn == 1:
        values = [orjson.loads(output)["synonym_value"] for output in call.tool_outputs]
        if call.random.random() < 0.4:  # forgets that order matters
            values.reverse()
        return ScriptedReply(
            tool_calls=(ScriptedToolCall(name="extract_synonym_values", arguments={"synonym_values": values}),)
        )
    return ScriptedReply(text="I have handed in the values.")


def _counter(call: ScriptedCall) -> ScriptedReply:
    steps = [int(number) for number in re.findall(r"\b(\d+)\b", call.user_text)]
    if call.turn < len(steps):
        if call.turn and call.random.random() < 0.15:  # loses patience
            return ScriptedReply(text="The counter is where you wanted it.")
        count = steps[call.turn]
        return ScriptedReply(tool_calls=(ScriptedToolCall(name="increment_counter", arguments={"count": count}),))
    return ScriptedReply(text="The counter is where you wanted it.")


def _follow_up(call: ScriptedCall) -> ScriptedReply:
    numbers = [int(number) for item in call.items if item.get("role") == "user" for number in _numbers(item)]
    total = sum(numbers)
    if call.random.random() < 0.25:
        total += call.random.choice((-1, 1))
    return ScriptedReply(text=f"So far that makes {total}.")


def _numbers(item: dict[str, object]) -> list[str]:
    return re.findall(r"-?\b\d+\b", str(item.get("content", "")))
