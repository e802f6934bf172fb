"""Gymnasium environments as conversations: words for actions and observations, seeds by row, rewards over turns."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import gymnast
from gymnast.builtin.resources_servers.gymnasium.actions import NoAction, choose, extract_action
from gymnast.builtin.resources_servers.gymnasium.app import GymnasiumEnvironment, GymnasiumSettings
from gymnast.builtin.resources_servers.gymnasium.games import GameText, game_text_for, observation_text, parse_action
from gymnast.builtin.resources_servers.gymnasium.word_game import Game, marks
from gymnast.config.roots import BUILTIN
from gymnast.errors import UserError
from gymnast.wire.calls import Scope
from tests.helpers.environments import host_environment, response, said
from tests.helpers.jsonl import read_jsonl, write_jsonl

DATA = BUILTIN / "resources_servers" / "gymnasium" / "data"
SCRIPTED = "policy_model.responses_api_models.scripted_model"


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Action: hit", "hit"),
        ("I would hit.\nAction: **Stick**.", "Stick"),
        ("Action: hit\nNo.\nAction: stick", "stick"),
        ("Action: hit\n<action> stick </action>", "stick"),
        (r"So \boxed{hit}", "hit"),
        ("Let me think.\nhit", "hit"),
        ("", None),
        ("\n \n", None),
        ("Action: ", None),
        ("Action: hit" + "x" * 1_000_000, "x" * 20_000),
        ("\x1f", None),  # a blank that is none of the usual ones
        ("Action: \u2003hit\x1f", "hit"),
    ],
)
def test_where_the_action_stands(text: str, action: str | None) -> None:
    assert extract_action(text) == action


@given(st.text())
def test_any_text_has_an_action_or_none(text: str) -> None:
    found = extract_action(text)
    assert found is None or found.strip()


@pytest.mark.parametrize(("said_of_it", "number"), [("hit", 1), ("STAND", 0), ("1", 1), ("draw", 1)])
def test_names_synonyms_and_numbers(said_of_it: str, number: int) -> None:
    words = game_text_for("Blackjack-v1")
    assert choose(said_of_it, words.actions, words.synonyms) == number


@pytest.mark.parametrize("said_of_it", ["2", "-1", "double", "hít", "٣"])
def test_what_is_not_an_action_is_reported(said_of_it: str) -> None:
    words = game_text_for("Blackjack-v1")
    with pytest.raises(NoAction, match="stick, hit"):
        choose(said_of_it, words.actions, words.synonyms)


@pytest.mark.parametrize(
    ("space", "text", "action"),
    [
        (spaces.Discrete(3, start=5), "Action: 6", 6),
        (spaces.Box(-1, 1, (2,)), "Action: [0.5, -1]", [0.5, -1.0]),
        (spaces.MultiBinary(3), "Action: [1, 0, 1]", [1, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), "Action: [1, 2]", [1, 2]),
        (spaces.Text(5), "Action: abc", "abc"),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]), "Action: [0, 1]", (0, 1)),
    ],
)
def test_actions_of_other_spaces(space: Any, text: str, action: Any) -> None:
    found = parse_action(GameText(), space, text)
    assert (found.tolist() if hasattr(found, "tolist") else found) == pytest.approx(action)


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (spaces.Box(-1, 1, (2,)), "Action: [0.5]"),
        (spaces.Box(-1, 1, (2,)), "Action: [0.5, 7]"),
        (spaces.Box(-1, 1, (2,)), "Action: left"),
        (spaces.Box(-1, 1, (2,)), 'Action: {"a": 1}'),
        (spaces.Text(5), "Action: abcdefgh"),
        (spaces.Discrete(3), ""),
    ],
)
def test_what_does_not_fit_a_space_is_refused(space: Any, text: str) -> None:
    with pytest.raises(NoAction):
        parse_action(GameText(), space, text)


@pytest.mark.parametrize(
    ("env_id", "shown"),
    [
        ("Blackjack-v1", "The dealer shows"),
        ("FrozenLake-v1", "PFFF\nFHFH\nFFFH\nHFFG"),
        ("CliffWalking-v1", "row 3, column 0"),
        ("Taxi-v4", "The taxi is in row"),
        ("CartPole-v1", "Observation: ["),
    ],
)
def test_observations_in_words(env_id: str, shown: str) -> None:
    env = gymnasium.make(env_id)
    observation, _ = env.reset(seed=1)
    assert shown in observation_text(game_text_for(env_id), env, observation)
    env.close()


def game(**settings: Any) -> Any:
    return host_environment(GymnasiumEnvironment, GymnasiumSettings(**settings))[1]


ROW: dict[str, Any] = {"responses_create_params": {"input": "Play."}}


async def first_hand(calls: Any, **fields: Any) -> str:
    return str((await calls.call("env", "/reset", {**ROW, **fields}, Scope())).body["observation"])


async def test_the_row_decides_where_an_episode_begins() -> None:
    calls = game(env_id="Blackjack-v1")
    assert await first_hand(calls, seed=3) == await first_hand(calls, seed=3)
    assert len({await first_hand(calls, seed=seed) for seed in range(20)}) > 5
    assert await first_hand(calls, _ng_task_index=1) == await first_hand(calls, _ng_task_index=1)
    assert len({await first_hand(calls, _ng_task_index=index) for index in range(20)}) > 5


async def test_turns_without_an_action_end_the_episode() -> None:
    calls, scope = game(env_id="Blackjack-v1", max_invalid_actions=2, invalid_action_reward=-0.5), Scope()
    await calls.call("env", "/reset", ROW, scope)
    first, second = [
        (await calls.call("env", "/step", {**ROW, "response": response(said(text))}, scope)).body
        for text in ("hm", "well")
    ]
    assert (first["reward"], first["truncated"], second["truncated"]) == (-0.5, False, True)
    assert "stick, hit" in first["observation"]


@pytest.mark.parametrize("fields", [{"env_id": "No-v1"}, {"env_kwargs": {"lives": 3}}, {"env_id": "os:Blackjack-v1"}])
async def test_a_row_that_does_not_fit_is_refused(fields: dict[str, Any]) -> None:
    reply = await game(env_id="Blackjack-v1").call("env", "/reset", {**ROW, **fields})
    assert reply.status == 422


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(UserError) as raised:
        game(env_id="Blackjack-v1")
    assert "gymnast[gymnasium]" in str(raised.value)


@pytest.mark.parametrize(
    ("guess", "told"),
    [
        ("plate", "p+ l+ a+ t~ e-"),
        ("query", "q- u- e- r- y-"),
        ("lllll", "l- l+ l- l- l-"),
        ("tappl", "t~ a~ p~ p- l~"),
    ],
)
def test_marks(guess: str, told: str) -> None:
    assert marks(guess, "plant") == told


@given(st.lists(st.text(alphabet="plantxyz", min_size=5, max_size=5), min_size=6, max_size=6))
def test_a_game_earns_at_most_one_and_ends(guesses: list[str]) -> None:
    played, total, over = Game("plant", 6), 0.0, False
    for guess in guesses:
        _, reward, over = played.guess(guess)
        total += reward
        if over:
            break
    assert over
    assert 0.0 <= total <= 1.0 + 1e-9


REHEARSALS: dict[str, tuple[list[Any], list[float]]] = {
    "blackjack": (["Action: stick"], [1.0, -1.0, 1.0, -1.0, 1.0]),
    "frozen_lake": (
        [f"Action: {move}" for move in ("down", "down", "right", "right", "down", "right")],
        [1.0, 0.0, 0.0, 0.0, 1.0],
    ),
    "word_game": (["Action: plate", "Action: river", "Action: stone"], [0.2, 0.875, 0.75, 0.1, 0.05]),
}


def test_blackjack_pays_as_gymnasium_does() -> None:
    env = gymnasium.make("Blackjack-v1")
    paid = []
    for row in read_jsonl(DATA / "blackjack_example.jsonl"):
        env.reset(seed=row["seed"])
        paid.append(env.step(0)[1])
    assert paid == REHEARSALS["blackjack"][1]


@pytest.mark.parametrize("flavor", REHEARSALS)
async def test_rollouts_of_the_example_rows(flavor: str, tmp_path: Path) -> None:
    replies, known = REHEARSALS[flavor]
    source = write_jsonl(tmp_path / "in.jsonl", read_jsonl(DATA / f"{flavor}_example.jsonl"))
    records = gymnast.collect(
        source,
        tmp_path / "out.jsonl",
        environments=[f"gymnasium/{flavor}"],
        model_type="scripted_model",
        overrides=[f"++{SCRIPTED}.replies={replies}"],
    )
    found = sorted([record async for record in records], key=lambda record: record.key)
    assert [record.reward for record in found] == pytest.approx(known)
