"""What a run may use: money and tokens. Pure.

All attempts count, including failed ones and earlier invocations. The budget is checked when an attempt ends, so a run
exceeds it by at most what was in flight. A run whose usage is unknown ends as well: its budget cannot be enforced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.config import Instance


class UsageTotals(Protocol):
    """What a run has used so far."""

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
    """The limits; None is unlimited."""

    max_cost: float | None = None
    """In the currency of the prices."""
    max_tokens: int | None = None
    """Input and output together."""

    def __post_init__(self) -> None:
        if any(limit is not None and not limit > 0 for limit in (self.max_cost, self.max_tokens)):  # nan is no limit
            raise UserError("a budget must be positive", next="set max_cost and max_tokens to numbers above 0")

    def exhausted_reason(self, spent: UsageTotals) -> str | None:
        """Why nothing more may be started, or None."""
        if self.max_cost is not None:
            if spent.cost is None:
                return f"the budget of {self.max_cost:g} cannot be enforced: the cost of some model calls is unknown"
            if spent.cost >= self.max_cost:
                return f"the budget of {self.max_cost:g} is used up: {spent.cost:.6g} was spent"
        if self.max_tokens is not None:
            if spent.unmetered_calls:
                calls = f"{spent.unmetered_calls} model calls reported no usage"
                return f"the budget of {self.max_tokens} tokens cannot be enforced: {calls}"
            if spent.tokens >= self.max_tokens:
                return f"the budget of {self.max_tokens} tokens is used up: {spent.tokens} were used"
        return None


def require_prices(budget: Budget, instances: Iterable[Instance]) -> None:
    """Raise if money is limited but a model has no prices. Remote instances have theirs elsewhere."""
    if budget.max_cost is None:
        return
    models = [model for model in instances if model.kind == "responses_api_models" and model.url is None]
    unpriced = [model for model in models if not model.settings.get("prices")]
    if unpriced:
        raise UserError(
            f"a cost budget needs prices, but {' and '.join(model.name for model in unpriced)} has none",
            where=f"{unpriced[0].config_path}.prices",
            next=f"set prices per million tokens (0 if it is free): "
            f"'++{unpriced[0].config_path}.prices={{input: 0.4, output: 1.6}}'; or use --max-tokens",
        )
