"""`nemo_gym.sandbox.providers.docker`."""

from gymnast.compat.nemo_gym.sandbox.providers.docker import provider
from gymnast.compat.nemo_gym.sandbox.providers.docker.provider import DockerCreateConfig, DockerProvider
from gymnast.compat.nemo_gym.surface import missing_from

__all__ = ["DockerCreateConfig", "DockerProvider", "provider"]

__getattr__ = missing_from("nemo_gym.sandbox.providers.docker", __file__)
