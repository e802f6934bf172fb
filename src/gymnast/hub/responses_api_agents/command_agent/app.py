"""Any program as an agent: seed a session, run a command that finds the policy at a URL of its own, verify.

The command speaks OpenAI's or Anthropic's API to the URL in its environment; the gateway captures what it asks, and
the rollout's record holds the trace. The command's process group is ended with the rollout, whatever happens.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import orjson
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from gymnast.config.environ import inherited_environ
from gymnast.errors import CallError
from gymnast.hub.responses_api_agents.command_agent.outcome import failure_of, observations, scored_response
from gymnast.hub.responses_api_agents.command_agent.workplace import (
    Workplace,
    arguments,
    make_workplace,
    placeholders,
    prompt_of,
    task_of,
    variables,
)
from gymnast.hub.responses_api_agents.gateway_place import GatewayPlace
from gymnast.kit import Agent, AgentSettings, ModelRef, ResourcesRef
from gymnast.kit.door import Door
from gymnast.kit.door_rules import Limits, Places
from gymnast.kit.gateway import Address, Gateway
from gymnast.kit.sandbox.command import CommandJail, CommandSandboxSettings, open_command_jail
from gymnast.kit.verify_call import verified
from gymnast.runtime.command import CommandResult, CommandSpec, Runner, run_here
from gymnast.types.failure import Stage
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from gymnast.types.items import CreateParams, Response
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Scope
    from gymnast.wire.server import Surroundings

_INHERITED: Final = [
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "TMPDIR"),
    *("LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "SSL_CERT_FILE", "SSL_CERT_DIR"),
]


class CommandAgentSettings(AgentSettings):
    resources_server: ResourcesRef
    model_server: ModelRef
    command: str | list[str] = Field(min_length=1)
    """A list of arguments, or a text for the shell. `{name}` stands for what the README lists."""
    environment: dict[str, str] = {}
    inherit_environment: list[str] = _INHERITED
    working_dir: str | None = None
    """Where the command works, with `{rollout_id}`; null makes a fresh folder for each rollout."""
    scratch_dir: str | None = None
    """Where those folders are made; null takes the system's folder for temporary files."""
    keep_working_dir: Literal["never", "on_failure", "always"] = "never"
    prompt_via: Literal["stdin", "file", "argument"] = "stdin"
    answer_from: Literal["last_message", "stdout", "file"] = "last_message"
    task_fields: list[str] = []
    """Fields of the row that the command may read in its task file; `*` shows all, answers included."""
    model_name: str = "policy"
    timeout_s: PositiveFloat = 1800.0
    on_timeout: Literal["fail", "score"] = "fail"
    accept_exit_codes: list[NonNegativeInt] = [0]
    max_model_calls: PositiveInt | None = 256
    max_output_tokens: PositiveInt | None = None
    max_output_bytes: PositiveInt = 1 << 20
    gateway_host: str = "127.0.0.1"
    gateway_address: str | None = None
    """The host name under which the command reaches the gateway, where that is not `gateway_host`."""
    sandbox: CommandSandboxSettings | None = None
    """Run the command behind walls: it writes its folder and reads the system and `read_only`. Null runs it as you."""

    @model_validator(mode="after")
    def _own_folder(self) -> Self:
        if self.sandbox is not None and self.working_dir is not None:
            raise ValueError("a command in the sandbox works in its own fresh folder: leave working_dir out")
        return self


