"""A policy that answers at once: for every prompt it looks up ids and logprobs that the embedded model sampled before.

The prompts of all tasks differ, because each question starts with the number of its task; answers are looked up without
it. Every row has `VARIANTS` conversations, sampled at temperature 1, which the rollouts of a group use in turn. All
else is the shipped model server: rendering, parsing, the token ledger.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import gymnast
from gymnast.config import compose, read_environ
from gymnast.config.roots import BUILTIN

VARIANTS = 4
MODEL = '''
import json
from pathlib import Path

from gymnast.builtin.responses_api_models.embedded_model.app import EmbeddedModel, EmbeddedModelSettings
from gymnast.tokens.backend import GeneratedTokens

DIGITS = 6


class InstantModelSettings(EmbeddedModelSettings):
    answers: str
    variants: int


class Answers:
    """Answers from a table; with a backend, samples what the table does not have."""

    def __init__(self, path, variants, tokenizer, backend):
        self._path, self._variants, self._backend = path, variants, backend
        self._digits = {tokenizer.encode(str(digit))[0] for digit in range(10)}
        self._position = None
        self._table = {}
        for variant, ids, *generated in json.loads(path.read_text()) if path.exists() else ():
            self._table[variant, tuple(ids)] = GeneratedTokens(*generated)

    async def generate(self, prompt_ids, sampling, caller):
        if self._position is None:
            self._position = self._find_number(prompt_ids)
        position = self._position
        plain = prompt_ids[:position] + prompt_ids[position + DIGITS + 1 :]
        variant = int(caller.rollout_id.split("-")[1]) % self._variants
        known = self._table.get((variant, tuple(plain)))
        if known is None:
            known = self._table[variant, tuple(plain)] = await self._backend.generate(plain, sampling, caller)
        return known

    def _find_number(self, ids):
        runs = range(len(ids) - DIGITS)
        return next(start for start in runs if all(token in self._digits for token in ids[start : start + DIGITS]))

    def write(self):
        rows = [
            [variant, ids, list(known.token_ids), [float(value) for value in known.logprobs], known.finish]
            for (variant, ids), known in self._table.items()
        ]
        self._path.write_text(json.dumps(rows))


class InstantModel(EmbeddedModel):
    settings: InstantModelSettings

    def __init__(self, name, settings, context):
        super().__init__(name, settings, context)
        path = Path(settings.answers)
        self._records = not path.exists()
        backend = self._tokens._backend if self._records else None
        self._tokens._backend = self._answers = Answers(
            path, settings.variants, self._tokens._renderer.tokenizer, backend
        )

    async def stop(self):
        await super().stop()
        if self._records:
            self._answers.write()
'''


def read_rows(environment: str) -> list[dict[str, Any]]:
    """The example rows of an environment."""
    with (BUILTIN / f"resources_servers/{environment}/data/example.jsonl").open() as lines:
        return [json.loads(line) for line in lines]


def make_task(rows: list[dict[str, Any]], number: int) -> dict[str, Any]:
    """A task with this number. Its question is that of an example, after the number."""
    row = rows[number % len(rows)]
    params = row["responses_create_params"]
    first, *rest = params["input"]
    question = {**first, "content": f"{number:06d}\n{first['content']}"}
    return {**row, "responses_create_params": {**params, "input": [question, *rest]}, "_ng_task_index": number}


def prepare(environment: str, folder: Path) -> None:
    """Write the policy into the folder, with the answers that the embedded model gives now."""
    home = folder / "responses_api_models" / "instant_model"
    home.mkdir(parents=True)
    (home / "app.py").write_text(MODEL)
    settings = {"entrypoint": "app.py", "return_token_id_information": True, "seed": 0, "variants": VARIANTS}
    settings["answers"] = str(folder / "answers.json")
    config = {"policy_model": {"responses_api_models": {"instant_model": settings}}}
    (folder / "policy.yaml").write_text(json.dumps(config))
    asyncio.run(_record(environment, config_in(environment, folder)))


def config_in(environment: str, folder: Path) -> Any:
    """The configuration of the environment with the policy of this folder."""
    return compose(
        read_environ(), environments=[environment], config_paths=[str(folder / "policy.yaml")], search_dirs=[folder]
    )


async def _record(environment: str, config: Any) -> None:
    rows = read_rows(environment)
    async with gymnast.Collector(config=config) as collector:
        tasks = [
            {**make_task(rows, number), "_ng_rollout_index": variant}
            for number in range(len(rows))
            for variant in range(VARIANTS)
        ]
        async for _ in collector.run(tasks):
            pass
