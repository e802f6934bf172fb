"""`nemo_gym.benchmarks`: the benchmark that a config defines."""

from pathlib import Path
from typing import Any, Self

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel

from gymnast.compat.nemo_gym.config_types import BenchmarkDatasetConfig
from gymnast.compat.nemo_gym.errors import InvalidValueError
from gymnast.compat.nemo_gym.global_config import GlobalConfigDictParser, get_first_server_config_dict
from gymnast.compat.nemo_gym.surface import missing_from


class BenchmarkConfig(BaseModel):
    """A benchmark: its dataset, its agent and how often each task is run."""

    name: str
    path: Path
    agent_name: str
    num_repeats: int
    dataset: BenchmarkDatasetConfig

    @classmethod
    def from_config_path(cls, config_path: Path, *, strict: bool = True) -> Self | None:
        """The benchmark of a config file; None if it has none. Unless `strict`, values may be unset."""
        config = OmegaConf.load(config_path)
        assert isinstance(config, DictConfig)
        return cls.from_initial_config_dict(config_path, config, strict=strict)

    @classmethod
    def from_initial_config_dict(
        cls, path: Path, initial_config_dict: DictConfig, *, strict: bool = True
    ) -> Self | None:
        """The benchmark of a configuration; None if it has none."""
        config = GlobalConfigDictParser().parse_no_environment(initial_config_dict, require_valid=strict)
        datasets = [
            (str(name), BenchmarkDatasetConfig.model_validate(_plain(dataset)))
            for name, block in config.items()
            if isinstance(block, DictConfig) and "responses_api_agents" in block
            for dataset in get_first_server_config_dict(config, str(name)).get("datasets") or ()
            if dataset.get("type") == "benchmark"
        ]
        if not datasets:
            return None
        if len(datasets) > 1:
            raise InvalidValueError(f"expected one benchmark dataset, found {len(datasets)}", where=str(path))
        agent, dataset = datasets[0]
        return cls(name=dataset.name, path=path, agent_name=agent, num_repeats=dataset.num_repeats, dataset=dataset)


def _plain(dataset: Any) -> Any:
    return OmegaConf.to_container(dataset) if isinstance(dataset, DictConfig) else dataset


__getattr__ = missing_from("nemo_gym.benchmarks")
