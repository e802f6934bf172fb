"""Errors that callers of `nemo_gym` may catch by the built-in type they have there."""

from gymnast.errors import NotFoundError, UserError


class InvalidValueError(UserError, ValueError):
    """A value that cannot be used: a ValueError for servers and their tests."""


class UnknownNameError(NotFoundError, ValueError):
    """A name or folder that does not exist: a ValueError for servers and their tests."""
