"""Tasks of RULER's kinds in nine lengths, from 500 to 128,000 words, with their own vocabulary.

python -m gymnast.builtin.resources_servers.ruler.tasks --count 200 --seed 1 --level 1-5 > tasks.jsonl

NeMo Gym's benchmark `ruler` prepares the original rows with a tokenizer; these need no download and count words.
"""

from __future__ import annotations

import random
import string
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from gymnast.builtin.graded_tasks import Generator, Row, user_row, write_tasks

LEVELS: Final = 9
_WORDS: Final = 500
"""In a context of level 1; each level has twice as many as the one before."""
_FILLER: Final = (
    "The harbour was quiet that morning.",
    "A cart rolled past the bakery and stopped at the well.",
    "Rain had been promised for the afternoon, and the fields waited.",
    "Nobody had counted the steps of the old tower.",
    "The letters arrived late, as they always did in winter.",
    "Two gardeners argued about the height of a hedge.",
    "The clock above the gate had lost its smaller hand.",
    "Fresh paint dried slowly on the doors of the boathouse.",
)
_SYLLABLES: Final = ("ba", "de", "fo", "gu", "ki", "lo", "mu", "na", "pe", "ro", "su", "ti", "va", "we", "zo")
Make = Callable[[random.Random, int], Row]


def make_row(rng: random.Random, level: int) -> Row:
    """A random row of a level."""
    return rng.choice(list(KINDS.values()))(rng, level)


def _needle(values: str, *, keys: int = 1, per_key: int = 1, asked: int = 1, subset: str) -> Make:
    """Facts about keys hidden in filler; `asked` keys are asked for."""

    def make(rng: random.Random, level: int) -> Row:
        names = _distinct(rng, keys, _word)
        facts = [(name, _VALUES[values](rng)) for name in names for _ in range(per_key)]
        sentences = [f"One of the special magic {values} for {name} is: {value}." for name, value in facts]
        wanted = rng.sample(names, asked)
        question = f"What are all the special magic {values} for {' and '.join(wanted)} mentioned in the provided text?"
        intro = f"Some special magic {values} are hidden within the following text. You will be asked for them."
        return _row(intro, _hide(rng, sentences, level), question, [v for n, v in facts if n in wanted], subset)

    return make


def _variables(rng: random.Random, level: int) -> Row:
    """Chains of assignments; the variables of one of them are asked for."""
    chains = [_distinct(rng, 5, _variable) for _ in range(2)]
    values = _distinct(rng, 2, _number)
    lines: list[str] = []
    for chain, value in zip(chains, values, strict=True):
        sources = [value, *(f"VAR {name}" for name in chain)]
        lines += [f"VAR {name} = {source}." for name, source in zip(chain, sources, strict=False)]
    intro = "Track the chains of variable assignments hidden in the following text."
    question = f"Question: Find all variables that are assigned the value {values[0]} in the text above."
    return _row(intro, _hide(rng, lines, level, in_order=True), question, chains[0], "vt")


def _common_words(rng: random.Random, level: int) -> Row:
    """A list in which ten words occur more often than the others."""
    words = _distinct(rng, 10 + _words(level) // 6, _word)
    common = words[:10]
    listed = common * 6 + words[10:] * 2
    rng.shuffle(listed)
    intro = "Below is a numbered list of words. Some of them occur more often than the others."
    text = " ".join(f"{number}. {word}" for number, word in enumerate(listed[: _words(level)], start=1))
    return _row(intro, text, "Question: What are the 10 most common words in the list above?", common, "cwe")


def _frequent_words(rng: random.Random, level: int) -> Row:
    """Coded words with falling frequencies, of which the three most frequent are asked for."""
    words = _distinct(rng, 12, _word)
    count = _words(level)
    shares = [0.24, 0.18, 0.13]
    listed = [word for word, share in zip(words, shares, strict=False) for _ in range(int(count * share))]
    listed += [words[3 + number % 9] for number in range(count - len(listed))]
    rng.shuffle(listed)
    intro = "Read the following coded text and keep track of how often each coded word occurs."
    question = "Question: What are the three most frequent words in the coded text above?"
    return _row(intro, " ".join(listed), question, words[:3], "fwe")


KINDS: Final[dict[str, Make]] = {
    "niah_single_1": _needle("numbers", subset="niah_single_1"),
    "niah_single_3": _needle("uuids", subset="niah_single_3"),
    "niah_multikey_1": _needle("numbers", keys=4, subset="niah_multikey_1"),
    "niah_multivalue": _needle("numbers", per_key=4, subset="niah_multivalue"),
    "niah_multiquery": _needle("numbers", keys=6, asked=4, subset="niah_multiquery"),
    "vt": _variables,
    "cwe": _common_words,
    "fwe": _frequent_words,
}


def _row(intro: str, context: str, question: str, outputs: Sequence[str], subset: str) -> Row:
    text = f"{intro}\n{context}\n{question}"
    return user_row(text, outputs=list(outputs), length=len(text.split()), subset=subset)


def _hide(rng: random.Random, sentences: Sequence[str], level: int, *, in_order: bool = False) -> str:
    """The sentences at random places of a filler text."""
    filler: list[str] = []
    count = sum(len(sentence.split()) for sentence in sentences)
    while count < _words(level):
        filler.append(rng.choice(_FILLER))
        count += len(filler[-1].split())
    hidden = list(sentences) if in_order else rng.sample(list(sentences), len(sentences))
    for place, sentence in sorted(zip(sorted(rng.sample(range(len(filler) + 1), len(hidden))), hidden, strict=True))[
        ::-1
    ]:
        filler.insert(place, sentence)
    return " ".join(filler)


def _words(level: int) -> int:
    return _WORDS << (level - 1)


def _distinct(rng: random.Random, count: int, make: Callable[[random.Random], str]) -> list[str]:
    values: dict[str, None] = {}
    while len(values) < count:
        values[make(rng)] = None
    return list(values)


def _word(rng: random.Random) -> str:
    return "".join(rng.choice(_SYLLABLES) for _ in range(4))


def _number(rng: random.Random) -> str:
    return str(rng.randrange(1_000_000, 10_000_000))


def _variable(rng: random.Random) -> str:
    return "".join(rng.choice(string.ascii_uppercase) for _ in range(5))


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


_VALUES: Final[dict[str, Callable[[random.Random], str]]] = {"numbers": _number, "uuids": _uuid}
GENERATOR: Final = Generator("ruler", LEVELS, make_row)

if __name__ == "__main__":
    write_tasks(GENERATOR)
