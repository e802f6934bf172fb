"""One ledger for a rollout of several models: calls are renumbered, and each says which model server sampled it. Pure.

While the rollout runs, every model server numbers its calls from its own offset, so that numbers on items differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gymnast.types.tokens import EPISODE_AGENTS, TOKEN_CALL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gymnast.types.json import JsonObject

_MAX_CALLS: Final = 1 << 20


def first_call_of(position: int) -> int:
    """The number of the first call of the model server at this position in a collection."""
    return position * _MAX_CALLS


def merge_ledgers(ledgers: Mapping[str, JsonObject]) -> JsonObject:
    """The packed ledgers of several model servers as one, in this order."""
    calls: list[JsonObject] = []
    for policy, ledger in ledgers.items():
        start = len(calls)
        for call in ledger["calls"]:
            parent = {} if call.get("parent") is None else {"parent": call["parent"] + start}
            calls.append({**call, **parent, "policy": policy})
    models = dict.fromkeys(ledger["model"] for ledger in ledgers.values())
    renderers = {ledger.get("renderer", "") for ledger in ledgers.values()}
    first = next(iter(ledgers.values()))
    return {
        **first,
        "calls": calls,
        "model": ", ".join(models),
        "renderer": renderers.pop() if len(renderers) == 1 else "",
    }


def renumber_calls(result: JsonObject, positions: Mapping[str, int], ledgers: Mapping[str, JsonObject]) -> None:
    """Replace the numbers of calls in a result by those of the merged ledger.

    `positions`: of each model server in the collection. Numbers are on items, anywhere, and in `episode_agents`.
    """
    starts: dict[int, int] = {}
    start = 0
    for policy, ledger in ledgers.items():
        starts[positions[policy]] = start
        start += len(ledger["calls"])

    def number_of(call: Any) -> Any:
        if not isinstance(call, int):
            return call
        position, number = divmod(call, _MAX_CALLS)
        return starts.get(position, start) + number

    _renumber_items(result, number_of)
    agents = result.get(EPISODE_AGENTS)
    for agent in agents.values() if isinstance(agents, dict) else ():
        if isinstance(agent, dict) and isinstance(agent.get("calls"), list):
            agent["calls"] = [number_of(call) for call in agent["calls"]]


def _renumber_items(value: Any, number_of: Callable[[Any], Any]) -> None:
    """Iterative: a result may be nested deeper than Python's stack."""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if TOKEN_CALL in value:
                value[TOKEN_CALL] = number_of(value[TOKEN_CALL])
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
