"""`nemo_gym.global_config`: the global configuration of a process, and the names of its keys.

It comes from the cell that hosts the caller, from `RunHelper`, from the launcher's NEMO_GYM_CONFIG_DICT, or from the
command line of the process, in this order.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from omegaconf import DictConfig as DictConfig
from omegaconf import OmegaConf as OmegaConf
from pydantic import BaseModel, ConfigDict

from gymnast.compat.nemo_gym.context import PROCESS, current_cell
from gymnast.compat.nemo_gym.errors import UnknownServerError
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.config import Config, load_config, read_environ
from gymnast.config.instances import SERVER_KINDS
from gymnast.config.load import DEFAULT_HEAD_PORT, DEFAULT_HOST
from gymnast.config.secrets import mask_secrets
from gymnast.config.tree import plain
from gymnast.config.yaml_source import read_yaml
from gymnast.errors import StartError, UserError, suggest
from gymnast.runtime.loader import HOSTED_PACKAGE
from gymnast.runtime.ports import bind_socket
from gymnast.types import task

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
RESPONSES_CREATE_PARAMS_KEY_NAME: Final = task.PARAMS
RESPONSE_KEY_NAME: Final = "response"
ENTRYPOINT_KEY_NAME: Final = "entrypoint"
HEAD_SERVER_DEPS_KEY_NAME: Final = "head_server_deps"
PYTHON_VERSION_KEY_NAME: Final = "python_version"
PIP_INSTALL_VERBOSE_KEY_NAME: Final = "pip_install_verbose"
USE_ABSOLUTE_IP: Final = "use_absolute_ip"
UV_PIP_SET_PYTHON_KEY_NAME: Final = "uv_pip_set_python"
SKIP_VENV_IF_PRESENT_KEY_NAME: Final = "skip_venv_if_present"
RAY_HEAD_NODE_ADDRESS_KEY_NAME: Final = "ray_head_node_address"
PORT_RANGE_LOW_KEY_NAME: Final = "port_range_low"
PORT_RANGE_HIGH_KEY_NAME: Final = "port_range_high"
DRY_RUN_KEY_NAME: Final = "dry_run"
UVICORN_TIMEOUT_WORKER_HEALTHCHECK: Final = "uvicorn_timeout_worker_healthcheck"
MODEL_ENDPOINT_READINESS_TIMEOUT_KEY_NAME: Final = "model_endpoint_readiness_timeout_seconds"
ALLOW_OPENAI_VERSION_SKEW_KEY_NAME: Final = "allow_openai_version_skew"
UV_CACHE_DIR_KEY_NAME: Final = "uv_cache_dir"
UV_VENV_DIR_KEY_NAME: Final = "uv_venv_dir"
INHERIT_FROM_KEY_NAME: Final = "_inherit_from"
COPY_KEY_NAME: Final = "_copy"
DELETE_KEY_KEY_NAME: Final = "_delete_key"
NEMO_GYM_LOG_DIR_KEY_NAME: Final = "nemo_gym_log_dir"
VERBOSE_KEY_NAME: Final = "verbose"
JSON_OUTPUT_KEY_NAME: Final = "json"
QUERY_KEY_NAME: Final = "query"
OBSERVABILITY_ENABLED_KEY_NAME: Final = "observability_enabled"
MODEL_CALL_CAPTURE_DIR_KEY_NAME: Final = "model_call_capture_dir"
TOKEN_ID_CAPTURE_BLOCK: Final = "token_id_capture"
COMPONENT_NAME_KEY_NAME: Final = "component_name"
SKIP_VERIFICATION_KEY_NAME: Final = "skip_verification"
SKIP_VERIFICATION_REWARD_KEY_NAME: Final = "skip_verification_reward"
POLICY_MODEL_KEY_NAME: Final = "policy_model"
DEFAULT_HEAD_SERVER_PORT: Final = DEFAULT_HEAD_PORT
NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME: Final = "NEMO_GYM_CONFIG_DICT"
NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME: Final = "NEMO_GYM_CONFIG_PATH"


class GlobalConfigDictParserConfig(BaseModel):
    """The sources of a configuration."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    dotenv_path: Path | None = None
    """A file that replaces env.yaml."""
    initial_global_config_dict: DictConfig | dict[str, Any] | None = None
    """Values from the program; the command line overrides them."""
    skip_load_from_cli: bool = False
    skip_load_from_dotenv: bool = False
    hide_secrets: bool = False
    """Whether the parsed configuration has masks in place of secrets."""
    offline: bool = False
    """For inspection alone. Nothing here uses the network in any case."""
    NO_MODEL_GLOBAL_CONFIG_DICT: ClassVar[DictConfig] = DictConfig(
        {
            "policy_base_url": "",
            "policy_api_key": "",
            "policy_model_name": "",
            "policy_model": {"responses_api_models": {"dummy_model": {"entrypoint": "app.py"}}},
        }
    )
    """A policy that is never called, for work that needs none."""


