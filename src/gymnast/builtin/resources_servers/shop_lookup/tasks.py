"""A shop whose prices and stock only its tools know, and questions about them in six levels.

python -m gymnast.builtin.resources_servers.shop_lookup.tasks --count 200 --seed 1 --level 1-5 > tasks.jsonl
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from gymnast.builtin.graded_tasks import Generator, Row, function_tool, user_row, write_tasks

Kind = Literal["price", "stock", "cost", "in_stock", "change"]

ITEMS: Final = (
    *("apple", "pear", "lemon", "melon", "onion", "carrot", "potato", "egg", "cake", "cookie", "pen", "book", "cup"),
    *("plate", "spoon", "lamp", "chair", "hat", "shirt", "sock", "shoe", "ball", "kite", "robot", "candle", "brick"),
)
TOOLS: Final = (
    function_tool("get_price", "What one piece of an item costs.", item=("string", "The item, in the singular.")),
    function_tool("get_stock", "How many pieces of an item there are.", item=("string", "The item, in the singular.")),
)


@dataclass(frozen=True, slots=True)
class Shop:
    """Prices and stock by item."""

    prices: Mapping[str, int]
    stock: Mapping[str, int]

    def look_up(self, tool: str, item: str) -> int | None:
        """The reply of a tool; None for an item that is not sold."""
        return (self.prices if tool == "get_price" else self.stock).get(item)


@dataclass(frozen=True, slots=True)
class Order:
    """A customer's order: amounts by item, and `paid` if the question is about change."""

    kind: Kind
    amounts: tuple[tuple[str, int], ...]
    paid: int = 0


@dataclass(frozen=True, slots=True)
class _Level:
    kinds: tuple[Kind, ...]
    items: tuple[int, ...]
    max_amount: int
    max_price: int


_LEVELS: Final = {
    1: _Level(("price", "stock"), (1,), 1, 9),
    2: _Level(("cost",), (1,), 5, 9),
    3: _Level(("cost", "in_stock"), (1, 2), 6, 9),
    4: _Level(("cost", "change"), (2, 2, 3), 9, 12),
    5: _Level(("cost", "in_stock", "change"), (2, 3), 9, 20),
    6: _Level(("cost", "in_stock", "change"), (3, 4), 9, 50),
}


def make_shop(rng: random.Random, level: int) -> Shop:
    """Make a random shop with eight items."""
    items, highest = rng.sample(ITEMS, 8), _LEVELS[level].max_price
    return Shop({item: rng.randint(1, highest) for item in items}, {item: rng.randint(0, 12) for item in items})


def make_order(rng: random.Random, level: int, shop: Shop) -> Order:
    """Make a random order of items that the shop sells."""
    rules = _LEVELS[level]
    kind = rng.choice(rules.kinds)
    chosen = rng.sample(sorted(shop.prices), rng.choice(rules.items))
    lowest = min(2, rules.max_amount)
    order = Order(kind, tuple((item, rng.randint(lowest, rules.max_amount)) for item in chosen))
    if kind != "change":
        return order
    cost = answer_of(Order("cost", order.amounts), shop)
    notes = [paid for paid in (50, 100, 200, 500, 1000, 2000, 5000) if paid >= cost]
    return Order(kind, order.amounts, rng.choice(notes[:2]))


def answer_of(order: Order, shop: Shop) -> int:
    """The only correct answer."""
    item = order.amounts[0][0]
    if order.kind in {"price", "stock"}:
        return (shop.prices if order.kind == "price" else shop.stock)[item]
    bought = [
        (item, min(amount, shop.stock[item]) if order.kind == "in_stock" else amount) for item, amount in order.amounts
    ]
    cost = sum(amount * shop.prices[item] for item, amount in bought)
    return order.paid - cost if order.kind == "change" else cost


def text_of(order: Order) -> str:
    item = order.amounts[0][0]
    parts = [f"{amount} {item}{'s' if amount > 1 else ''}" for item, amount in order.amounts]
    things = ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]
    texts: dict[Kind, str] = {
        "price": f"What does one {item} cost?",
        "stock": f"How many {item}s are in stock?",
        "cost": f"What do {things} cost?",
        "in_stock": f"I want {things}, or as many as are in stock. What does that cost?",
        "change": f"I buy {things} and pay with {order.paid}. How much do I get back?",
    }
    return f"{texts[order.kind]} Use the tools. End with 'Answer: ' and the number."


def make_row(order: Order, shop: Shop, level: int) -> Row:
    """Make the dataset row of an order."""
    expected, prices, stock = answer_of(order, shop), dict(shop.prices), dict(shop.stock)
    return user_row(text_of(order), TOOLS, prices=prices, stock=stock, expected_answer=expected, level=level)


def _make(rng: random.Random, level: int) -> Row:
    shop = make_shop(rng, level)
    return make_row(make_order(rng, level, shop), shop, level)


GENERATOR: Final = Generator("shop_lookup", len(_LEVELS), _make)

if __name__ == "__main__":
    write_tasks(GENERATOR)
