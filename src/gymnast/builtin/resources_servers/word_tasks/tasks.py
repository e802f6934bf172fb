"""Questions about the letters of real and made-up words, in six levels.

python -m gymnast.builtin.resources_servers.word_tasks.tasks --count 200 --seed 1 --level 1-5 > tasks.jsonl
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Literal

from gymnast.builtin.graded_tasks import Generator, Row, user_row, write_tasks

Kind = Literal[
    "first", "last", "length", "nth", "count", "reverse", "sort", "consonants", "second", "consonants_reversed"
]

_TEXT: Final = """
ant art bag bed box bus cat cow cup dog ear egg fan fig fox gem hat ice ink jam jar key leg lid map net nut oak owl
pan pen pig pot rat rug sea sky sun tea tie toy van web bear bell bird boat bone book bowl cake card clay coat coin
corn desk door drum duck farm fire fish flag frog game gate gift goat gold hand hill horn king kite lake lamp leaf
lion milk moon nest park path pear plum pond rain ring road rock roof rope rose salt sand seed ship shoe snow soap
sofa song star tent tree wall wave wind wolf wood yard apple beach bench berry board bread brick brush camel candy
chair chalk cheek cloud coach coral crane crowd dress eagle earth field flame floor flute fruit glass glove grape
grass green heart horse hotel house juice knife lemon light lunch maple medal melon metal mouse mouth night ocean
olive onion panda paper peach pearl piano pilot plant plate queen river robot salad scarf sheep shell shirt smoke
snail snake spoon stage stone storm sugar table tiger toast tower train truck whale wheat wheel world anchor banana
basket bottle bridge bucket butter button camera candle carpet carrot castle cherry circle coffee copper corner cotton
desert dinner dragon engine family feather finger flower forest garden guitar hammer island jacket jungle kettle
ladder letter lizard market meadow mirror monkey mother orange oyster pencil pepper pillow planet pocket potato rabbit
ribbon rocket saddle school shadow silver spider spring square statue summer sunset tailor temple ticket tomato tunnel
turtle valley velvet violin walnut window winter wizard airport balloon blanket cabbage captain chicken compass
curtain diamond dolphin factory fiction giraffe harvest history holiday journey kitchen lantern leopard library
machine morning musician octopus orchard painter pancake parade passage peacock penguin picture popcorn pumpkin
rainbow sailor sandwich scissors seaside shelter soldier station student sunrise teacher theatre thunder tractor
trumpet uniform village volcano whistle airplane birthday building calendar cathedral chocolate cinnamon computer
crocodile dinosaur elephant envelope festival fountain football hospital keyboard lemonade marathon medicine mountain
mushroom necklace notebook painting paradise passenger pineapple playground raspberry saxophone snowflake spaghetti
squirrel strawberry submarine sunflower telescope television treasure triangle umbrella universe vegetable waterfall
xylophone adventure architect basketball blackboard butterfly caterpillar friendship helicopter lighthouse microphone
motorcycle newspaper orchestra photograph restaurant skateboard supermarket
"""
_WORDS: Final = tuple(_TEXT.split())
_ONSETS: Final = "b br c cl d dr f fl g gr h j k l m n p pl r s st t tr v w z"
_STARTS: Final = tuple(_ONSETS.split())
_VOWELS: Final = "aeiou"


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a word; `letter` and `position` if the kind needs one."""

    kind: Kind
    word: str
    letter: str = ""
    position: int = 0


@dataclass(frozen=True, slots=True)
class _Level:
    kinds: tuple[Kind, ...]
    shortest: int
    longest: int
    made_up: float
    """The share of made-up words."""


_LEVELS: Final = {
    1: _Level(("first", "last", "length"), 3, 5, 0.0),
    2: _Level(("first", "last", "length", "nth", "count"), 4, 7, 0.3),
    3: _Level(("nth", "count", "reverse", "consonants"), 4, 6, 0.5),
    4: _Level(("reverse", "second", "consonants", "sort", "count"), 6, 8, 0.5),
    5: _Level(("reverse", "second", "sort", "consonants_reversed"), 7, 10, 0.5),
    6: _Level(("reverse", "sort", "consonants_reversed"), 10, 13, 1.0),
}


def make_question(rng: random.Random, level: int) -> Question:
    rules = _LEVELS[level]
    kind = rng.choice(rules.kinds)
    word = _invent_word(rng, rules) if rng.random() < rules.made_up else _real(rng, rules)
    letter = rng.choice(word) if rng.random() < 0.8 else rng.choice("aeinorst")
    return Question(kind, word, letter if kind == "count" else "", rng.randint(2, len(word)) if kind == "nth" else 0)


def answer_of(question: Question) -> str:
    """The only correct answer."""
    word = question.word
    consonants = "".join(letter for letter in word if letter not in _VOWELS)
    answers: dict[Kind, str] = {
        "first": word[0],
        "last": word[-1],
        "length": str(len(word)),
        "nth": word[question.position - 1],
        "count": str(word.count(question.letter)) if question.letter else "0",
        "reverse": word[::-1],
        "sort": "".join(sorted(word)),
        "consonants": consonants,
        "second": word[::2],
        "consonants_reversed": consonants[::-1],
    }
    return answers[question.kind]


def text_of(question: Question) -> str:
    word = f"'{question.word}'"
    texts: dict[Kind, str] = {
        "first": f"What is the first letter of {word}?",
        "last": f"What is the last letter of {word}?",
        "length": f"How many letters has {word}?",
        "nth": f"What is letter {question.position} of {word}?",
        "count": f"How often is the letter '{question.letter}' in {word}?",
        "reverse": f"Write {word} backwards.",
        "sort": f"Sort the letters of {word} from a to z.",
        "consonants": f"Write {word} without the letters a, e, i, o, u.",
        "second": f"Write letters 1, 3, 5 and so on of {word}.",
        "consonants_reversed": f"Write {word} without the letters a, e, i, o, u, and backwards.",
    }
    return f"{texts[question.kind]} End with 'Answer: ' and the answer."


def make_row(question: Question, level: int) -> Row:
    """Make the dataset row of a question."""
    return user_row(text_of(question), expected_answer=answer_of(question), level=level)


def _real(rng: random.Random, rules: _Level) -> str:
    return rng.choice([word for word in _WORDS if rules.shortest <= len(word) <= rules.longest])


def _invent_word(rng: random.Random, rules: _Level) -> str:
    length, word = rng.randint(rules.shortest, rules.longest), ""
    while len(word) < length:
        word += rng.choice(_STARTS) + rng.choice(_VOWELS)
    return word[:length]


GENERATOR: Final = Generator("word_tasks", len(_LEVELS), lambda rng, level: make_row(make_question(rng, level), level))

if __name__ == "__main__":
    write_tasks(GENERATOR)
