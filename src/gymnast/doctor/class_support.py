"""How well the words of a line support its class: witnesses with weights, and a guess if they are too few.

Many messages have words such as "must be", "does not match" or "not found". That such a word occurs is one witness; a
class is named as more than a guess only if another one agrees.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gymnast.doctor.outcomes import template_of
from gymnast.doctor.system_errors import classify_plain
from gymnast.doctor.vocabulary import guess_class

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.doctor.failure_lines import FailureLine

_WORD: Final = 1
_PLAIN: Final = 2
_SPECIFIC: Final = 1
_NOUNS: Final = 1
_SAME_CLASS: Final = 1
_MIN_SUPPORT: Final = 2
_NEAR: Final = 60
"""Lines between two messages about the same failure."""
_SPECIFIC_WORDS: Final = {
    "bad_setting": r"\b(?:options?|arguments?|args|flags?|settings?|config\w*|param\w*|choices?|keywords?|fields?)\b"
    r"|--\w|\w=\S|validation error|unsupported|not supported|only supports?|trust_remote_code|unrecogni[sz]ed",
    "command_missing": r"no such file|fail\w* to stat|command not found|\bENOENT\b|NotFound|do(?:es)?(?: not|n't) exist"
    r"|\bnot (?:be )?found\b|\bno (?:[\w.-]+ ){1,4}(?:found|present)\b|cannot find|not a directory|\b12[67]\b|\b404\b",
    "resource_busy": r"\block(?:ed|s)?\b|\bEBUSY\b|\bbusy\b|duplicate key|another (?:process|instance|run)|deadlock"
    r"|in use",
    "access_denied": r"unauthori[sz]ed|forbidden|authenticat\w+|\bdenied|credentials?|\btokens?\b|password|api[ _-]?key"
    r"|(?:status|code|http|error|client)\D{0,16}40[13]\b|gated|log ?in",
    "timed_out": r"\b\d+(?:\.\d+)? ?(?:s|ms|sec\w*|min\w*|hours?)\b|heartbeat|watchdog|\bhung\b|not respond",
    "terminated": r"\bSIG(?:TERM|INT)\b|signal\D{0,4}(?:2|15)\b|\b(?:130|143)\b|-(?:2|15)\b|interrupted by user",
    "install_mismatch": r"ImportError|undefined symbol|symbol|\bGLIBC|\bABI\b|versions?\b|\d\.\d|wheel|linker|\bld\b"
    r"|compil\w+|requires?|kernel image|architecture|compute capability|has no attribute|unexpected keyword"
    r"|shared (?:object|librar)",
    "file_damaged": r"corrupt|checksum|magic|truncated|deserializ|\bCRC\b|HeaderTooLarge|BadZip"
    r"|\b(?:file|archive|checkpoint|download)\b|\.(?:zip|gz|tar|bin|pth?|safetensors|gguf|parquet|npz|h5|jsonl?|so|whl)\b",
    "weights_mismatch": r"shapes?\b|sizes? |dtype|state_dict|tensors?\b|weights?\b|tokenizer|vocab\w*|device",
    "throttled": r"\b429\b|too many requests|rate[- _]?limit|throttl|SlowDown",
}
"""Of classes whose patterns are broad: words that few other messages have."""
_PATTERNS: Final = {name: re.compile(f"(?i){words}") for name, words in _SPECIFIC_WORDS.items()}


def is_supported(line: FailureLine, failures: Iterable[FailureLine]) -> bool:
    """True if more than one witness names the class of a line."""
    specific = _PATTERNS.get(line.failure_class or "")
    if specific is None or line.is_known:
        return True
    support = _WORD
    support += _PLAIN * (classify_plain(line.message) == line.failure_class)
    support += _SPECIFIC * (specific.search(line.message) is not None)
    support += _NOUNS * (guess_class(line.message) == line.failure_class)
    support += _SAME_CLASS * any(_agrees(other, line) for other in failures)
    return support >= _MIN_SUPPORT


def _agrees(other: FailureLine, line: FailureLine) -> bool:
    """True for another message about the same moment that is of the same class."""
    if other.failure_class != line.failure_class or other.quote.file != line.quote.file:
        return False
    is_other = template_of(other.message.encode()) != template_of(line.message.encode())
    return is_other and abs(other.quote.line - line.quote.line) <= _NEAR
