"""Errors that callers of `nemo_gym` may catch by the built-in type they have there."""

from gymnast.errors import NotFoundError, UserError


class InvalidValueError(UserError, ValueError):
    """A value that cannot be used: a ValueError for servers and their tests."""


class UnknownNameError(NotFoundError, ValueError):
    """A name or folder that does not exist: a ValueError for servers and their tests."""


ConfigError = UserError
"""There, the base of all errors of a configuration; here every error that a user can fix."""


class ConfigPathNotFoundError(ConfigError, FileNotFoundError):
    """A configuration file does not exist."""


class MalformedConfigPathsError(InvalidValueError):
    """The `config_paths` are not a list of paths."""


class NoServerInstancesError(InvalidValueError):
    """The configuration has no servers."""


class ConfigMissingValuesError(InvalidValueError):
    """A required value is not set."""


class ConfigInterpolationError(InvalidValueError):
    """A `${…}` names a key that the configuration does not have."""


class ServerRefNotFoundError(InvalidValueError):
    """A reference names a server that the configuration does not have."""


class InheritPathNotFoundError(InvalidValueError):
    """A directive such as `_inherit_from` names a part that the configuration does not have."""


class AlmostServerError(InvalidValueError):
    """A block looks like a server and is not a valid one."""


class UnknownServerError(NotFoundError, KeyError):
    """A name that no server of the configuration has: a KeyError for callers."""
