"""Text for Gymnasium environments: the `toy_text` games have their own descriptions, others show their values.

Uses only public attributes of environments and spaces; does not import Gymnasium.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .actions import NoAction, choose, extract_action, list_choices, parse_json

MAX_ACTIONS: Final = 200


@dataclass(frozen=True, slots=True)
class GameText:
    """How a game is described to the model."""

    actions: Sequence[str] = ()
    """Names of the actions 0, 1, …; if empty, actions are numbers or JSON."""
    synonyms: Mapping[str, str] = field(default_factory=dict)
    describe: Callable[[Any, Any], str] | None = None
    """Describes an observation of an environment."""


def game_text_for(env_id: str) -> GameText:
    """The text of an environment, by its id without the version."""
    return _GAMES.get(env_id.rpartition("/")[2].rpartition("-v")[0], GameText())


def observation_text(game_text: GameText, env: Any, observation: Any) -> str:
    """The observation as shown to the model, with a hint how to act."""
    shown = (
        game_text.describe(env, observation)
        if game_text.describe is not None
        else f"Observation: {to_plain(observation)}"
    )
    return f"{shown}\n{action_help(game_text, env.action_space)}"


def action_help(game_text: GameText, space: Any) -> str:
    """The hint that says how to act."""
    kind = type(space).__name__
    if kind == "Discrete":
        return list_choices(_names(game_text, space))
    if kind == "Text":
        return "End with 'Action: ' and a text."
    return f"End with 'Action: ' and a value of {space} as JSON."


def parse_action(game_text: GameText, space: Any, turn: str) -> Any:
    """Parse the action of a turn and check it against the space. Raises NoAction, whose text goes to the model."""
    text = extract_action(turn)
    if text is None:
        raise NoAction(f"There is no action in this. {action_help(game_text, space)}")
    if type(space).__name__ == "Discrete":
        return choose(text, _names(game_text, space), game_text.synonyms, first=int(space.start))
    value = text if type(space).__name__ == "Text" else _to_space(space, parse_json(text))
    if not space.contains(value):
        raise NoAction(f"'{text[:50]}' is not an action here. {action_help(game_text, space)}")
    return value


def to_plain(value: Any) -> Any:
    """Convert arrays and numpy numbers to Python lists and numbers."""
    if isinstance(value, dict):
        return {str(key): to_plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(part) for part in value]
    as_list = getattr(value, "tolist", None)
    return as_list() if as_list is not None else value


def _to_space(space: Any, value: Any) -> Any:
    """Convert JSON to what the space contains: an array if it has a shape and a type."""
    if getattr(space, "shape", None) is not None and getattr(space, "dtype", None) is not None:
        import numpy as np  # noqa: PLC0415 - only for spaces of arrays

        try:
            return np.asarray(value, dtype=space.dtype).reshape(space.shape)
        except (TypeError, ValueError, OverflowError) as error:
            raise NoAction(f"The action does not have the shape of {space}.") from error
    return tuple(value) if type(space).__name__ == "Tuple" and isinstance(value, list) else value


def _names(game_text: GameText, space: Any) -> Sequence[str]:
    if game_text.actions:
        return game_text.actions
    return [str(int(space.start) + number) for number in range(min(int(space.n), MAX_ACTIONS))]


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


_LAKE: Final = GameText(("left", "down", "right", "up"), describe=_frozen_lake)
_CLIFF: Final = GameText(("up", "right", "down", "left"), describe=_cliff)
_GAMES: Final[Mapping[str, GameText]] = {
    "Blackjack": GameText(("stick", "hit"), {"stand": "stick", "stay": "stick", "draw": "hit"}, _blackjack),
    "FrozenLake": _LAKE,
    "FrozenLake8x8": _LAKE,
    "CliffWalking": _CLIFF,
    "CliffWalkingSlippery": _CLIFF,
    "Taxi": GameText(("south", "north", "east", "west", "pickup", "dropoff"), {"pick up": "pickup"}, _taxi),
}
