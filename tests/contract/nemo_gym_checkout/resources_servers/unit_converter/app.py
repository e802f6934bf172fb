"""Settings of its own, with defaults, nested ones, and a check."""

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from pydantic import BaseModel, Field, field_validator


class Tolerance(BaseModel):
    absolute: float = 0.0
    relative: float = 0.01


class UnitConverterConfig(BaseResourcesServerConfig):
    tolerance: Tolerance = Field(default_factory=Tolerance)
    factors: dict[str, float]
    penalty: float = 0.0

    @field_validator("factors")
    @classmethod
    def positive(cls, value: dict[str, float]) -> dict[str, float]:
        if any(factor <= 0 for factor in value.values()):
            raise ValueError("factors must be positive")
        return value


class UnitVerifyRequest(BaseVerifyRequest):
    metres: float
    unit: str


class UnitConverter(SimpleResourcesServer):
    config: UnitConverterConfig

    async def verify(self, body: UnitVerifyRequest) -> BaseVerifyResponse:
        right = body.metres * self.config.factors[body.unit]
        try:
            said = float(body.response.output_text.split()[-1])
        except (IndexError, ValueError):
            return BaseVerifyResponse(**body.model_dump(), reward=-self.config.penalty)
        allowed = self.config.tolerance.absolute + self.config.tolerance.relative * abs(right)
        return BaseVerifyResponse(**body.model_dump(), reward=float(abs(said - right) <= allowed))


if __name__ == "__main__":
    UnitConverter.run_webserver()
