"""How Gymnasium environments are put into words: those of `toy_text` in words of their own, others by their values.

Reads environments and spaces by their public attributes only; nothing of Gymnasium is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gymnast.hub.resources_servers.gymnasium.actions import NoAction, action_text, choice, choices_text, json_value

MOST_ACTIONS: Final = 200


@dataclass(frozen=True, slots=True)
class Words:
    """The words of one game."""

    actions: Sequence[str] = ()
    """Names of the actions 0, 1, …; without any, actions are numbers or JSON."""
    synonyms: Mapping[str, str] = field(default_factory=dict)
    seen: Callable[[Any, Any], str] | None = None
    """An observation of an environment as text."""


def words_of(env_id: str) -> Words:
    """The words for an environment, by its id without the version."""
    return _WORDS.get(env_id.rpartition("/")[2].rpartition("-v")[0], Words())


def observation_text(words: Words, env: Any, observation: Any) -> str:
    """What the model is shown, and how it says what it does."""
    shown = words.seen(env, observation) if words.seen is not None else f"Observation: {plain(observation)}"
    return f"{shown}\n{how_to_act(words, env.action_space)}"


def how_to_act(words: Words, space: Any) -> str:
    """The actions there are."""
    kind = type(space).__name__
    if kind == "Discrete":
        return choices_text(_names(words, space))
    if kind == "Text":
        return "End with 'Action: ' and a text."
    return f"End with 'Action: ' and a value of {space} as JSON."


def action_of(words: Words, space: Any, text: str) -> Any:
    """The action of a turn, checked to be one of the space. Raises NoAction, which the model gets to read."""
    said = action_text(text)
    if said is None:
        raise NoAction(f"There is no action in this. {how_to_act(words, space)}")
    if type(space).__name__ == "Discrete":
        return choice(said, _names(words, space), words.synonyms, first=int(space.start))
    value = said if type(space).__name__ == "Text" else _shaped(space, json_value(said))
    if not space.contains(value):
        raise NoAction(f"'{said[:50]}' is no action here. {how_to_act(words, space)}")
    return value


def plain(value: Any) -> Any:
    """Arrays and numpy's numbers as lists and numbers of Python."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    as_list = getattr(value, "tolist", None)
    return as_list() if as_list is not None else value


def _shaped(space: Any, value: Any) -> Any:
    """JSON as what the space contains: arrays where it has a shape and a type."""
    if getattr(space, "shape", None) is not None and getattr(space, "dtype", None) is not None:
        import numpy as np  # noqa: PLC0415 - only for spaces of arrays

        try:
            return np.asarray(value, dtype=space.dtype).reshape(space.shape)
        except (TypeError, ValueError, OverflowError) as error:
            raise NoAction(f"The action does not have the shape of {space}.") from error
    return tuple(value) if type(space).__name__ == "Tuple" and isinstance(value, list) else value


def _names(words: Words, space: Any) -> Sequence[str]:
    if words.actions:
        return words.actions
    return [str(int(space.start) + number) for number in range(min(int(space.n), MOST_ACTIONS))]


def _blackjack(_: Any, observation: Any) -> str:
    total, dealer, ace = (int(part) for part in observation)
    shown = "an ace" if dealer == 1 else f"a {dealer}"
    return f"Your hand is {total}{' with a usable ace' if ace else ''}. The dealer shows {shown}."


def _frozen_lake(env: Any, observation: Any) -> str:
    rows = [[cell.decode() for cell in row] for row in env.unwrapped.desc]
    row, column = divmod(int(observation), len(rows[0]))
    rows[row][column] = "P"
    return "\n".join("".join(row) for row in rows) + "\nP you, G goal, H hole, F ice, S start."


def _cliff(env: Any, observation: Any) -> str:
    height, width = env.unwrapped.shape
    row, column = divmod(int(observation), width)
    where = f"You are in row {row}, column {column} of {height} rows and {width} columns."
    return f"{where} The goal is at the end of the last row; between its ends is the cliff."


def _taxi(env: Any, observation: Any) -> str:
    row, column, passenger, destination = (int(part) for part in env.unwrapped.decode(int(observation)))
    stands = ("row 0, column 0", "row 0, column 4", "row 4, column 0", "row 4, column 3")
    waits = "The passenger is in the taxi" if passenger == 4 else f"The passenger waits at {stands[passenger]}"
    return f"The taxi is in row {row}, column {column}. {waits} and wants to go to {stands[destination]}."


_LAKE: Final = Words(("left", "down", "right", "up"), seen=_frozen_lake)
_CLIFF: Final = Words(("up", "right", "down", "left"), seen=_cliff)
_WORDS: Final[Mapping[str, Words]] = {
    "Blackjack": Words(("stick", "hit"), {"stand": "stick", "stay": "stick", "draw": "hit"}, _blackjack),
    "FrozenLake": _LAKE,
    "FrozenLake8x8": _LAKE,
    "CliffWalking": _CLIFF,
    "CliffWalkingSlippery": _CLIFF,
    "Taxi": Words(("south", "north", "east", "west", "pickup", "dropoff"), {"pick up": "pickup"}, _taxi),
}
