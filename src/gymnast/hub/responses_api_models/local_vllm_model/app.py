"""vLLM started here: `vllm serve` (or any command that speaks the same API) as supervised children, no Ray.

The engines live as long as this server; whatever happens to it, they end with it. In front of them stands a vllm_model,
with the same settings. With `base_url` set nothing is started and it is just that.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from gymnast.errors import StartError
from gymnast.hub.responses_api_models.local_vllm_model.delegate import Delegate
from gymnast.hub.responses_api_models.local_vllm_model.fleet import Fleet
from gymnast.hub.responses_api_models.local_vllm_model.serve_command import (
    NOT_NEEDED,
    OURS,
    environment,
    given_command,
    served_name,
    vllm_command,
)
from gymnast.hub.responses_api_models.vllm_model.app import VLLMModel, VLLMModelSettings
from gymnast.runtime.engines import EngineOrder
from gymnast.types.json import JsonObject
from gymnast.wire.message import Reply, Request
from gymnast.wire.server import HttpError, Surroundings

Variables = dict[str, str | int | float | bool]


class LocalVLLMModelSettings(VLLMModelSettings):
    base_url: str | list[str] = ""
    """Set, nothing is started: the server is a vllm_model."""
    api_key: str = ""
    """What clients of the engine must send; empty, it asks for none."""
    vllm_serve_kwargs: JsonObject = {}
    """Options of `vllm serve`, e.g. {max_model_len: 8192, tensor_parallel_size: 2, enable_scale_out: true}."""
    vllm_serve_env_vars: Variables = {}
    vllm_executable: str = "vllm"
    """A path, or a name looked for beside our own Python and on PATH."""
    command: list[str] | None = Field(default=None, min_length=1)
    """Run this instead; {host}, {port} and {model} are filled in."""
    replicas: PositiveInt = 1
    replica_env: list[Variables] = []
    """Environment of each replica, e.g. [{CUDA_VISIBLE_DEVICES: "0"}, {CUDA_VISIBLE_DEVICES: "1"}]."""
    engine_host: str = "127.0.0.1"
    ready_path: str | None = None
    """Answers with a good status when the engine is ready; /health, or where there is none /v1/models, unless given."""
    ready_timeout_s: PositiveFloat = 1800.0
    max_restarts: NonNegativeInt = 3
    """Restarts of one replica; half an hour without a death and it has all of them again."""
    log_dir: str | None = None
    """Where the engines' logs go; with the logs of the run unless given."""
    hf_home: str | None = None
    show_vllm_engine_stats: bool = False
    """Engine statistics in the engine's log every ten seconds."""
    debug: bool = False
    ray_worker_py_executable: str | None = None
    """Accepted and not needed."""

    @field_validator("base_url", mode="before")
    @classmethod
    def _none_is_unset(cls, value: Any) -> Any:
        return "" if value is None else value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if taken := sorted(OURS & self.vllm_serve_kwargs.keys()):
            raise ValueError(f"vllm_serve_kwargs may not set {', '.join(taken)}: this server does")
        if self.replica_env and len(self.replica_env) != self.replicas:
            raise ValueError(f"replica_env has {len(self.replica_env)} entries for {self.replicas} replicas")
        if self.command is not None and not any("{port}" in word for word in self.command):
            raise ValueError("command has no {port}: where would the engine listen?")
        return self


