"""A shop with look-up tools: several look-ups, then one number."""

from __future__ import annotations

from gymnast.builtin.graded_tasks import last_number
from gymnast.kit import Attempt, Environment, Task, ToolError, Verdict, tool

from .tasks import Shop


class ShopTask(Task):
    prices: dict[str, int]
    stock: dict[str, int]
    expected_answer: int
    level: int = 1


class ShopVerdict(Verdict):
    expected_answer: int
    extracted_answer: int | None
    lookups: int
    level: int


class ShopLookup(Environment[ShopTask, Shop]):
    """Each rollout has its own shop."""

    parallel_tools = True

    async def open(self, task: ShopTask) -> Shop:
        return Shop(task.prices, task.stock)

    @tool
    async def get_price(self, session: Shop, item: str) -> str:
        """What one piece of an item costs.

        Args:
            item: The item, in the singular.
        """
        return _answer(session, "get_price", item)

    @tool
    async def get_stock(self, session: Shop, item: str) -> str:
        """How many pieces of an item there are.

        Args:
            item: The item, in the singular.
        """
        return _answer(session, "get_stock", item)

    async def verify(self, attempt: Attempt[ShopTask, Shop]) -> ShopVerdict:
        task, answer = attempt.task, last_number(attempt.last_text)
        return ShopVerdict(
            reward=float(answer == task.expected_answer),
            expected_answer=task.expected_answer,
            extracted_answer=answer,
            lookups=len(attempt.tool_calls),
            level=task.level,
        )


def _answer(shop: Shop, name: str, item: str) -> str:
    amount = shop.look_up(name, item)
    if amount is None:
        raise ToolError(f"no {item} here")
    return str(amount)