class GlobalConfigDictParser:
    """Reads a configuration with `gymnast.config`."""

    def load(self, config: GlobalConfigDictParserConfig) -> Config:
        """Read and check the configuration."""
        initial = _plain(config.initial_global_config_dict)
        defaults: dict[str, Any] = {}
        if config.dotenv_path is not None and config.dotenv_path.exists():
            defaults = plain(read_yaml(config.dotenv_path, shown=config.dotenv_path.name))
        arguments = [] if config.skip_load_from_cli else [word for word in sys.argv[1:] if "=" in word]
        return load_config(arguments, environ=read_environ(), initial={**defaults, **initial}).require_valid()

    def parse_no_environment(
        self, initial_global_config_dict: DictConfig | None = None, *, require_valid: bool = True
    ) -> DictConfig:
        """Read a configuration from the program alone, without a policy unless it has one."""
        values = _plain(initial_global_config_dict)
        config = load_config([], environ=read_environ(), initial=values, stub_policy=True)
        return as_dict_config((config.require_valid() if require_valid else config).values)

    def parse(self, parse_config: GlobalConfigDictParserConfig | None = None) -> DictConfig:
        """Read the configuration as a dictionary."""
        parse_config = parse_config or GlobalConfigDictParserConfig()
        values: Mapping[str, Any] = self.load(parse_config).values
        if parse_config.hide_secrets:
            values = {key: mask_secrets(value, key) for key, value in values.items()}
        return as_dict_config(values)


def as_dict_config(values: Mapping[str, Any]) -> DictConfig:
    """A resolved configuration as the DictConfig that `nemo_gym` uses."""
    config: dict[str, Any] = dict(values)
    config.setdefault(HEAD_SERVER_KEY_NAME, _default_head(config))
    return OmegaConf.create(config)


def get_global_config_dict(
    global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None,
    global_config_dict_parser_cls: type[GlobalConfigDictParser] = GlobalConfigDictParser,
) -> DictConfig:
    """The configuration of the caller's cell or process, read on first use."""
    known = maybe_get_global_config_dict()
    if known is not None:
        return known
    caller = str(sys._getframe(1).f_globals.get("__name__"))  # noqa: SLF001 - the only way to find the caller
    if caller.startswith(f"{HOSTED_PACKAGE}."):
        raise UserError(
            "the configuration is not available while the entry file is imported",
            next="call get_global_config_dict() in model_post_init, setup_webserver or a handler",
        )
    PROCESS.config = global_config_dict_parser_cls().parse(global_config_dict_parser_config)
    return PROCESS.config


def maybe_get_global_config_dict() -> DictConfig | None:
    """The configuration, or None if there is none yet."""
    cell = current_cell()
    if cell is not None:
        return cell.config
    if PROCESS.config is None:
        text = read_environ().global_config
        PROCESS.config = _parse_config(text) if text else None
    return PROCESS.config


def get_first_server_config_dict(global_config_dict: DictConfig, top_level_path: str) -> DictConfig:
    """The settings of an instance: its first implementation of its first kind."""
    block = global_config_dict.get(top_level_path)
    if block is None:
        known = [str(name) for name, value in global_config_dict.items() if isinstance(value, DictConfig)]
        raise UnknownServerError(
            f"the configuration has no instance '{top_level_path}'", next=suggest(top_level_path, known)
        )
    kind = next((value for value in SERVER_KINDS if value in block), None) or next(iter(block))
    first: DictConfig = next(iter(block[kind].values()))
    return first


def find_open_port(disallowed_ports: list[int] | None = None, max_retries: int = 50) -> int:
    for _ in range(max_retries):
        with bind_socket(DEFAULT_HOST, 0, what="a free port", hint="") as sock:
            port: int = sock.getsockname()[1]
        if port not in (disallowed_ports or ()):
            return port
    raise StartError(f"no free port after {max_retries} tries", next="list the ports in use: ss -lnt")


def get_hf_token() -> str | None:
    """The configured token for the Hugging Face Hub, if any."""
    token = get_global_config_dict().get(HF_TOKEN_KEY_NAME)
    return str(token) if token else None


def _plain(values: DictConfig | dict[str, Any] | None) -> dict[str, Any]:
    """Convert to a plain dictionary; interpolations stay and are resolved against the whole configuration."""
    if isinstance(values, DictConfig):
        values = OmegaConf.to_container(values, resolve=False)  # type: ignore[assignment] # a mapping stays a mapping
    return dict(values or {})


def _parse_config(text: str) -> DictConfig:
    config = OmegaConf.create(text)
    assert isinstance(config, DictConfig)
    if HEAD_SERVER_KEY_NAME not in config:
        config[HEAD_SERVER_KEY_NAME] = _default_head(config)
    return config


def _default_head(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {"host": str(values.get(DEFAULT_HOST_KEY_NAME) or DEFAULT_HOST), "port": DEFAULT_HEAD_PORT}


__getattr__ = missing_from("nemo_gym.global_config")
