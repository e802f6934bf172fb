"""One hand of blackjack: hit or stand until it ends. Won 1, drawn 0, lost -1."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gymnast.kit import Attempt, EnvironmentSettings, ScoringSettings, Step, StepEnvironment, Task

_RANKS: Final = ("2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K", "A")
_ACTION: Final = re.compile(r"<action>\s*(hit|stand)\s*</action>", re.IGNORECASE)
_BEST: Final = 21
_DEALER_STANDS: Final = 17
_PROMPT: Final = "Respond with <action>hit</action> or <action>stand</action>."


class BlackjackSettings(ScoringSettings, EnvironmentSettings):
    pass


class BlackjackTask(Task):
    seed: int | None = None
    """Makes the cards the same in every rollout of the row; without it they differ, as in NeMo Gym."""


@dataclass(slots=True)
class Hand:
    """The cards of both sides, and where further cards come from."""

    cards: random.Random
    player: list[str]
    dealer: list[str]

    def deal(self) -> str:
        return self.cards.choice(_RANKS)


class Blackjack(StepEnvironment[BlackjackTask, Hand]):
    """Cards come from an endless deck; an ace is 11 unless that would be a bust."""

    settings: BlackjackSettings

    async def reset(self, task: BlackjackTask) -> tuple[Hand, str | None]:
        cards = random.Random(task.seed)  # noqa: S311 - a game
        player = [cards.choice(_RANKS), cards.choice(_RANKS)]
        hand = Hand(cards, player, [cards.choice(_RANKS), cards.choice(_RANKS)])
        return hand, _describe_hand(hand)

    async def step(self, turn: Attempt[BlackjackTask, Hand]) -> Step:
        is_strict = self.settings.scoring == "strict"
        text = turn.text if is_strict else turn.unattributed_text
        hand, actions = turn.session, [action.lower() for action in _ACTION.findall(text)]
        if is_strict and len(set(actions)) != 1:
            return Step(reward=-1.0, terminated=True, info={"result": "invalid_action"})
        if actions and actions[0] == "hit":
            return _hit(hand)
        return _stand(hand)


def _hit(hand: Hand) -> Step:
    hand.player.append(hand.deal())
    value = hand_value(hand.player)
    if value > _BEST:
        info = {"result": "bust", "player": _format_cards(hand.player), "value": value}
        return Step(reward=-1.0, terminated=True, info=info)
    return Step(observation=_describe_hand(hand))


def _stand(hand: Hand) -> Step:
    while hand_value(hand.dealer) < _DEALER_STANDS:
        hand.dealer.append(hand.deal())
    mine, theirs = hand_value(hand.player), hand_value(hand.dealer)
    is_won = theirs > _BEST or mine > theirs
    result = "win" if is_won else "draw" if mine == theirs else "loss"
    info = {
        "result": result,
        "player": _format_cards(hand.player),
        "player_value": mine,
        "dealer": _format_cards(hand.dealer),
        "dealer_value": theirs,
    }
    return Step(reward={"win": 1.0, "draw": 0.0, "loss": -1.0}[result], terminated=True, info=info)


def hand_value(cards: Sequence[str]) -> int:
    """The value of a hand, with as many aces of 11 as it can bear."""
    total = sum(1 if card == "A" else 10 if card in "JQK" else int(card) for card in cards)
    return total + 10 if "A" in cards and total + 10 <= _BEST else total


def _describe_hand(hand: Hand) -> str:
    mine = f"Your hand: {_format_cards(hand.player)} = {hand_value(hand.player)}"
    return f"{mine}\nDealer shows: {hand.dealer[0]}\n{_PROMPT}"


def _format_cards(cards: Sequence[str]) -> str:
    return f"[{', '.join(cards)}]"
