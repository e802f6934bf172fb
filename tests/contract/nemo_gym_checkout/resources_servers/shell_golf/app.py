"""Commands of the model run in a sandbox of the configured provider."""

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.sandbox import AsyncSandbox, SandboxSpec, create_provider, resolve_provider_config


class ShellGolfConfig(BaseResourcesServerConfig):
    sandbox_provider: str | dict[str, dict[str, str]]
    timeout_s: float = 20


class GolfVerifyRequest(BaseVerifyRequest):
    wanted: str


class GolfVerifyResponse(GolfVerifyRequest, BaseVerifyResponse):
    printed: str
    error_type: str | None = None


class ShellGolf(SimpleResourcesServer):
    config: ShellGolfConfig

    async def verify(self, body: GolfVerifyRequest) -> GolfVerifyResponse:
        provider = create_provider(resolve_provider_config(self.config.sandbox_provider))
        spec = SandboxSpec(files={"words.txt": "alpha\nbeta\ngamma\n"}, env={"LIMIT": "2"})
        async with AsyncSandbox(provider, spec) as sandbox:
            done = await sandbox.exec(body.response.output_text, timeout_s=self.config.timeout_s)
        printed = (done.stdout or "").strip()
        return GolfVerifyResponse(
            **body.model_dump(), reward=float(printed == body.wanted), printed=printed, error_type=done.error_type
        )


if __name__ == "__main__":
    ShellGolf.run_webserver()
