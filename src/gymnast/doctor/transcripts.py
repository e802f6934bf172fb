"""Questions about a sample of scored rollouts: did the model answer at all, and in a form that can be scored? Pure."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.checks.verifier_probe import expected_of
from gymnast.types.task import PARAMS, ROLLOUT_INDEX, TASK_INDEX
from gymnast.types.truncation import Truncation, truncation_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOOL_TEXT: Final = re.compile(
    r"(?i)</?tool_calls?>|<function=|<invoke name=|\[TOOL_CALLS\]|<\|python_tag\|>|<｜tool|<\|tool_call|<function_call>"
    r"|<\|channel\|>commentary to=|^\s*Action:\s*\w+\s*\n\s*Action Input:"
)
_REFUSAL: Final = re.compile(
    r"(?i)^\W*(?:(?:i(?:'|’)?m|i am) (?:very |really |so )?(?:sorry|afraid|unable|not able)|sorry\b|i (?:can(?:'"
    r"|’)?t|cannot|can not|won(?:'|’)?t)"
    r"|i must (?:decline|refuse)|as an ai\b|unfortunately,? i|i apologize|i(?:'|’)d (?:rather not|prefer not))"
)
_DECLINES: Final = re.compile(
    r"(?i)\b(?:(?:i(?:'|’)?m|i am) (?:not able|unable) to|i (?:cannot|can(?:'|’)?t|won(?:'|’)?t|will not) (?:be "
    r"able to )?"
    r"(?:help|assist|provide|answer|comply|continue|fulfil|engage|share|do that)"
    r"|i (?:must|have to|need to) (?:decline|refuse)|against my (?:guidelines|polic(?:y|ies)|principles|programming))"
)
_REFUSES: Final = re.compile(
    r"(?i)can(?:'|’)?t|cannot|can not|won(?:'|’)?t|unable|not able|sorry|decline|refuse|policy|apologize|afraid"
)
_CONTROL: Final = re.compile(
    r"<\|(?:im_start|im_end|eot_id|end_of_text|endoftext|start_header_id|end_header_id|end|user|assistant|system|eom_id)\|>"
    r"|<(?:start|end)_of_turn>|\[/?INST\]|</s>|<｜(?:User|Assistant|end▁of▁sentence)｜>|<\|(?:start|message|channel)\|>"
)
_FAILED_TOOL: Final = re.compile(
    r"(?i)^\W*(?:error|traceback|exception|failed|invalid|unknown tool|not found|timed? ?out|internal server error)\b"
    r"|\"(?:error|exception|detail)\"\s*:|\b\w+(?:Error|Exception): |error executing|connection refused|\btimed "
    r"out\b|\btimeout\b"
)
_LOOP_CHARS: Final = 200
_LOOP_RATIO: Final = 12
_SHORT: Final = 16


@dataclass(frozen=True)
class Rollout:
    """A scored rollout and its planned row."""

    record: dict[str, Any]
    row: dict[str, Any] | None

    @property
    def key(self) -> str:
        return f"{self.record.get(TASK_INDEX)}:{self.record.get(ROLLOUT_INDEX)}"

    @property
    def task(self) -> Any:
        return self.record.get(TASK_INDEX)

    @cached_property
    def items(self) -> list[dict[str, Any]]:
        response = self.record.get("response")
        output = response.get("output") if isinstance(response, dict) else None
        return [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []

    @cached_property
    def text(self) -> str:
        return "\n".join(_texts(item.get("content")) for item in self.items if item.get("type", "message") == "message")

    @cached_property
    def prompt(self) -> str:
        return prompt_of(self.row if self.row is not None else self.record)

    @property
    def has_calls(self) -> bool:
        return any(item.get("type") == "function_call" for item in self.items)

    @property
    def tool_outputs(self) -> list[str]:
        return [str(item.get("output")) for item in self.items if item.get("type") == "function_call_output"]

    @property
    def tools(self) -> list[str]:
        """The names of the tools that it was offered."""
        params = self.record.get(PARAMS)
        tools = params.get("tools") if isinstance(params, dict) else None
        return [str(tool.get("name")) for tool in tools or () if isinstance(tool, dict)]

    @property
    def expected(self) -> Any:
        """The expected answer, if the row has one."""
        return expected_of(self.row if self.row is not None else self.record)


def prompt_of(row: dict[str, Any]) -> str:
    """The text of a row's input."""
    params = row.get(PARAMS)
    value = params.get("input") if isinstance(params, dict) else None
    return value if isinstance(value, str) else "\n".join(_texts(item.get("content")) for item in _objects(value))


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    yield from (item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def _texts(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or part.get("refusal") or "") for part in _objects(content))


