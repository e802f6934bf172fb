"""`nemo_gym.sandbox.providers.docker.provider`."""

from gymnast.compat.nemo_gym.sandbox.providers.container_settings import DockerCreateConfig, DockerExecConfig
from gymnast.compat.nemo_gym.sandbox.providers.containers import DockerProvider

__all__ = ["DockerCreateConfig", "DockerExecConfig", "DockerProvider"]
