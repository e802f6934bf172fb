"""Trains the byte-level BPE vocabulary on sample transcripts and writes `tokenizer.json` and `tokenizer_config.json`.

    PYTHONPATH=src python training/embedded/vocabulary.py --out WEIGHTS

where WEIGHTS is the folder of that name in src/gymnast/builtin/responses_api_models/embedded_model.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from solutions import TEACHERS
from transcript import declared

from gymnast.builtin.responses_api_models.embedded_model.tokenizer import PATTERN, byte_characters

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
SIZE = 768
Pair = tuple[str, str]


def texts(count: int, seed: int) -> Iterator[str]:
    """The words of sample transcripts, without control tokens."""
    rng = random.Random(seed)
    for _ in range(count):
        solve, generator = TEACHERS[rng.choice(list(TEACHERS))]
        talk = solve(rng, rng.randint(1, generator.levels))
        yield "system\nTools:\n" + "\n".join(declared(tool) for tool in talk.tools)
        for message in talk.messages:
            yield f"{message['role']}\n{message.get('content') or ''}\n"
            for call in message.get("tool_calls", ()):
                yield f'{{"name": "{call["function"]["name"]}", "arguments": {call["function"]["arguments"]}}}'


def learn_merges(pieces: Counter[str], count: int) -> list[Pair]:
    """The most frequent neighbours, again and again; ties go to the first in the alphabet."""
    characters = byte_characters()
    words = [([characters[byte] for byte in piece.encode()], times) for piece, times in pieces.items()]
    merges: list[Pair] = []
    while len(merges) < count:
        pairs: Counter[Pair] = Counter()
        for parts, times in words:
            for pair in pairwise(parts):
                pairs[pair] += times
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        for parts, _ in words:
            join(parts, best)
    return merges


def join(parts: list[str], pair: Pair) -> None:
    for position in range(len(parts) - 1):
        if position + 1 < len(parts) and (parts[position], parts[position + 1]) == pair:
            parts[position : position + 2] = ["".join(pair)]


def tokenizer_json(merges: list[Pair]) -> dict[str, Any]:
    tokens = [*CONTROL, *byte_characters(), *("".join(pair) for pair in merges)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(token, vocabulary[token]) for token in CONTROL],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [" ".join(pair) for pair in merges],
        },
    }


def added_token(text: str, index: int) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": index, "content": text, **flags, "special": text.startswith("<|")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=20_000)
    options = parser.parse_args()
    pieces = Counter(piece for text in texts(options.samples, 0) for piece in re.findall(PATTERN, text))
    merges = learn_merges(pieces, SIZE - len(CONTROL) - 256)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "tokenizer.json").write_text(json.dumps(tokenizer_json(merges), ensure_ascii=False, indent=0) + "\n")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 1024,
        "clean_up_tokenization_spaces": False,
        "chat_template": Path(__file__).with_name("chat_template.jinja").read_text().rstrip("\n"),
    }
    (options.out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"{len(pieces)} distinct pieces, {len(merges)} merges")


if __name__ == "__main__":
    main()