# --- one rollout -----------------------------------------------------------------------------------------------------


def writes_tool_call(rollout: Rollout) -> bool:
    """True if it was offered tools, called none, and its text contains a call."""
    if not rollout.tools or rollout.has_calls:
        return False
    return _TOOL_TEXT.search(rollout.text) is not None or any(
        _names_tool(block, rollout) for block in _json_in(rollout.text)
    )


def _json_in(text: str) -> Iterator[Any]:
    for match in re.finditer(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", text[:20_000]):
        try:
            yield orjson.loads(match[0])
        except orjson.JSONDecodeError:
            continue


def _names_tool(block: Any, rollout: Rollout) -> bool:
    named = block.get("name") or block.get("tool") or block.get("function") if isinstance(block, dict) else None
    return named in rollout.tools


def refuses(rollout: Rollout) -> bool:
    """True if the model declines to answer."""
    head = rollout.text.strip()[:400]
    if any(_is_refusal_part(item) for item in rollout.items):
        return True
    declines = _REFUSAL.match(head) is not None and _REFUSES.search(head) is not None
    return (declines or _DECLINES.search(head[:200]) is not None) and "boxed" not in rollout.text


def _is_refusal_part(item: dict[str, Any]) -> bool:
    return any(part.get("type") == "refusal" for part in _objects(item.get("content")))


def repeats_itself(rollout: Rollout) -> bool:
    """True if the text is one token or phrase over and over."""
    text = rollout.text
    return (
        bool(text.strip())
        and len(text) >= _LOOP_CHARS
        and len(text.encode()) / len(zlib.compress(text.encode())) >= _LOOP_RATIO
    )


def leaks_control_tokens(rollout: Rollout) -> bool:
    return _CONTROL.search(rollout.text) is not None


def leaves_reasoning_open(rollout: Rollout) -> bool:
    """True if a thought starts in the text and never ends."""
    return "<think>" in rollout.text and "</think>" not in rollout.text


def echoes_prompt(rollout: Rollout) -> bool:
    prompt, text = rollout.prompt.strip(), rollout.text.strip()
    return len(prompt) >= _SHORT and text.startswith(prompt)


def reaches_step_limit(rollout: Rollout) -> bool:
    return truncation_of(rollout.record) is Truncation.AGENT_LIMIT


def only_failing_tools(rollout: Rollout) -> bool:
    """True if it used tools, and every output is an error."""
    outputs = rollout.tool_outputs
    return bool(outputs) and all(_FAILED_TOOL.search(output[:2000]) for output in outputs)


def is_empty(rollout: Rollout) -> bool:
    return not rollout.text.strip() and not rollout.has_calls


_CLOSING_TAG: Final = re.compile(r"</\w+>")


def contains_expected(rollout: Rollout) -> bool:
    """True if the expected answer is in the text: as its last word, or, unless it is very short, anywhere."""
    expected = rollout.expected
    if isinstance(expected, (dict, list, bool)) or expected is None:
        return False
    value, words = str(expected).strip(), re.findall(r"[+-]?\w[\w.+-]*", _CLOSING_TAG.sub(" ", rollout.text))
    last = words[-1].rstrip(".") if words else ""
    if last.casefold() == value.casefold():
        return True
    return len(value) > 2 and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", rollout.text, re.IGNORECASE) is not None


def has_no_extraction(rollout: Rollout) -> bool:
    """True if there is a text, and the verifier says that it extracted nothing from it."""
    return (
        "extracted_answer" in rollout.record and not rollout.record["extracted_answer"] and bool(rollout.text.strip())
    )


def differs_from_plan(rollout: Rollout) -> bool:
    """True if the record's prompt is not the planned one."""
    return rollout.row is not None and prompt_of(rollout.record) != prompt_of(rollout.row)


def is_short(text: str) -> bool:
    return len(text.strip()) < _SHORT
