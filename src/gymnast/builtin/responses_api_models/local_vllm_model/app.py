"""A vllm_model that starts its own inference servers: `vllm serve`, or any command with the same API, without Ray.

The inference servers are supervised children and always end with this server. With `base_url` set none is started, and
this is an ordinary vllm_model.
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

from gymnast.builtin.responses_api_models.vllm_model.app import VLLMModel, VLLMModelSettings
from gymnast.kit import HttpError, JsonObject, ManagedServerSpec, Reply, Request, ServerContext, StartError

from .delegate import Delegate
from .serve_command import RAY_VARIABLE, RESERVED, custom_command, environment, served_name, vllm_command
from .server_group import ServerGroup

Variables = dict[str, str | int | float | bool]


class LocalVLLMModelSettings(VLLMModelSettings):
    base_url: str | list[str] = ""
    """If set, nothing is started: the server is a vllm_model."""
    api_key: str = ""
    """The API key of the inference server; empty for none."""
    vllm_serve_kwargs: JsonObject = {}
    """Options of `vllm serve`, e.g. {max_model_len: 8192, tensor_parallel_size: 2, enable_scale_out: true}."""
    vllm_serve_env_vars: Variables = {}
    vllm_executable: str = "vllm"
    """A path, or a name searched next to our Python and on PATH."""
    command: list[str] | None = Field(default=None, min_length=1)
    """Run this instead, with {host}, {port} and {model} replaced."""
    replicas: PositiveInt = 1
    replica_env: list[Variables] = []
    """The environment of each replica, e.g. [{CUDA_VISIBLE_DEVICES: "0"}, {CUDA_VISIBLE_DEVICES: "1"}]."""
    engine_host: str = "127.0.0.1"
    ready_path: str | None = None
    """A path that returns success once the server is ready. By default /health, or /v1/models if there is none."""
    ready_timeout_s: PositiveFloat = 1800.0
    max_restarts: NonNegativeInt = 3
    """Restarts per replica; the count resets after half an hour without a crash."""
    log_dir: str | None = None
    """The folder of the inference servers' logs. By default with the logs of the run."""
    hf_home: str | None = None
    show_vllm_engine_stats: bool = False
    """Log vLLM's statistics every ten seconds."""
    debug: bool = False
    ray_worker_py_executable: str | None = None
    """Accepted but not used."""

    @field_validator("base_url", mode="before")
    @classmethod
    def _none_is_unset(cls, value: Any) -> Any:
        return "" if value is None else value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if reserved := sorted(RESERVED & self.vllm_serve_kwargs.keys()):
            raise ValueError(f"vllm_serve_kwargs must not set {', '.join(reserved)}: this server sets them")
        if self.replica_env and len(self.replica_env) != self.replicas:
            raise ValueError(f"replica_env has {len(self.replica_env)} entries for {self.replicas} replicas")
        if self.command is not None and not any("{port}" in word for word in self.command):
            raise ValueError("command must contain {port}, the port to listen on")
        return self


class LocalVLLMModel(Delegate):
    """Owns inference servers and the vllm_model in front of them."""

    settings: LocalVLLMModelSettings

    def __init__(self, name: str, settings: LocalVLLMModelSettings, context: ServerContext) -> None:
        super().__init__(name, context)
        self.settings = settings
        self.server_group: ServerGroup | None = None
        self._inner: VLLMModel | None = None
        self.route("GET", "/get_inner_vllm_config", self._inner_config)

    async def start(self) -> None:
        settings = self.settings
        urls = [settings.base_url] if isinstance(settings.base_url, str) else settings.base_url
        model = settings.model
        if not settings.base_url:
            self._warn_about_unneeded()
            self.server_group = ServerGroup(
                self.name, self._specs(), self._log_dir(), self.context.http, self.log.warning
            )
            await self.server_group.start()
            urls = self.server_group.base_urls
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
        if self.server_group is not None:
            await self.server_group.stop()

    async def inner(self) -> VLLMModel:
        if self._inner is None:
            raise HttpError(503, f"{self.name} is not started")
        if self.server_group is not None:
            await self.server_group.wait_until_any_is_up()
        return self._inner

    async def handle(self, request: Request) -> Reply:
        reply = await super().handle(request)
        if reply.failure is None or self.server_group is None:
            return reply
        reply.failure = self.server_group.explain(reply.failure)
        return reply

    async def _inner_config(self, _: Request) -> JsonObject:
        if self._inner is None:
            raise HttpError(503, f"{self.name} is not started")
        inner = self._inner.settings
        return {"base_url": inner.base_url, "api_key": inner.api_key, "model": inner.model}

    def _specs(self) -> list[ManagedServerSpec]:
        settings = self.settings
        variables = {**self._variables(), **settings.vllm_serve_env_vars}
        spec = ManagedServerSpec(
            self._command(),
            host=settings.engine_host,
            api_key=settings.api_key,
            ready_timeout_s=settings.ready_timeout_s,
            max_restarts=settings.max_restarts,
        )
        if settings.ready_path is not None:
            spec = replace(spec, ready_paths=(settings.ready_path,))
        environments = settings.replica_env or [{}] * settings.replicas
        return [replace(spec, env=environment(variables, replica)) for replica in environments]

    def _command(self) -> Any:
        settings = self.settings
        if settings.command is not None:
            return partial(custom_command, settings.command, settings.model, settings.engine_host)
        executable, kwargs = self._executable(), settings.vllm_serve_kwargs
        return lambda port: vllm_command(executable, settings.model, settings.engine_host, port, kwargs)

    def _variables(self) -> JsonObject:
        settings = self.settings
        if settings.command is not None:
            return {"HF_HOME": settings.hf_home} if settings.hf_home else {}
        variables: JsonObject = {"VLLM_NO_USAGE_STATS": "1"}
        if settings.api_key:
            variables["VLLM_API_KEY"] = settings.api_key  # not as an option, which all users of the host could read
        if settings.hf_home:
            variables["HF_HOME"] = settings.hf_home
        if settings.debug:
            variables["VLLM_LOGGING_LEVEL"] = "DEBUG"
        if not settings.show_vllm_engine_stats:
            variables["VLLM_LOG_STATS_INTERVAL"] = "3600"  # turned off completely, /metrics would be empty too
        return variables

    def _executable(self) -> str:
        name = self.settings.vllm_executable
        sibling = Path(sys.executable).parent / name
        path = str(sibling) if "/" not in name and sibling.exists() else shutil.which(name)
        if path is None:
            raise StartError(
                f"cannot find the program '{name}' to start vLLM",
                where=self.name,
                next="install vllm, ideally in its own environment, and set `vllm_executable: /path/to/bin/vllm`",
            )
        return path

    def _log_dir(self) -> Path:
        folder = self.settings.log_dir or self.context.log_dir
        return Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="gymnast-servers-"))

    def _warn_about_unneeded(self) -> None:
        if self.settings.ray_worker_py_executable is not None:
            self.log.warning("ray_worker_py_executable has no effect: vLLM is started without Ray")
        if RAY_VARIABLE in self.settings.vllm_serve_env_vars:
            self.log.warning("%s has no effect: vLLM is started without Ray", RAY_VARIABLE)


def _with_own_tokenizer(settings: LocalVLLMModelSettings) -> LocalVLLMModelSettings:
    """In training mode, render prompts with the tokenizer in the model's folder, unless another is configured."""
    is_wanted = settings.return_token_id_information and settings.tokenizer is None
    if is_wanted and (Path(settings.model) / "tokenizer.json").is_file():
        return settings.model_copy(update={"tokenizer": settings.model})
    return settings
