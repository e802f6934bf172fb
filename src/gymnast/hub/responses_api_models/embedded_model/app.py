"""A policy inside this process: a small transformer in numpy, asked like any other model server.

Prompts are token ids from the first to the last turn, so that in training mode every rollout has an exact ledger.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, NonNegativeFloat, PositiveInt

from gymnast.errors import UserError
from gymnast.hub.responses_api_models.embedded_model.engine import EmbeddedEngine, objection
from gymnast.hub.responses_api_models.embedded_model.policy import Policy, read_policy
from gymnast.hub.responses_api_models.embedded_model.smollm2 import load_smollm2
from gymnast.kit import Model, ModelCall, ModelSettings
from gymnast.kit.token_path import TokenOptions, TokenPath, refusal
from gymnast.tokens.chat_template import ChatTemplate
from gymnast.tokens.engine import BadGeneration
from gymnast.tokens.families.registry import family_named
from gymnast.tokens.probing import probe
from gymnast.tokens.template import TemplateRenderer
from gymnast.wire.server import HttpError
from gymnast.wire.validate import require_field, require_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.tokens.engine import Asker, Generated, Sampling
    from gymnast.types.items import CreateParams, Response
    from gymnast.types.json import JsonObject
    from gymnast.wire.message import Request
    from gymnast.wire.server import Surroundings


class EmbeddedModelSettings(ModelSettings):
    weights: str = "shipped"
    """`shipped`, `smollm2`, or a folder that training/embedded/train.py wrote."""
    max_batch: PositiveInt = 32
    """Sequences computed together."""
    max_context: PositiveInt | None = None
    """Tokens of prompt and answer together; null takes what the model was trained for."""
    threads: PositiveInt = 1
    """Of matrix products. More than one pays for large weights on idle cores only."""
    seed: int | None = None
    """Makes sampling repeatable for the same rollouts. Null: every run differs, unless requests bring seeds."""
    temperature: NonNegativeFloat = 1.0
    """This and the next four hold where a request says nothing."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: PositiveInt | None = None
    min_p: float | None = Field(default=None, ge=0, le=1)
    max_output_tokens: PositiveInt | None = None
    return_token_id_information: bool = False
    """Training mode: every rollout has the ledger of its tokens."""


class EmbeddedModel(Model):
    """Samples from weights that this process holds."""

    settings: EmbeddedModelSettings

    def __init__(self, name: str, settings: EmbeddedModelSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        policy = load_policy(settings.weights)
        self._policy_name = policy.name
        self.engine = EmbeddedEngine(
            policy.transformer,
            max_batch=settings.max_batch,
            max_context=settings.max_context,
            seed=settings.seed,
            version=policy.version,
            threads=settings.threads,
        )
        limits = {"top_k": settings.top_k, "min_p": settings.min_p}
        options = TokenOptions(
            return_ids=settings.return_token_id_information,
            extra={name: value for name, value in limits.items() if value is not None},
        )
        self._tokens = TokenPath(self, renderer_of(policy), _Asked(name, self.engine), options)
        self.route("POST", "/load_weights", self._load_weights)

    @property
    def model_name(self) -> str:
        return self._policy_name

    async def stop(self) -> None:
        await self.engine.stop()

    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        settings = self.settings
        asked: Any = dict(params)
        for name in ("temperature", "top_p", "max_output_tokens"):
            if asked.get(name) is None:
                asked[name] = getattr(settings, name)
        return await self._tokens.respond(asked, call)

    async def _load_weights(self, request: Request) -> JsonObject:
        """`{"path": folder}`: sample with the weights of that folder from the next token on."""
        folder = require_field(require_object(request.body), "path")
        try:
            policy = await asyncio.to_thread(load_policy, str(folder))
            await self.engine.change_weights(policy.transformer, policy.version)
        except (UserError, BadGeneration) as error:
            raise HttpError(400, str(error)) from error
        return {"version": policy.version}


def load_policy(weights: str) -> Policy:
    """`shipped`, `smollm2`, or a folder with the files that the training script writes."""
    if weights == "smollm2":
        return load_smollm2()
    return read_policy() if weights == "shipped" else read_policy(Path(weights).expanduser())


class _Asked:
    """The engine, where requests for what it cannot do are the client's mistakes."""

    def __init__(self, name: str, engine: EmbeddedEngine) -> None:
        self._name = name
        self._engine = engine

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, who: Asker) -> Generated:
        if reason := objection(sampling):
            raise refusal(self._name, reason)
        return await self._engine.generate(prompt_ids, sampling, who)


def renderer_of(policy: Policy) -> TemplateRenderer:
    """How the policy's conversations are written; a template without a place for tools gets the family's that has."""
    family = family_named(policy.family)
    template = policy.chat_template
    if family.tool_template and not probe(ChatTemplate(template), family).tools:
        template = family.tool_template
    return TemplateRenderer(policy.tokenizer, template, family)
