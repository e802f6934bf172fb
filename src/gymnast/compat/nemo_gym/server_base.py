"""The base classes of servers: pydantic models with a configuration, a client and a FastAPI application."""

import logging
import resource
from abc import abstractmethod
from typing import Any, ClassVar, cast

from fastapi import FastAPI
from omegaconf import OmegaConf
from pydantic import BaseModel, ConfigDict, PrivateAttr
from starlette.middleware.sessions import SessionMiddleware

from gymnast.compat.nemo_gym import standalone as by_hand
from gymnast.compat.nemo_gym.config_types import BaseRunServerInstanceConfig, BaseServerConfig
from gymnast.compat.nemo_gym.global_config import get_global_config_dict
from gymnast.compat.nemo_gym.hosting import HostedServer, config_problems, host_server
from gymnast.compat.nemo_gym.middleware import ExceptionMiddleware, SessionIdMiddleware
from gymnast.compat.nemo_gym.server_utils import ServerClient
from gymnast.compat.nemo_gym.stages import failure_of
from gymnast.config.instances import Instance, ServerKind
from gymnast.errors import Problem
from gymnast.types.failure import FailureDetail
from gymnast.wire.server import ServerContext


class ProfilingMiddlewareConfig(BaseModel):
    """Whether to profile, and where the profile is written."""

    profiling_enabled: bool = False
    profiling_results_dirpath: str | None = None


class BaseServer(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    config: BaseServerConfig

    @classmethod
    def load_config_from_global_config(cls) -> BaseRunServerInstanceConfig:
        """Load the configuration of the instance that this process runs."""
        return by_hand.load_own_config(cls.config_type())

    @classmethod
    def config_type(cls) -> type[BaseRunServerInstanceConfig]:
        """The configuration model that the class declares."""
        return cast("type[BaseRunServerInstanceConfig]", cls.model_fields["config"].annotation)

    def setup_liveness(self, app: FastAPI) -> None:
        """Add `GET /`, which reports that the server is running."""

        async def liveness() -> dict[str, str]:
            return {"status": "ok"}

        app.get("/", include_in_schema=False)(liveness)


class SimpleServer(BaseServer):
    """A server with a name, peers and sessions."""

    GYMNAST_KIND: ClassVar[ServerKind]
    ray_enabled: ClassVar[bool | None] = None
    """What servers of NeMo Gym 0.7 declare. Without effect: Ray is started for servers that use it."""
    config: BaseRunServerInstanceConfig
    server_client: ServerClient

    @abstractmethod
    def setup_webserver(self) -> FastAPI:
        """Build the application with its routes."""

    def get_session_middleware_key(self) -> str:
        """The name of the session cookie."""
        return f"{type(self).__name__}___{self.config.name}"

    def setup_session_middleware(self, app: FastAPI) -> None:
        """Assign every request to a session, kept in a cookie."""
        app.add_middleware(SessionIdMiddleware)
        key = self.get_session_middleware_key()
        app.add_middleware(SessionMiddleware, secret_key=key, session_cookie=key)

    def setup_exception_middleware(self, app: FastAPI) -> None:
        """Turn exceptions of handlers into the contract's 500, with the kind of failure in a header."""
        app.add_middleware(ExceptionMiddleware, explain=self.explain_exception)

    def explain_exception(self, path: str, error: Exception) -> tuple[str, FailureDetail]:
        """The body of a 500 reply, and the failure behind it."""
        name = self.get_session_middleware_key()
        logging.getLogger(f"gymnast.instance.{self.config.name}").error("POST %s raised", path, exc_info=error)
        content = getattr(error, "response_content", None)
        text = (
            f"Hit an exception in {name} calling an inner server: {content!r}" if content is not None else repr(error)
        )
        return text, failure_of(self.config.name, path, error)

    def setup_profiling(self, app: FastAPI, profiling_config: ProfilingMiddlewareConfig) -> None:
        """Add `GET /stats`, which writes a profile; needs the package yappi."""
        from gymnast.compat.nemo_gym.profiling import install  # noqa: PLC0415 - needed only for profiles

        install(app, self.get_session_middleware_key(), profiling_config.profiling_results_dirpath)

    def set_ulimit(self, target_soft_limit: int = 65535) -> None:
        """Raise the limit of open files, to allow many connections."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = target_soft_limit if hard == resource.RLIM_INFINITY else min(target_soft_limit, hard)
        if soft < limit:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))

    def prefix_server_logs(self) -> None:
        """Prefix lines of this process with the name of the server. Hosted servers have separate logs instead."""
        by_hand.prefix_output(self.config.name)

    @classmethod
    def run_webserver(cls) -> FastAPI | None:
        """Run this server until it is stopped: for `python app.py`."""
        return by_hand.run_webserver(cls)

    # --- hosted by Gymnast -------------------------------------------------------------------------------------------

    def gymnast_observed_runs(self) -> Any:
        """The observed rollouts of an agent; None for other servers, and if the run is not observed."""
        return None

    @classmethod
    def gymnast_hosted(cls, instance: Instance, context: ServerContext) -> HostedServer:
        """This server as a guest of a cell."""
        return host_server(cls, instance, context)

    @classmethod
    def gymnast_problems(cls, instance: Instance) -> list[Problem]:
        """The problems of an instance's settings."""
        return config_problems(cls, instance)


class HeadServer(BaseServer):
    """Lists the servers and their configuration."""

    config: BaseServerConfig
    _server_instances: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    def setup_webserver(self) -> FastAPI:
        """Build the application: the configuration and the list of servers."""
        app = FastAPI()
        self.setup_liveness(app)
        app.get("/global_config_dict_yaml")(self.global_config_dict_yaml)
        app.get("/server_instances")(self.get_server_instances)
        return app

    def get_server_instances(self) -> list[dict[str, Any]]:
        """The servers set with `set_server_instances`."""
        return self._server_instances

    def set_server_instances(self, instances: list[dict[str, Any]]) -> None:
        self._server_instances = instances

    async def global_config_dict_yaml(self) -> str:
        """The configuration, secrets masked."""
        values = OmegaConf.to_container(get_global_config_dict(), resolve=False)
        return by_hand.masked_yaml(cast("dict[str, Any]", values))

    @classmethod
    def run_webserver(cls) -> tuple[Any, Any, "HeadServer"]:
        """Serve in a thread; returns the web server, the thread and the head server."""
        return by_hand.run_head(cls)
