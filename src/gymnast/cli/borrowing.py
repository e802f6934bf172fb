"""Commands that take options of other commands: said once, by the command that owns them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

Command = Callable[..., Any]


def borrowing(**lenders: tuple[Command, Iterable[str]]) -> Callable[[Command], Command]:
    """A command with options of others: `borrowing(collected=(collect.command, ("source", …)))` adds those options,
    and the command's parameter `collected` receives them as a dictionary."""

    def decorated(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        lent = {}
        for into, (lender, names) in lenders.items():
            parameters = inspect.signature(lender, eval_str=True).parameters
            lent[into] = {name: parameters[name] for name in names}

        def run(*args: Any, **given: Any) -> Any:
            for into, parameters in lent.items():
                given[into] = {name: given.pop(name) for name in parameters}
            return command(*args, **given)

        kept = [parameter for name, parameter in own.parameters.items() if name not in lent]
        more = [parameter for parameters in lent.values() for parameter in parameters.values()]
        shown = sorted([*kept, *more], key=lambda parameter: parameter.kind)
        run.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
        run.__doc__, run.__module__, run.__qualname__ = command.__doc__, command.__module__, command.__qualname__
        return run

    return decorated
