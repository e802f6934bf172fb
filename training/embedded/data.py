"""Training transcripts as arrays: solved tasks of all environments and levels, rendered, sorted into buckets of length.

Each token is 16 bits: its id, and the highest bit set where the assistant wrote it (only those are learnt).
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from solutions import TEACHERS
from transcript import write

from gymnast.builtin.responses_api_models.embedded_model.tokenizer import ByteLevelTokenizer

MIX = {"arithmetic": 0.34, "word_tasks": 0.34, "shop_lookup": 0.18, "number_hunt": 0.14}
LENGTHS = (40, 48, 56, 64, 80, 96, 128, 192, 256, 320, 448, 640)
SAMPLED = 0x8000
_CHUNK = 4000
Tokens = NDArray[np.uint16]


def transcripts(tokenizer: ByteLevelTokenizer, seed: str, count: int) -> Iterator[Tokens]:
    """Solved tasks; harder levels a little more often than easy ones."""
    rng = random.Random(seed)
    names, weights = list(MIX), list(MIX.values())
    for name in rng.choices(names, weights, k=count):
        solve, generator = TEACHERS[name]
        level = max(rng.randint(1, generator.levels), rng.randint(1, generator.levels))
        talk = solve(rng, level)
        writing = write(tokenizer, talk.messages, talk.tools)
        yield np.array(writing.ids, np.uint16) | (np.array(writing.sampled, np.uint16) * SAMPLED)


def bucketed(job: tuple[Path, str]) -> dict[int, Tokens]:
    """A chunk of transcripts as one padded array for each length."""
    path, seed = job
    rows: dict[int, list[Tokens]] = {}
    for ids in transcripts(ByteLevelTokenizer.read(path), seed, _CHUNK):
        length = next((length for length in LENGTHS if len(ids) <= length), None)
        if length is not None:
            rows.setdefault(length, []).append(np.pad(ids, (0, length - len(ids))))
    return {length: np.stack(found) for length, found in rows.items()}


def generate(tokenizer: Path, *, seed: int, examples: int, seconds: float, workers: int) -> dict[int, Tokens]:
    """Transcripts until there are enough of them, or the time is up."""
    started = time.monotonic()
    chunks: dict[int, list[Tokens]] = {length: [] for length in LENGTHS}
    made = 0
    jobs = ((tokenizer, f"{seed}/{index}") for index in count())
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        pending = [pool.apply_async(bucketed, (next(jobs),)) for _ in range(2 * workers)]
        while made < examples and time.monotonic() - started < seconds:
            done = pending.pop(0).get()
            pending.append(pool.apply_async(bucketed, (next(jobs),)))
            made += _CHUNK
            for length, rows in done.items():
                chunks[length].append(rows)
        pool.terminate()
    return {length: np.concatenate(found) for length, found in chunks.items() if found}
