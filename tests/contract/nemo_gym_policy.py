"""What the scripted policy says to the environments of the sample checkout, and what they are to make of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parent / "nemo_gym_checkout"


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    """A turn that calls a tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


@dataclass(frozen=True)
class Played:
    """The turns of a policy in an environment, and the rewards of its five example rows."""

    turns: list[Any]
    rewards: list[float]
    fields: dict[str, Any] = field(default_factory=dict)
    """Of the first record."""


PLAYED = {
    "weather_desk": Played([call("get_weather", city="Oslo"), "sunny"], [1, 0, 0, 0, 0], {"asked_for": "Oslo"}),
    "treasure_hunt": Played(
        [call("look", place="harbour"), call("look", place="mill"), call("look", place="tower"), "It is amber."],
        [1, 1, 1, 1, 1],
        {"steps": 3, "places": ["harbour", "mill", "tower"]},
    ),
    "tally_counter": Played([call("add", count=1), call("add", count=2), call("get_count"), "done"], [1, 0, 0, 0, 0]),
    "essay_judge": Played(["The sea is blue."], [1, 1, 1, 1, 1], {"judge_said": "yes"}),
    "recipe_checker": Played(["200 grams"], [1, 0.5, 0.5, 1, 0.5], {"amount_reward": 1.0}),
    "dice_walk": Played(["I walk 1", "then 2", "then 2"], [1, 0, 1, 0, 0]),
    "phone_book": Played([call("look_up", name="Ada"), "It is 555-01."], [1, 1, 1, 1, 1], {"tools_used": ["look_up"]}),
    "shell_golf": Played(["wc -l < words.txt"], [1, 1, 1, 0, 1], {"printed": "3"}),
    "spelling_bee": Played(["It is spelt cat"], [0, 1, 0, 0, 0], {"spelt": "cat"}),
    "poll_station": Played(["Yes"], [1, 1, 1, 1, 1], {"vote": "yes"}),
    "market_feed": Played([call("get_price"), "expensive"], [1, 1, 1, 1, 1]),
    "unit_converter": Played(["That is 3.28"], [1, 0, 0, 1, 0]),
    "ticket_office": Played(
        [
            call("price", kind="adult", count=2),
            call("price", kind="dog", count=1),
            call("opening_hours"),
            call("lost_and_found", what="hat"),
            call("sum_up", amounts=[40, 8]),
            "48 in all",
        ],
        [1, 1, 1, 1, 1],
    ),
}


def policy(turns: list[Any], *first: dict[str, Any]) -> dict[str, Any]:
    """A configuration whose policy says these turns, where no rule that comes first fits."""
    scripted = {"entrypoint": "app.py", "replies": [*first, {"replies": turns}]}
    return {"policy_model": {"responses_api_models": {"scripted_model": scripted}}}
