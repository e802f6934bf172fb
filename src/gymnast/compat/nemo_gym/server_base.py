"""The classes that servers are built on: pydantic models with a configuration, a client and a FastAPI application."""

import logging
import resource
from abc import abstractmethod
from typing import Any, ClassVar, cast

from fastapi import FastAPI
from omegaconf import OmegaConf
from pydantic import BaseModel, ConfigDict, PrivateAttr
from starlette.middleware.sessions import SessionMiddleware

from gymnast.compat.nemo_gym import by_hand
from gymnast.compat.nemo_gym.config_types import BaseRunServerInstanceConfig, BaseServerConfig
from gymnast.compat.nemo_gym.global_config import get_global_config_dict
from gymnast.compat.nemo_gym.hosting import Guest, config_problems, hosted
from gymnast.compat.nemo_gym.middleware import Catcher, SessionIds
from gymnast.compat.nemo_gym.server_utils import ServerClient
from gymnast.compat.nemo_gym.stages import failure_of
from gymnast.config.instances import Instance, ServerKind
from gymnast.errors import Problem
from gymnast.types.failure import FailureDetail
from gymnast.wire.server import Surroundings


class ProfilingMiddlewareConfig(BaseModel):
    """Where a profile is written, if one is asked for."""

    profiling_enabled: bool = False
    profiling_results_dirpath: str | None = None


class BaseServer(BaseModel):
    """Something with a configuration that can be served."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    config: BaseServerConfig

    @classmethod
    def load_config_from_global_config(cls) -> BaseRunServerInstanceConfig:
        """The configuration of the instance that this process is to be, as the class declares it."""
        return by_hand.own_config(cls.config_type())

    @classmethod
    def config_type(cls) -> type[BaseRunServerInstanceConfig]:
        """The model that a class declares for its configuration."""
        return cast("type[BaseRunServerInstanceConfig]", cls.model_fields["config"].annotation)

    def setup_liveness(self, app: FastAPI) -> None:
        """`GET /` says that the server is there."""

        async def liveness() -> dict[str, str]:
            return {"status": "ok"}

        app.get("/", include_in_schema=False)(liveness)


class SimpleServer(BaseServer):
    """A server with a name, peers and sessions."""

    GYMNAST_KIND: ClassVar[ServerKind]
    config: BaseRunServerInstanceConfig
    server_client: ServerClient

    @abstractmethod
    def setup_webserver(self) -> FastAPI:
        """The application, with its routes."""

    def get_session_middleware_key(self) -> str:
        """The name of the session cookie."""
        return f"{type(self).__name__}___{self.config.name}"

    def setup_session_middleware(self, app: FastAPI) -> None:
        """Every request belongs to a session, which a cookie names."""
        app.add_middleware(SessionIds)
        key = self.get_session_middleware_key()
        app.add_middleware(SessionMiddleware, secret_key=key, session_cookie=key)

    def setup_exception_middleware(self, app: FastAPI) -> None:
        """What a handler raises becomes the contract's 500, and says in a header what kind of failure it was."""
        app.add_middleware(Catcher, explain=self.explain_exception)

    def explain_exception(self, path: str, error: Exception) -> tuple[str, FailureDetail]:
        """The body of a 500, and the failure that it stands for."""
        name = self.get_session_middleware_key()
        logging.getLogger(f"gymnast.instance.{self.config.name}").error("POST %s raised", path, exc_info=error)
        content = getattr(error, "response_content", None)
        text = (
            f"Hit an exception in {name} calling an inner server: {content!r}" if content is not None else repr(error)
        )
        return text, failure_of(self.config.name, path, error)

    def setup_profiling(self, app: FastAPI, profiling_config: ProfilingMiddlewareConfig) -> None:
        """`GET /stats` writes a profile; needs the package yappi."""
        from gymnast.compat.nemo_gym.profiling import install  # noqa: PLC0415 - only where it is asked for

        install(app, self.get_session_middleware_key(), profiling_config.profiling_results_dirpath)

    def set_ulimit(self, target_soft_limit: int = 65535) -> None:
        """Allow many connections."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = target_soft_limit if hard == resource.RLIM_INFINITY else min(target_soft_limit, hard)
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

    def prefix_server_logs(self) -> None:
        """Lines of this process begin with the name of the server. Hosted servers have logs of their own instead."""
        by_hand.prefix_output(self.config.name)

    @classmethod
    def run_webserver(cls) -> FastAPI | None:
        """Be this server until told to stop: for `python app.py`."""
        return by_hand.run_webserver(cls)

    # --- hosted by Gymnast -------------------------------------------------------------------------------------------

    @classmethod
    def gymnast_guest(cls, instance: Instance, surroundings: Surroundings) -> Guest:
        """This server as a guest of a cell."""
        return hosted(cls, instance, surroundings)

    @classmethod
    def gymnast_problems(cls, instance: Instance) -> list[Problem]:
        """What its configuration model says of an instance's block."""
        return config_problems(cls, instance)


class HeadServer(BaseServer):
    """Tells which servers there are."""

    config: BaseServerConfig
    _server_instances: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    def setup_webserver(self) -> FastAPI:
        """The two pages of a head server."""
        app = FastAPI()
        self.setup_liveness(app)
        app.get("/global_config_dict_yaml")(self.global_config_dict_yaml)
        app.get("/server_instances")(self.get_server_instances)
        return app

    def get_server_instances(self) -> list[dict[str, Any]]:
        """The servers that were set."""
        return self._server_instances

    def set_server_instances(self, instances: list[dict[str, Any]]) -> None:
        """Say which servers there are."""
        self._server_instances = instances

    async def global_config_dict_yaml(self) -> str:
        """The configuration, secrets masked."""
        values = OmegaConf.to_container(get_global_config_dict(), resolve=False)
        return by_hand.masked_yaml(cast("dict[str, Any]", values))

    @classmethod
    def run_webserver(cls) -> tuple[Any, Any, "HeadServer"]:
        """Serve in a thread; returns the web server, the thread and the head."""
        return by_hand.run_head(cls)
