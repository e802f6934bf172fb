"""Runs by seed: which seeds to run, where the rollouts of each go, and which are done."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gymnast.errors import UserError
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

Seed = int | None
_RANGE: Final = re.compile(r"(\d+)(?:\.\.|-)(\d+)")
_OUTPUT: Final = re.compile(r"rollouts(?:-rs(\d+))?\.jsonl")


def resolve_seeds(
    num_random_seeds: int | None = None, starting_seed: int = 0, random_seeds: str | Iterable[int] | None = None
) -> list[Seed]:
    """The seeds to run; `[None]` for one run without a seed. `random_seeds` (`0,2,5`, `0..3` or a list) comes first."""
    if random_seeds is not None:
        seeds = _parse_seeds(random_seeds) if isinstance(random_seeds, str) else list(random_seeds)
        if num_random_seeds is not None and num_random_seeds != len(seeds):
            raise UserError(
                f"num_random_seeds is {num_random_seeds}, but random_seeds lists {len(seeds)}",
                next="give num_random_seeds or random_seeds, not both",
            )
        return list(dict.fromkeys(seeds))
    if num_random_seeds is None:
        return [None]
    if num_random_seeds < 1 or starting_seed < 0:
        raise UserError(f"expected at least one seed from 0 on, got {num_random_seeds} from {starting_seed} on")
    return list(range(starting_seed, starting_seed + num_random_seeds))


def seed_output(folder: Path, seed: Seed) -> Path:
    return folder / ("rollouts.jsonl" if seed is None else f"rollouts-rs{seed}.jsonl")


def find_seeds(folder: Path) -> dict[Seed, Path]:
    """The seeds with rollouts in a folder, in ascending order."""
    matches = [(match, path) for path in folder.glob("rollouts*.jsonl") if (match := _OUTPUT.fullmatch(path.name))]
    seeds = {int(match[1]) if match[1] else None: path for match, path in matches}
    return dict(sorted(seeds.items(), key=lambda item: -1 if item[0] is None else item[0]))


def done_seeds(folder: Path, seeds: Sequence[Seed]) -> list[Seed]:
    """Those of the seeds whose run is finished."""
    return [seed for seed in seeds if RunPaths(seed_output(folder, seed)).done.exists()]


def _parse_seeds(text: str) -> list[int]:
    seeds: list[int] = []
    for part in (part.strip() for part in text.split(",")):
        match = _RANGE.fullmatch(part)
        if match:
            seeds += range(int(match[1]), int(match[2]) + 1)
        elif part.isdecimal():
            seeds.append(int(part))
        else:
            raise UserError(f"expected a seed, got '{part}'", where=f"random_seeds={text}", next="write 0,1,2 or 0..3")
    return seeds
