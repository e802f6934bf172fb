"""Turns YAML and overrides into one typed configuration in which each value knows its origin. Starts nothing."""

from gymnast.config.compose import compose
from gymnast.config.environ import Environ, read_environ
from gymnast.config.instances import Instance, ServerKind, ServerRef
from gymnast.config.load import Config, load_config

__all__ = ["Config", "Environ", "Instance", "ServerKind", "ServerRef", "compose", "load_config", "read_environ"]
