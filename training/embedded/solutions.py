"""How the policy's teachers solve tasks: careful ones write their steps, hasty ones guess, and some slip.

The mixture is meant: a policy that imitates all of them succeeds on a task sometimes, and better behaviour is within
its reach, so that repeats differ and training has something to find.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from gymnast.builtin.resources_servers.arithmetic import tasks as arithmetic
from gymnast.builtin.resources_servers.number_hunt import tasks as number_hunt
from gymnast.builtin.resources_servers.shop_lookup import tasks as shop_lookup
from gymnast.builtin.resources_servers.word_tasks import tasks as word_tasks

Message = dict[str, Any]
HASTY_SLIPS, CAREFUL_SLIPS = 0.1, 0.03
"""The share of answers with a wrong sign, for each level: of those without steps, and of those with them."""


@dataclass(slots=True)
class Conversation:
    """A task and one teacher's way through it."""

    messages: list[Message]
    tools: list[Message] = field(default_factory=list)

    def call(self, thought: str, *calls: tuple[str, dict[str, Any]]) -> None:
        said = [
            {"type": "function", "function": {"name": name, "arguments": json.dumps(given)}} for name, given in calls
        ]
        self.messages.append({"role": "assistant", "content": thought, "tool_calls": said})

    def told(self, text: str) -> None:
        self.messages.append({"role": "tool", "content": text})

    def say(self, text: str) -> None:
        self.messages.append({"role": "assistant", "content": text})


def conversation_of(row: dict[str, Any]) -> Conversation:
    """A dataset row as the beginning of a conversation."""
    params = row["responses_create_params"]
    tools = [{"type": "function", "function": tool} for tool in params.get("tools", ())]
    return Conversation([dict(message) for message in params["input"]], tools)


def solved_arithmetic(rng: random.Random, level: int) -> Conversation:
    term = arithmetic.make_term(rng, level)
    talk = conversation_of(arithmetic.make_row(term, level))
    style = pick(rng, direct=0.45, short=0.3, full=0.25)
    lines = [] if style == "direct" else steps(term, full=style == "full")
    answer = slipped(rng, str(arithmetic.value_of(term)), "0123456789", level, hasty=style == "direct")
    talk.say("\n".join([*lines, f"Answer: {answer}"]))
    return talk


def steps(term: arithmetic.Term, *, full: bool) -> list[str]:
    """The operations of a term, inner ones first; in full with a line for each digit."""
    if isinstance(term, int):
        return []
    left, right = arithmetic.value_of(term.left), arithmetic.value_of(term.right)
    return [*steps(term.left, full=full), *steps(term.right, full=full), *operation(left, term.sign, right, full=full)]


def operation(left: int, sign: str, right: int, *, full: bool) -> list[str]:
    result = {"+": left + right, "-": left - right, "*": left * right}[sign]
    lines: list[str] = []
    if sign == "*" and left > 9 and right > 9:
        lines = long_product(left, right, full=full)
    elif full and max(left, right) > 9:
        lines = {"+": added, "-": subtracted, "*": times_digit}[sign](left, right)
    return [*lines, f"{left}{sign}{right}={result}"]


def added(left: int, right: int) -> list[str]:
    lines, carry = [], 0
    for a, b in digit_pairs(left, right):
        total = a + b + carry
        lines.append(f"{a}+{b}{'+1' if carry else ''}={total}")
        carry = total // 10
    return lines


def subtracted(left: int, right: int) -> list[str]:
    lines, borrow = [], 0
    for a, b in digit_pairs(left, right):
        short = a < b + borrow
        top = a + 10 * short
        lines.append(f"{top}-{b}{'-1' if borrow else ''}={top - b - borrow}")
        borrow = int(short)
    return lines


def times_digit(left: int, right: int) -> list[str]:
    number, digit = max(left, right), min(left, right)
    lines, carry = [], 0
    for figure in reversed(str(number)):
        total = int(figure) * digit + carry
        lines.append(f"{figure}*{digit}{f'+{carry}' if carry else ''}={total}")
        carry = total // 10
    return lines


def long_product(left: int, right: int, *, full: bool) -> list[str]:
    """By the digits of the right number, from the last; then their sum."""
    lines: list[str] = []
    total = 0
    for position, figure in enumerate(reversed(str(right))):
        part = left * int(figure)
        lines += operation(left, "*", int(figure), full=full)
        if position:
            lines += operation(total, "+", part * 10**position, full=full)
        total += part * 10**position
    return lines


def digit_pairs(left: int, right: int) -> list[tuple[int, int]]:
    width = max(len(str(left)), len(str(right)))
    return [(int(a), int(b)) for a, b in zip(str(left).zfill(width)[::-1], str(right).zfill(width)[::-1], strict=True)]


def solved_words(rng: random.Random, level: int) -> Conversation:
    question = word_tasks.make_question(rng, level)
    talk = conversation_of(word_tasks.make_row(question, level))
    lines = [] if rng.random() < 0.55 else spelled(question)
    answer = word_tasks.answer_of(question)
    kind = "0123456789" if answer.isdigit() else "abcdefghijklmnopqrstuvwxyz"
    talk.say("\n".join([*lines, f"Answer: {slipped(rng, answer, kind, level, hasty=not lines)}"]))
    return talk


