"""What a run may use: money and tokens. Pure: it is told what was spent and says whether that is enough.

What counts is what all attempts used, failed ones and earlier invocations included. It is looked at when an attempt
ends, so a run oversteps its budget by what was in flight at most. A budget that cannot be kept, because what was spent
is not known, ends the run as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.config import Instance


class Spending(Protocol):
    """What was spent so far."""

    @property
    def cost(self) -> float | None: ...

    @property
    def tokens(self) -> int: ...

    @property
    def calls(self) -> int: ...

    @property
    def unmetered_calls(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits; None is none."""

    max_cost: float | None = None
    """In the currency of the prices."""
    max_tokens: int | None = None
    """Input and output together."""

    def __post_init__(self) -> None:
        given = [limit for limit in (self.max_cost, self.max_tokens) if limit is not None]
        if not all(limit > 0 for limit in given):
            raise UserError("a budget is more than nothing", next="max_cost and max_tokens are numbers above 0")

    def used_up(self, spent: Spending) -> str | None:
        """Why nothing more may be started, in words, or None."""
        if self.max_cost is not None:
            if spent.cost is None:
                return f"the budget of {self.max_cost:g} cannot be kept: what some model calls cost is not known"
            if spent.cost >= self.max_cost:
                return f"the budget of {self.max_cost:g} is used up: {spent.cost:.6g} was spent"
        if self.max_tokens is not None:
            if spent.unmetered_calls:
                said = f"{spent.unmetered_calls} model calls were answered without usage"
                return f"the budget of {self.max_tokens} tokens cannot be kept: {said}"
            if spent.tokens >= self.max_tokens:
                return f"the budget of {self.max_tokens} tokens is used up: {spent.tokens} were used"
        return None


def require_prices(budget: Budget, instances: Iterable[Instance]) -> None:
    """A budget of money needs prices: refuse before anything is spent. Instances elsewhere have theirs there."""
    if budget.max_cost is None:
        return
    models = [one for one in instances if one.kind == "responses_api_models" and one.url is None]
    without = [model for model in models if not model.settings.get("prices")]
    if without:
        raise UserError(
            f"a budget of money needs prices, and {' and '.join(model.name for model in without)} has none",
            where=f"{without[0].config_path}.prices",
            next=f"per million tokens, 0 where it is free: "
            f"'++{without[0].config_path}.prices={{input: 0.4, output: 1.6}}'; or set --max-tokens",
        )
