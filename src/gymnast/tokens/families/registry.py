"""The model families by name, and their detection by chat template."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gymnast.errors import NotFoundError, suggest
from gymnast.tokens.families import deepseek, glm, harmony, hermes, llama3, mistral, smollm2
from gymnast.tokens.families.family import Family, ParseContext, ParseResult, TaggedText, to_text
from gymnast.tokens.families.thoughts import CLOSE, OPEN, UNCLOSED, split_thought
from gymnast.tokens.families.xml_calls import parse_xml_calls
from gymnast.tokens.rendering import ParsedTurn

if TYPE_CHECKING:
    from collections.abc import Mapping


def parse_plain(pieces: TaggedText, context: ParseContext) -> ParseResult:
    """Parse a thought, if the template supports thoughts, and content."""
    thought = split_thought(pieces, in_thought=context.in_thought)
    malformed = (UNCLOSED,) if thought.is_open else ()
    return ParseResult(ParsedTurn(to_text(thought.rest), thought.reasoning, malformed=malformed), thought.is_open)


_CHATML: Final = ("<|im_end|>", "<|endoftext|>")


def _hermes(name: str) -> Family:
    return Family(name, hermes.parse_hermes, _CHATML, tags=hermes.TAGS, assistant_tags=hermes.TAGS, thinks=True)


_FAMILIES: Final = (
    _hermes("qwen2_5"),
    _hermes("qwen3"),
    Family("llama3", llama3.parse_llama3, ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"), tags=(llama3.PYTHON_TAG,)),
    Family("gemma3", parse_plain, ("<end_of_turn>", "<eos>")),
    Family(
        "deepseek_v3",
        deepseek.parse_deepseek,
        ("<｜end▁of▁sentence｜>",),
        tags=deepseek.TAGS,
        assistant_tags=(OPEN, CLOSE),
        thinks=True,
    ),
    Family("mistral_nemo", mistral.parse_mistral, ("</s>",), tags=(mistral.CALLS,), prepare=mistral.shorten_call_ids),
    Family(
        "glm4_5",
        glm.parse_glm,
        ("<|endoftext|>", "<|user|>", "<|observation|>"),
        tags=glm.TAGS,
        assistant_tags=glm.TAGS,
        thinks=True,
    ),
    Family(
        "gpt_oss",
        harmony.parse_harmony,
        (harmony.RETURN, harmony.CALL, "<|endoftext|>"),
        turn_ends=(harmony.END,),
        tags=harmony.TAGS,
        prepare=harmony.merge_content_into_thought,
    ),
    Family("nemotron3", parse_xml_calls, (*_CHATML, "</s>"), tags=hermes.TAGS, assistant_tags=hermes.TAGS, thinks=True),
    replace(_hermes("smollm2"), tool_template=smollm2.TOOL_TEMPLATE),
    _hermes("embedded"),
    Family("plain", parse_plain, _CHATML, tags=(OPEN, CLOSE), assistant_tags=(OPEN, CLOSE), thinks=True),
)
FAMILIES: Final[Mapping[str, Family]] = {family.name: family for family in _FAMILIES}

# In this order: the first text found in a template decides.
_SIGNATURES: Final = (
    ("<|channel|>", "gpt_oss"),
    ("<｜Assistant｜>", "deepseek_v3"),
    ("[INST]", "mistral_nemo"),
    ("<arg_key>", "glm4_5"),
    ("<function=", "nemotron3"),
    ("<start_of_turn>", "gemma3"),
    ("<|start_header_id|>", "llama3"),
    ("named SmolLM", "smollm2"),
    ("<|im_start|>", "qwen3"),
)


def get_family(name: str) -> Family:
    """Get a family by name. Raises NotFoundError with suggestions."""
    try:
        return FAMILIES[name]
    except KeyError:
        raise NotFoundError(f"there is no model family '{name}'", next=suggest(name, FAMILIES)) from None


def detect_family(chat_template: str) -> Family | None:
    return next((FAMILIES[name] for signature, name in _SIGNATURES if signature in chat_template), None)