class LocalVLLMModel(Delegate):
    """Owns engines and the model server in front of them."""

    settings: LocalVLLMModelSettings

    def __init__(self, name: str, settings: LocalVLLMModelSettings, surroundings: Surroundings) -> None:
        super().__init__(name, surroundings)
        self.settings = settings
        self.fleet: Fleet | None = None
        self._inner: VLLMModel | None = None
        self.route("GET", "/get_inner_vllm_config", self._inner_config)

    async def start(self) -> None:
        settings = self.settings
        urls = [settings.base_url] if isinstance(settings.base_url, str) else settings.base_url
        model = settings.model
        if not settings.base_url:
            self._say_what_is_not_needed()
            self.fleet = Fleet(self.name, self._orders(), self._log_dir(), self.surroundings.http, self.log.warning)
            await self.fleet.start()
            urls = self.fleet.base_urls
            model = served_name(model, settings.vllm_serve_kwargs) if settings.command is None else model
        try:
            self._inner = self.make_inner(_with_own_tokenizer(settings), urls, settings.api_key, model)
            await self._inner.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        if self._inner is not None:
            await self._inner.stop()
        if self.fleet is not None:
            await self.fleet.stop()

    async def inner(self) -> VLLMModel:
        if self._inner is None:
            raise HttpError(503, f"{self.name} has not been started")
        if self.fleet is not None:
            await self.fleet.until_one_is_up()
        return self._inner

    async def handle(self, request: Request) -> Reply:
        reply = await super().handle(request)
        if reply.failure is None or self.fleet is None:
            return reply
        return replace(reply, failure=self.fleet.explain(reply.failure))

    async def _inner_config(self, _: Request) -> JsonObject:
        if self._inner is None:
            raise HttpError(503, f"{self.name} has not been started")
        inner = self._inner.settings
        return {"base_url": inner.base_url, "api_key": inner.api_key, "model": inner.model}

    def _orders(self) -> list[EngineOrder]:
        settings = self.settings
        variables = {**self._variables(), **settings.vllm_serve_env_vars}
        order = EngineOrder(
            self._command(),
            host=settings.engine_host,
            api_key=settings.api_key,
            ready_timeout_s=settings.ready_timeout_s,
            max_restarts=settings.max_restarts,
        )
        if settings.ready_path is not None:
            order = replace(order, ready_paths=(settings.ready_path,))
        own = settings.replica_env or [{}] * settings.replicas
        return [replace(order, env=environment(variables, replica)) for replica in own]

    def _command(self) -> Any:
        settings = self.settings
        if settings.command is not None:
            return partial(given_command, settings.command, settings.model, settings.engine_host)
        executable, kwargs = self._executable(), settings.vllm_serve_kwargs
        return lambda port: vllm_command(executable, settings.model, settings.engine_host, port, kwargs)

    def _variables(self) -> JsonObject:
        settings = self.settings
        if settings.command is not None:
            return {"HF_HOME": settings.hf_home} if settings.hf_home else {}
        found: JsonObject = {"VLLM_NO_USAGE_STATS": "1"}
        if settings.api_key:
            found["VLLM_API_KEY"] = settings.api_key  # not as an option: those can be read by everybody on the host
        if settings.hf_home:
            found["HF_HOME"] = settings.hf_home
        if settings.debug:
            found["VLLM_LOGGING_LEVEL"] = "DEBUG"
        if not settings.show_vllm_engine_stats:
            found["VLLM_LOG_STATS_INTERVAL"] = "3600"  # off altogether, /metrics would be empty as well
        return found

    def _executable(self) -> str:
        asked = self.settings.vllm_executable
        beside = Path(sys.executable).parent / asked
        found = str(beside) if "/" not in asked and beside.exists() else shutil.which(asked)
        if found is None:
            raise StartError(
                f"there is no program '{asked}' to start vLLM with",
                where=self.name,
                next="install vllm (an environment of its own is best) and set `vllm_executable: /path/to/bin/vllm`",
            )
        return found

    def _log_dir(self) -> Path:
        given = self.settings.log_dir or self.surroundings.log_dir
        return Path(given) if given is not None else Path(tempfile.mkdtemp(prefix="gymnast-engines-"))

    def _say_what_is_not_needed(self) -> None:
        if self.settings.ray_worker_py_executable is not None:
            self.log.warning("ray_worker_py_executable is not needed: engines are started without Ray")
        if NOT_NEEDED in self.settings.vllm_serve_env_vars:
            self.log.warning("%s is not needed: engines are started without Ray", NOT_NEEDED)


def _with_own_tokenizer(settings: LocalVLLMModelSettings) -> LocalVLLMModelSettings:
    """In training mode prompts are rendered with the tokenizer of the model's folder, unless another is named."""
    is_wanted = settings.return_token_id_information and settings.tokenizer is None
    if is_wanted and (Path(settings.model) / "tokenizer.json").is_file():
        return settings.model_copy(update={"tokenizer": settings.model})
    return settings
