"""Which of the indexed rollouts are exported, in which pairs, and in which split. Pure and deterministic."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Final, Literal

from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gymnast.train.dataset.index import Index

Ties = Literal["first", "shortest", "longest"]
Pairs = Literal["one", "all"]
TIES: Final = ("first", "shortest", "longest")
PAIRS: Final = ("one", "all")
_SHARE_DIGITS: Final = 1 << 53
_EXAMPLE: Final = "example: --splits train=0.9,test=0.1"


@dataclass(frozen=True, slots=True)
class PairRules:
    """How rollouts of a task become pairs."""

    margin: float = 0.0
    """The least difference between the rewards of a pair; equal rewards never make one."""
    ties: Ties = "first"
    """Which of several rollouts with the same reward comes first."""
    pairs: Pairs = "one"
    """The best with the worst, or every pair with the margin."""


@dataclass(slots=True)
class Selection:
    """The outcome: rollouts or pairs, by position in the index."""

    rollouts: list[int] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)


def select_best(index: Index, count: int, ties: Ties) -> list[int]:
    """The `count` best rollouts of each task, in the order of the index."""
    chosen: list[int] = []
    for members in index.tasks().values():
        best = sorted(members, key=lambda position: (-index.reward[position], *_tie_key(index, position, ties)))
        chosen += best[:count]
    index.left_out["not_best"] += len(index) - len(chosen)
    return sorted(chosen)


def select_pairs(index: Index, rules: PairRules) -> list[tuple[int, int]]:
    """Chosen and rejected rollouts of each task, best first. Counts the tasks and pairs that are left out.

    Their completions are not compared: they may be the same.
    """
    pairs: list[tuple[int, int]] = []
    for members in index.tasks().values():
        if len(members) < 2:
            index.left_out["task_with_one_rollout"] += 1
            continue
        own = _pairs_of(index, members, rules)
        usable = [pair for pair in own if _same_prompt(index, *pair)]
        index.left_out["pair_with_different_prompts"] += len(own) - len(usable)
        if not own:
            index.left_out["task_without_margin"] += 1
        pairs += usable
    return pairs


def _pairs_of(index: Index, members: Sequence[int], rules: PairRules) -> list[tuple[int, int]]:
    reward = index.reward

    def differs(chosen: int, rejected: int) -> bool:
        difference = reward[chosen] - reward[rejected]
        return difference > 0 and difference >= rules.margin

    best = sorted(members, key=lambda position: (-reward[position], *_tie_key(index, position, rules.ties)))
    worst = sorted(members, key=lambda position: (reward[position], *_tie_key(index, position, rules.ties)))
    if rules.pairs == "one":
        return [(best[0], worst[0])] if differs(best[0], worst[0]) else []
    return [pair for pair in product(best, worst) if differs(*pair)]


def _tie_key(index: Index, position: int, ties: Ties) -> tuple[int, int]:
    size = {"first": 0, "shortest": index.length[position], "longest": -index.length[position]}[ties]
    return size, index.rollout[position]


def _same_prompt(index: Index, chosen: int, rejected: int) -> bool:
    return not index.prompts or index.prompts[chosen] == index.prompts[rejected]


# --- splits ----------------------------------------------------------------------------------------------------------


def parse_splits(text: str) -> dict[str, float]:
    """`train=0.9,test=0.1`: shares of the tasks, which add up to 1."""
    splits: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = (piece.strip() for piece in part.partition("="))
        try:
            value = float(share)
        except ValueError:
            value = -1.0
        if name in splits:
            raise UserError(f"--splits: '{name}' is named twice", next=_EXAMPLE)
        if not name.isidentifier() or not 0 < value <= 1:
            expected = "expected a name and a share between 0 and 1"
            raise UserError(f"--splits: {expected}, got '{part.strip()}'", next=_EXAMPLE)
        splits[name] = value
    if abs(sum(splits.values()) - 1) > 1e-6:
        total = sum(splits.values())
        raise UserError(f"--splits: the shares add up to {total:g}, not 1", next=_EXAMPLE)
    return splits


def assign_splits(index: Index, splits: Mapping[str, float], seed: int) -> dict[tuple[int, int], str]:
    """The split of each task.

    Tasks with the same prompt, in any run, get the same split, which depends only on the prompt and the seed: more
    runs or other filters never move a task to another split.
    """
    groups = _Groups()
    for position, prompt in enumerate(index.prompts):
        groups.join((index.run[position], index.task[position]), prompt)
    return {task: _split_of(groups.smallest(task), splits, seed) for task in groups.tasks()}


def _split_of(prompt: bytes, splits: Mapping[str, float], seed: int) -> str:
    digest = hashlib.blake2b(prompt, digest_size=8, key=str(seed).encode()).digest()
    share = (int.from_bytes(digest, "big") >> 11) / _SHARE_DIGITS
    last = ""
    for name, part in splits.items():
        last = name
        share -= part
        if share < 0:
            break
    return last


class _Groups:
    """Tasks connected by equal prompts (union-find over prompts)."""

    def __init__(self) -> None:
        self._parent: dict[bytes, bytes] = {}
        self._prompt: dict[tuple[int, int], bytes] = {}

    def join(self, task: tuple[int, int], prompt: bytes) -> None:
        self._parent.setdefault(prompt, prompt)
        known = self._prompt.setdefault(task, prompt)
        if known is not prompt and known != prompt:
            first, second = sorted((self._root(known), self._root(prompt)))
            self._parent[second] = first

    def smallest(self, task: tuple[int, int]) -> bytes:
        """The prompt that stands for all those connected with this task's."""
        return self._root(self._prompt[task])

    def tasks(self) -> Iterable[tuple[int, int]]:
        return self._prompt

    def _root(self, prompt: bytes) -> bytes:
        while (parent := self._parent[prompt]) != prompt:
            self._parent[prompt] = self._parent[parent]
            prompt = parent
        return prompt
