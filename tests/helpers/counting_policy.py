"""A scripted policy that works with any harness: it increases the counter as the task says, then answers.

It looks only at what a model would see, and uses whatever the harness offers: the environment's tools as functions, a
shell, or Python code. Each call has a known usage, so that a record's tokens can be checked exactly.
"""

from __future__ import annotations

import re
from typing import Any

from gymnast.builtin.responses_api_models.scripted_model.script import ScriptedCall, ScriptedReply, ScriptedToolCall

INPUT_TOKENS, OUTPUT_TOKENS = 100, 7
_TASK = re.compile(r"Increase the counter by [\d, thenby]+")


def answer(call: ScriptedCall) -> ScriptedReply:
    """The next step of the task."""
    text = "\n".join(_text(item) for item in call.items)
    steps = [int(number) for number in re.findall(r"by (\d+)", (_TASK.search(text) or [""])[0])]
    outputs = sum(item.get("type") == "function_call_output" for item in call.items)
    done = outputs or sum(item.get("role") == "user" and _is_observation(_text(item)) for item in call.items)
    offered = {str(tool.get("name")): tool.get("parameters") or {} for tool in call.params.get("tools") or ()}
    usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
    reply = _next_step(steps[done] if done < len(steps) else None, offered)
    return ScriptedReply(text=reply.text, tool_calls=reply.tool_calls, usage=usage)


def _is_observation(text: str) -> bool:
    """Whether a message has the output of code, as smolagents writes it."""
    return text.lstrip().startswith("Observation:")


def _next_step(count: int | None, offered: dict[str, Any]) -> ScriptedReply:
    counter = next((name for name in offered if name.endswith("increment_counter")), None)
    if counter is not None and count is not None:
        return _call(counter, {"count": count, **_choices(offered[counter])})
    if counter is not None:
        return _call("final_answer", {"answer": "done"}) if "final_answer" in offered else ScriptedReply(text="done")
    if list(offered) == ["bash"]:
        work = f"""tool increment_counter '{{"count": {count}}}'"""
        return _call("bash", {"command": work if count is not None else _submit()})
    code = f"increment_counter(count={count})" if count is not None else 'final_answer("done")'
    return ScriptedReply(text=f"Thought: the next step.\n<code>\n{code}\n</code>")


def _choices(schema: dict[str, Any]) -> dict[str, str]:
    """A value for each required choice that a harness adds to a tool, such as OpenHands' `security_risk`."""
    properties = schema.get("properties") or {}
    required = [name for name in schema.get("required") or () if "enum" in properties.get(name, {})]
    return {name: properties[name]["enum"][0] for name in required}


def _submit() -> str:
    return "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo done"


def _call(name: str, arguments: dict[str, Any]) -> ScriptedReply:
    return ScriptedReply(tool_calls=(ScriptedToolCall(name=name, arguments=arguments),))


def _text(item: dict[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or () if isinstance(part, dict))