class CommandAgent(Agent):
    """Runs one command for each rollout."""

    settings: CommandAgentSettings

    def __init__(self, name: str, settings: CommandAgentSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        self._gateway = Gateway(name, surroundings)
        self._place = GatewayPlace(self._gateway, settings.gateway_host, settings.gateway_address)
        self._runner: Runner = run_here

    async def start(self) -> None:
        if self.settings.sandbox is not None:
            self._runner = jailed(await open_command_jail(self.settings.sandbox))
        await super().start()

    async def stop(self) -> None:
        await self._place.close()

    async def run(self, row: JsonObject, params: CreateParams, scope: Scope) -> JsonObject:
        environment = self.settings.resources_server.name
        offers = await self.calls.expect(
            environment, "/seed_session", row, scope, stage=Stage.SEED, timeout_s=self.settings.seed_timeout_s
        )
        try:
            response, attachments = await self._perform(row, params, scope)
            verdict = await verified(self.calls, environment, row, response, scope, self.settings)
        except BaseException:
            if isinstance(offers, dict) and offers.get("supports_explicit_close"):
                await self._close_session(environment, scope)
            raise
        return {**verdict, **attachments}

    async def respond(self, params: CreateParams, scope: Scope) -> Response:
        response, _ = await self._perform({PARAMS: params}, params, scope)
        return response

    async def aggregate_metrics(self, body: JsonObject) -> JsonObject:
        reply: JsonObject = await self.calls.expect(
            self.settings.resources_server.name, "/aggregate_metrics", body, stage=Stage.AGENT
        )
        return reply

    async def _perform(self, row: JsonObject, params: CreateParams, scope: Scope) -> tuple[Response, JsonObject]:
        """Run the command; the response it led to, and what else the record keeps."""
        place = await self._workplace(scope)
        failed = True
        try:
            door, result = await self._command(row, params, scope, place)
            attachments = self._attachments(result, door, scope.rollout_id)
            failure = failure_of(
                result,
                door,
                self.name,
                accepted=self.settings.accept_exit_codes,
                timeout_fails=self.settings.on_timeout == "fail",
            )
            if failure is not None:
                self._keep_evidence(place, result, attachments)
                raise CallError(failure)
            failed = False
            return scored_response(params, door, result, self._answer(place, result)), attachments
        finally:
            await self._tidy_up(place, failed=failed)

    async def _command(
        self, row: JsonObject, params: CreateParams, scope: Scope, place: Workplace
    ) -> tuple[Door, CommandResult]:
        base_url = await self._place.base_url()
        door, address = self._gateway.open(base_url, self._places(), self._limits(), params, scope)
        try:
            return door, await self._runner(self._spec(row, params, scope.rollout_id or "", place, address))
        finally:
            await self._gateway.close(door)

    def _spec(
        self, row: JsonObject, params: CreateParams, rollout_id: str, place: Workplace, address: Address
    ) -> CommandSpec:
        settings, prompt = self.settings, prompt_of(params)
        place.write(prompt, task_of(row, rollout_id, settings.task_fields))
        known = placeholders(place, address, prompt=prompt, model=settings.model_name, rollout_id=rollout_id)
        own = variables(known, settings.environment, has_tools=bool(params.get("tools")), host=self._place.host)
        by_stdin = {"stdin": place.prompt_file} if settings.prompt_via == "stdin" else {}
        return CommandSpec(
            arguments(settings.command, known, with_prompt=settings.prompt_via == "argument"),
            inherited_environ(settings.inherit_environment) | own,
            place.working_dir,
            mark=address.key,
            folders=(place.folder,),
            timeout_s=settings.timeout_s,
            max_output_bytes=settings.max_output_bytes,
            **by_stdin,
        )

    def _attachments(self, result: CommandResult, door: Door, rollout_id: str | None) -> JsonObject:
        model_ref = {"type": "responses_api_models", "name": self.settings.model_server.name}
        return {
            "ng_model_call_capture": door.trace.capture(rollout_id, model_ref),
            "ng_agent_observations": observations(result, door, self.name, rollout_id),
        }

    def _answer(self, place: Workplace, result: CommandResult) -> str | None:
        if self.settings.answer_from == "last_message":
            return None
        return result.stdout if self.settings.answer_from == "stdout" else place.answer()

    # --- the gateway -------------------------------------------------------------------------------------------------

    def _places(self) -> Places:
        settings = self.settings
        return Places(
            settings.model_server.name,
            settings.resources_server.name,
            settings.model_timeout_s,
            settings.tool_timeout_s,
        )

    def _limits(self) -> Limits:
        return Limits(self.settings.max_model_calls, self.settings.max_output_tokens)

    async def _workplace(self, scope: Scope) -> Workplace:
        settings = self.settings
        return await asyncio.to_thread(
            make_workplace, settings.scratch_dir, settings.working_dir, scope.rollout_id or "rollout"
        )

    # --- afterwards --------------------------------------------------------------------------------------------------

    def _keep_evidence(self, place: Workplace, result: CommandResult, attachments: Any) -> None:
        if self.settings.keep_working_dir == "never":
            return
        (place.folder / "stdout.txt").write_text(result.stdout)
        (place.folder / "stderr.txt").write_text(result.stderr)
        (place.folder / "trace.json").write_bytes(orjson.dumps(attachments))
        self.log.warning("kept the folder of a failed rollout: %s", place.folder)

    async def _tidy_up(self, place: Workplace, *, failed: bool) -> None:
        keep = self.settings.keep_working_dir
        if keep == "never" or (keep == "on_failure" and not failed):
            await asyncio.to_thread(place.remove)

    async def _close_session(self, environment: str, scope: Scope) -> None:
        try:
            await self.calls.call(environment, "/close_session", {}, scope, stage=Stage.CLOSE, timeout_s=5.0)
        except CallError as error:
            self.log.warning("could not close the session of rollout %s: %s", scope.rollout_id, error)


def jailed(jail: CommandJail) -> Runner:
    """Runs commands behind walls, and otherwise as `run_here` does."""

    async def run(spec: CommandSpec) -> CommandResult:
        argv = await asyncio.to_thread(jail.wrapped, spec.argv, spec.cwd, spec.folders)
        return await run_here(replace(spec, argv=argv))

    return run
