"""A policy inside this process: a small transformer in numpy behind the usual model server.

Prompts are token ids from the first to the last turn, so that in training mode every rollout has an exact ledger.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, NonNegativeFloat, PositiveInt

from gymnast.kit import (
    BadGeneration,
    Caller,
    ChatTemplate,
    CreateParams,
    GeneratedTokens,
    HttpError,
    JsonObject,
    Model,
    ModelCall,
    ModelSettings,
    Request,
    Response,
    Sampling,
    ServerContext,
    TemplateRenderer,
    TokenOptions,
    TokenPath,
    UserError,
    get_family,
    make_rejection,
    probe_template,
    require_field,
    require_object,
)

from .backend import EmbeddedBackend, objection
from .policy import Policy, read_policy
from .smollm2 import load_smollm2

if TYPE_CHECKING:
    from collections.abc import Sequence


class EmbeddedModelSettings(ModelSettings):
    weights: str = "shipped"
    """`shipped`, `smollm2`, or a folder that training/embedded/train.py wrote."""
    max_batch: PositiveInt = 32
    """Sequences computed together."""
    max_context: PositiveInt | None = None
    """Tokens of prompt and response together; null uses the context of the model."""
    threads: PositiveInt = 1
    """Threads of matrix products. More than one helps only with large weights on idle cores."""
    seed: int | None = None
    """Makes sampling reproducible for the same rollouts. With null every run differs, unless requests have seeds."""
    temperature: NonNegativeFloat = 1.0
    """This and the next four are defaults for requests without a value."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: PositiveInt | None = None
    min_p: float | None = Field(default=None, ge=0, le=1)
    max_output_tokens: PositiveInt | None = None
    return_token_id_information: bool = False
    """Training mode: every rollout has a token ledger."""


class EmbeddedModel(Model):
    """Samples from weights in this process."""

    settings: EmbeddedModelSettings

    def __init__(self, name: str, settings: EmbeddedModelSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        policy = load_policy(settings.weights)
        self._policy_name = policy.name
        self.backend = EmbeddedBackend(
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
        self._tokens = TokenPath(self, make_renderer(policy), _CheckedBackend(name, self.backend), options)
        self.route("POST", "/load_weights", self._load_weights)

    @property
    def model_name(self) -> str:
        return self._policy_name

    async def stop(self) -> None:
        await self.backend.stop()

    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        settings = self.settings
        request: Any = dict(params)
        for name in ("temperature", "top_p", "max_output_tokens"):
            if request.get(name) is None:
                request[name] = getattr(settings, name)
        return await self._tokens.respond(request, call)

    async def _load_weights(self, request: Request) -> JsonObject:
        """`{"path": folder}`: sample with the weights of that folder from the next token on."""
        folder = require_field(require_object(request.body), "path")
        try:
            policy = await asyncio.to_thread(load_policy, str(folder))
            await self.backend.change_weights(policy.transformer, policy.version)
        except (UserError, BadGeneration) as error:
            raise HttpError(400, str(error)) from error
        return {"version": policy.version}


def load_policy(weights: str) -> Policy:
    """`shipped`, `smollm2`, or a folder with the files that the training script writes."""
    if weights == "smollm2":
        return load_smollm2()
    return read_policy() if weights == "shipped" else read_policy(Path(weights).expanduser())


class _CheckedBackend:
    """The backend, with unsupported requests rejected as client errors."""

    def __init__(self, name: str, backend: EmbeddedBackend) -> None:
        self._name = name
        self._backend = backend

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, caller: Caller) -> GeneratedTokens:
        if reason := objection(sampling):
            raise make_rejection(self._name, reason)
        return await self._backend.generate(prompt_ids, sampling, caller)


def make_renderer(policy: Policy) -> TemplateRenderer:
    """The renderer of the policy; a template without tools is replaced by the family's template with tools."""
    family = get_family(policy.family)
    template = policy.chat_template
    if family.tool_template and not probe_template(ChatTemplate(template), family).tools:
        template = family.tool_template
    return TemplateRenderer(policy.tokenizer, template, family)
