"""Runs by seed: which seeds are meant, where each one's rollouts go, and which are done. Pure but for looking."""

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


def seeds_meant(
    num_random_seeds: int | None = None, starting_seed: int = 0, random_seeds: str | Iterable[int] | None = None
) -> list[Seed]:
    """The seeds; `[None]` for one run without any. `random_seeds` is `0,2,5`, `0..3` or a list, and then decides."""
    if random_seeds is not None:
        found = _listed(random_seeds) if isinstance(random_seeds, str) else list(random_seeds)
        if num_random_seeds is not None and num_random_seeds != len(found):
            raise UserError(
                f"{num_random_seeds} seeds were asked for and {len(found)} are listed",
                next="give num_random_seeds or random_seeds, not both",
            )
        return list(dict.fromkeys(found))
    if num_random_seeds is None:
        return [None]
    if num_random_seeds < 1 or starting_seed < 0:
        raise UserError(f"{num_random_seeds} seeds from {starting_seed} on are none")
    return list(range(starting_seed, starting_seed + num_random_seeds))


def seed_output(folder: Path, seed: Seed) -> Path:
    """The rollouts of one seed."""
    return folder / ("rollouts.jsonl" if seed is None else f"rollouts-rs{seed}.jsonl")


def seeds_there(folder: Path) -> dict[Seed, Path]:
    """The seeds that have begun in a folder, in their order."""
    found = [(match, path) for path in folder.glob("rollouts*.jsonl") if (match := _OUTPUT.fullmatch(path.name))]
    seeds = {int(match[1]) if match[1] else None: path for match, path in found}
    return dict(sorted(seeds.items(), key=lambda item: -1 if item[0] is None else item[0]))


def done_seeds(folder: Path, seeds: Sequence[Seed]) -> list[Seed]:
    """Those of the seeds whose run is finished."""
    return [seed for seed in seeds if RunPaths(seed_output(folder, seed)).done.exists()]


def _listed(text: str) -> list[int]:
    found: list[int] = []
    for part in (part.strip() for part in text.split(",")):
        match = _RANGE.fullmatch(part)
        if match:
            found += range(int(match[1]), int(match[2]) + 1)
        elif part.isdecimal():
            found.append(int(part))
        else:
            raise UserError(f"'{part}' is no seed", where=f"random_seeds={text}", next="write 0,1,2 or 0..3")
    return found
