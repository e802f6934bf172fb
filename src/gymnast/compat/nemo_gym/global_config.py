"""`nemo_gym.global_config`: the one configuration that everything in a process can ask for, and the keys of its rows.

Where it comes from: the cell that hosts the caller; what `RunHelper` started; the launcher's NEMO_GYM_CONFIG_DICT; else
the command line of the process, read as `gymnast` reads it.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict

from gymnast.compat.nemo_gym.current import PROCESS, current_place
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.config import Config, load_config, read_environ
from gymnast.config.instances import KINDS
from gymnast.config.load import DEFAULT_HEAD_PORT, DEFAULT_HOST
from gymnast.config.tree import plain
from gymnast.config.yaml_source import read_yaml
from gymnast.errors import NotFoundError, StartError, UserError, suggest
from gymnast.runtime.loader import HOSTED
from gymnast.runtime.ports import bind
from gymnast.types import task

__all__ = [
    "AGENT_REF_KEY_NAME",
    "ATTEMPT_INDEX_KEY_NAME",
    "CACHE_DIR_KEY_NAME",
    "CONFIG_PATHS_KEY_NAME",
    "DEFAULT_HOST_KEY_NAME",
    "DISALLOWED_PORTS_KEY_NAME",
    "HEAD_SERVER_KEY_NAME",
    "HF_TOKEN_KEY_NAME",
    "NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME",
    "NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME",
    "POLICY_API_KEY_KEY_NAME",
    "POLICY_BASE_URL_KEY_NAME",
    "POLICY_MODEL_NAME_KEY_NAME",
    "RESULTS_DIR_KEY_NAME",
    "ROLLOUT_ID_KEY_NAME",
    "ROLLOUT_INDEX_KEY_NAME",
    "SKILLS_REF_KEY_NAME",
    "TASK_INDEX_KEY_NAME",
    "DictConfig",
    "GlobalConfigDictParser",
    "GlobalConfigDictParserConfig",
    "OmegaConf",
    "as_dict_config",
    "find_open_port",
    "get_first_server_config_dict",
    "get_global_config_dict",
    "get_hf_token",
    "maybe_get_global_config_dict",
]

TASK_INDEX_KEY_NAME: Final = task.TASK_INDEX
ROLLOUT_INDEX_KEY_NAME: Final = task.ROLLOUT_INDEX
ATTEMPT_INDEX_KEY_NAME: Final = task.ATTEMPT_INDEX
ROLLOUT_ID_KEY_NAME: Final = task.ROLLOUT_ID
AGENT_REF_KEY_NAME: Final = task.AGENT_REF
SKILLS_REF_KEY_NAME: Final = task.SKILLS_REF
CACHE_DIR_KEY_NAME: Final = "cache_dir"
RESULTS_DIR_KEY_NAME: Final = "results_dir"
DISALLOWED_PORTS_KEY_NAME: Final = "disallowed_ports"
HEAD_SERVER_KEY_NAME: Final = "head_server"
DEFAULT_HOST_KEY_NAME: Final = "default_host"
HF_TOKEN_KEY_NAME: Final = "hf_token"
CONFIG_PATHS_KEY_NAME: Final = "config_paths"
POLICY_BASE_URL_KEY_NAME: Final = "policy_base_url"
POLICY_API_KEY_KEY_NAME: Final = "policy_api_key"
POLICY_MODEL_NAME_KEY_NAME: Final = "policy_model_name"
NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME: Final = "NEMO_GYM_CONFIG_DICT"
NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME: Final = "NEMO_GYM_CONFIG_PATH"


class GlobalConfigDictParserConfig(BaseModel):
    """Where a configuration is read from."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    dotenv_path: Path | None = None
    """A file in place of env.yaml."""
    initial_global_config_dict: DictConfig | dict[str, Any] | None = None
    """What a program says; the command line is above it."""
    skip_load_from_cli: bool = False
    skip_load_from_dotenv: bool = False