def spelled(question: word_tasks.Question) -> list[str]:
    """The word letter by letter, and what becomes of it."""
    word, kind, answer = question.word, question.kind, word_tasks.answer_of(question)
    if kind in {"nth", "length", "second"}:
        numbered = "-".join(f"{letter}{position}" for position, letter in enumerate(word, 1))
        return [numbered, "-".join(answer)] if kind == "second" else [numbered]
    if kind == "count":
        return [
            "-".join(f"{letter}{word[:position].count(question.letter)}" for position, letter in enumerate(word, 1))
        ]
    if kind in {"first", "last"}:
        return ["-".join(word)]
    if kind == "consonants_reversed":
        return ["-".join(word), "-".join(answer[::-1]), "-".join(answer)]
    return ["-".join(word), "-".join(answer)]


def solved_shop(rng: random.Random, level: int) -> Conversation:
    shop = shop_lookup.make_shop(rng, level)
    order = shop_lookup.make_order(rng, level, shop)
    talk = conversation_of(shop_lookup.make_row(order, shop, level))
    lookups = lookups_of(rng, order)
    believed = {name: shop.look_up(*name) or 0 for name in lookups}
    if rng.random() < 0.12:  # a hasty teacher does not ask for one of them and makes it up
        forgotten = lookups.pop(rng.randrange(len(lookups)))
        believed[forgotten] = rng.randint(1, 9)
    look_up(rng, talk, shop, lookups)
    style = pick(rng, direct=0.25, short=0.5, full=0.25)
    lines, answer = reckoned(order, believed, full=style == "full")
    lines = [] if style == "direct" else lines
    said = slipped(rng, str(answer), "0123456789", level, hasty=not lines)
    talk.say("\n".join([*lines, f"Answer: {said}"]))
    return talk


def lookups_of(rng: random.Random, order: shop_lookup.Order) -> list[tuple[str, str]]:
    """What must be asked: item by item, or first all prices."""
    items = [item for item, _ in order.amounts]
    prices, stock = [("get_price", item) for item in items], [("get_stock", item) for item in items]
    if order.kind == "stock":
        return stock
    if order.kind != "in_stock":
        return prices
    if rng.random() < 0.5:
        return [*prices, *stock]
    return [lookup for pair in zip(prices, stock, strict=True) for lookup in pair]


def look_up(rng: random.Random, talk: Conversation, shop: shop_lookup.Shop, lookups: list[tuple[str, str]]) -> None:
    at_once = max(1, len(lookups)) if rng.random() < 0.3 else 1
    for start in range(0, len(lookups), at_once):
        batch = lookups[start : start + at_once]
        talk.call("", *((name, {"item": item}) for name, item in batch))
        for name, item in batch:
            talk.told(str(shop.look_up(name, item)))


def reckoned(order: shop_lookup.Order, believed: dict[tuple[str, str], int], *, full: bool) -> tuple[list[str], int]:
    """The steps from what was found to the answer."""
    item = order.amounts[0][0]
    if order.kind in {"price", "stock"}:
        return [], believed[f"get_{order.kind}", item]
    lines: list[str] = []
    total = 0
    for position, (name, wanted) in enumerate(order.amounts):
        amount = min(wanted, believed["get_stock", name]) if order.kind == "in_stock" else wanted
        price = believed["get_price", name]
        lines += operation(price, "*", amount, full=full)
        lines += operation(total, "+", amount * price, full=full) if position else []
        total += amount * price
    if order.kind != "change":
        return lines, total
    if order.paid < total:  # only when a price was made up
        return lines, 0
    return [*lines, *operation(order.paid, "-", total, full=full)], order.paid - total


def solved_hunt(rng: random.Random, level: int) -> Conversation:
    hidden, highest, budget = number_hunt.make_game(rng, level)
    talk = conversation_of(number_hunt.make_row(hidden, highest, budget, level))
    game = number_hunt.Hunt(hidden, budget)
    strategy = pick(rng, halves=0.25, near=0.25, anywhere=0.3, forgetful=0.2)
    thinks = rng.random() < 0.6
    low, high = 1, highest
    while True:
        number = next_guess(rng, strategy, low, high, highest)
        talk.call(f"{low}-{high}" if thinks else "", ("guess", {"number": number}))
        told = game.guess(number)
        talk.told(told)
        if told == "higher":
            low = max(low, number + 1)
        elif told == "lower":
            high = min(high, number - 1)
        else:
            talk.say(f"It is {number}." if game.found else "I did not find it.")
            return talk


def next_guess(rng: random.Random, strategy: str, low: int, high: int, highest: int) -> int:
    if strategy == "forgetful" and rng.random() < 0.35:
        return rng.randint(1, highest)
    if strategy == "anywhere":
        return rng.randint(low, high)
    quarter = (high - low) // 4 if strategy == "near" else 0
    return rng.randint((low + high) // 2 - quarter, (low + high) // 2 + quarter)


def pick(rng: random.Random, **weights: float) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]


def slipped(rng: random.Random, answer: str, alphabet: str, level: int, *, hasty: bool) -> str:
    """The answer, now and then with one sign that is wrong: more often on hard tasks, and without steps."""
    if rng.random() >= level * (HASTY_SLIPS if hasty else CAREFUL_SLIPS):
        return answer
    position = rng.randrange(len(answer))
    return answer[:position] + rng.choice(alphabet) + answer[position + 1 :]


TEACHERS = {
    "arithmetic": (solved_arithmetic, arithmetic.GENERATOR),
    "word_tasks": (solved_words, word_tasks.GENERATOR),
    "shop_lookup": (solved_shop, shop_lookup.GENERATOR),
    "number_hunt": (solved_hunt, number_hunt.GENERATOR),
}
