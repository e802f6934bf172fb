"""The logprobs of token sequences under several checkpoints, by transformers; runs in .venv-vllm.

JSON on stdin, {"folders": {"new": FOLDER}, "sequences": [[ids]]}, and on stdout, {"new": [[logprobs]]}. The first token
of a sequence has none: 0.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any


def main() -> None:
    given = json.load(sys.stdin)
    json.dump({label: logprobs(folder, given["sequences"]) for label, folder in given["folders"].items()}, sys.stdout)


def logprobs(folder: str, sequences: list[list[int]]) -> list[list[float]]:
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rows = []
    with torch.no_grad():
        for ids in sequences:
            tokens = torch.tensor([ids])
            of_all = torch.log_softmax(model(tokens).logits[0, :-1].double(), dim=-1)
            rows.append([0.0, *of_all.gather(1, tokens[0, 1:, None])[:, 0].tolist()])
    return rows


if __name__ == "__main__":
    main()