class GlobalConfigDictParser:
    """Reads a configuration with `gymnast.config`."""

    def load(self, config: GlobalConfigDictParserConfig) -> Config:
        """The configuration, checked."""
        initial = _plain(config.initial_global_config_dict)
        defaults: dict[str, Any] = {}
        if config.dotenv_path is not None and config.dotenv_path.exists():
            defaults = plain(read_yaml(config.dotenv_path, shown=config.dotenv_path.name))
        arguments = [] if config.skip_load_from_cli else [word for word in sys.argv[1:] if "=" in word]
        return load_config(arguments, environ=read_environ(), initial={**defaults, **initial}).checked()

    def parse(self, config: GlobalConfigDictParserConfig | None = None) -> DictConfig:
        """The configuration as a dictionary."""
        return as_dict_config(self.load(config or GlobalConfigDictParserConfig()).values)


def as_dict_config(values: Mapping[str, Any]) -> DictConfig:
    """A resolved configuration in the form that `nemo_gym` hands around."""
    found: dict[str, Any] = dict(values)
    found.setdefault(HEAD_SERVER_KEY_NAME, _default_head(found))
    return OmegaConf.create(found)


def get_global_config_dict(
    global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None,
    global_config_dict_parser_cls: type[GlobalConfigDictParser] = GlobalConfigDictParser,
) -> DictConfig:
    """The configuration of the caller's cell or process; read the first time that a process asks."""
    known = maybe_get_global_config_dict()
    if known is not None:
        return known
    asking = str(sys._getframe(1).f_globals.get("__name__"))  # noqa: SLF001 - there is no other way to learn who asks
    if asking.startswith(f"{HOSTED}."):
        raise UserError(
            "the configuration is asked for while the entry file is imported, before there is one",
            next="ask for it in model_post_init, setup_webserver or a handler",
        )
    PROCESS.config = global_config_dict_parser_cls().parse(global_config_dict_parser_config)
    return PROCESS.config


def maybe_get_global_config_dict() -> DictConfig | None:
    """The same, or None where nothing has been configured yet."""
    place = current_place()
    if place is not None:
        return place.config
    if PROCESS.config is None:
        told = read_environ().global_config
        PROCESS.config = _created(told) if told else None
    return PROCESS.config


def get_first_server_config_dict(global_config_dict: DictConfig, top_level_path: str) -> DictConfig:
    """The block of an instance: below its first kind, its first implementation."""
    block = global_config_dict.get(top_level_path)
    if block is None:
        known = [str(name) for name, found in global_config_dict.items() if isinstance(found, DictConfig)]
        raise NotFoundError(
            f"there is no instance '{top_level_path}' in the configuration", next=suggest(top_level_path, known)
        )
    kind = next((found for found in KINDS if found in block), None) or next(iter(block))
    first: DictConfig = next(iter(block[kind].values()))
    return first


def find_open_port(disallowed_ports: list[int] | None = None, max_retries: int = 50) -> int:
    """A port that is free now."""
    for _ in range(max_retries):
        with bind(DEFAULT_HOST, 0, what="a free port", way_on="") as sock:
            port: int = sock.getsockname()[1]
        if port not in (disallowed_ports or ()):
            return port
    raise StartError(f"no free port was found in {max_retries} tries", next="look who holds them: ss -lnt")


def get_hf_token() -> str | None:
    """The token for the Hugging Face Hub that is configured, if one is."""
    found = get_global_config_dict().get(HF_TOKEN_KEY_NAME)
    return str(found) if found else None


def _plain(found: DictConfig | dict[str, Any] | None) -> dict[str, Any]:
    """Interpolations stay: they are resolved against the whole configuration."""
    if isinstance(found, DictConfig):
        found = OmegaConf.to_container(found, resolve=False)  # type: ignore[assignment] # a mapping stays one
    return dict(found or {})


def _created(text: str) -> DictConfig:
    found = OmegaConf.create(text)
    assert isinstance(found, DictConfig)
    if HEAD_SERVER_KEY_NAME not in found:
        found[HEAD_SERVER_KEY_NAME] = _default_head(found)
    return found


def _default_head(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {"host": str(values.get(DEFAULT_HOST_KEY_NAME) or DEFAULT_HOST), "port": DEFAULT_HEAD_PORT}


__getattr__ = missing_from("nemo_gym.global_config")
