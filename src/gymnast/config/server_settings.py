"""Settings of a server: the keys of its block that its author declares. An undeclared key is an error."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Base class of every server's settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelRef(BaseModel):
    """A reference to a model instance."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    type: Literal["responses_api_models"] = "responses_api_models"
    name: str


class ResourcesRef(BaseModel):
    """A reference to a resources server instance."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    type: Literal["resources_servers"] = "resources_servers"
    name: str
