"""Any program as an agent: seed a session, run a command with its own policy URL, verify.

The command speaks OpenAI's or Anthropic's API to the URL in its environment; the gateway captures its model calls, and
the rollout's record has the trace. The command's process group always ends with the rollout.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Any, Final, Literal, Self

import orjson
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from gymnast.builtin.responses_api_agents.gateway_agent import GatewayAgent, GatewayAgentSettings
from gymnast.kit import (
    PARAMS,
    CallError,
    CommandJail,
    CommandResult,
    CommandRunner,
    CommandSandboxSettings,
    CommandSpec,
    CreateParams,
    JsonObject,
    Response,
    RolloutAddress,
    RolloutEndpoint,
    Scope,
    ServerContext,
    hide_secrets,
    inherited_environ,
    open_command_jail,
    request_verdict,
    run_locally,
    seed_session,
)

from .outcome import failure_of, make_observations, make_scored_response
from .program import check_program, find_unusable_text, resolve_paths
from .rollout_folder import (
    RolloutFolder,
    describe_tools,
    make_arguments,
    make_placeholders,
    make_prompt,
    make_rollout_folder,
    make_task,
    make_variables,
)

_INHERITED: Final = [
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "TMPDIR"),
    *("LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "SSL_CERT_FILE", "SSL_CERT_DIR"),
]


class CommandAgentSettings(GatewayAgentSettings):
    command: str | list[str] = Field(min_length=1)
    """A list of arguments, or a shell command. The README lists the placeholders `{name}`."""
    install: str | None = None
    """How to install the program, for the message if it is missing."""
    python: str | None = None
    """The interpreter that `{python}` stands for; null is the one that runs Gymnast."""
    python_packages: list[str] = []
    """Packages that this interpreter must be able to import."""
    environment: dict[str, str] = {}
    inherit_environment: list[str] = _INHERITED
    working_dir: str | None = None
    """The command's working directory, with `{rollout_id}`; null creates a fresh folder per rollout."""
    scratch_dir: str | None = None
    """The parent of those folders; null uses the system's temporary folder."""
    keep_working_dir: Literal["never", "on_failure", "always"] = "never"
    files: dict[str, str] = {}
    """Files to write into `{folder}` for each rollout: contents with placeholders, by relative path."""
    own_home: bool = False
    """Give each rollout an empty home folder, `{home_dir}`, so that nothing of your user's settings matters."""
    offers_tools: bool = False
    """The program offers the environment's tools to the policy as functions. If a task has tools and no model call
    offered them, the attempt fails (`agent_no_tools`) instead of being scored."""
    tools_in_prompt: bool = False
    """For programs that work in a shell: append to the prompt how its command `tool` calls the task's tools."""
    prompt_via: Literal["stdin", "file", "argument"] = "stdin"
    answer_from: Literal["last_message", "stdout", "file"] = "last_message"
    task_fields: list[str] = []
    """Fields of the row to include in the command's task file; `*` includes all, also answers."""
    on_timeout: Literal["fail", "score"] = "fail"
    accept_exit_codes: list[NonNegativeInt] = [0]
    max_output_bytes: PositiveInt = 1 << 20
    sandbox: CommandSandboxSettings | None = None
    """Sandbox the command: it writes only its folder, and reads the system and `read_only`. Null runs it as you."""

    @model_validator(mode="after")
    def _own_folder(self) -> Self:
        if self.sandbox is not None and self.working_dir is not None:
            raise ValueError("a sandboxed command works in its own fresh folder: leave out working_dir")
        return self


class CommandAgent(GatewayAgent):
    """Runs one command per rollout."""

    settings: CommandAgentSettings

    def __init__(self, name: str, settings: CommandAgentSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._runner: CommandRunner = run_locally

    async def start(self) -> None:
        await asyncio.to_thread(check_program, self.settings, self.name)
        if self.settings.sandbox is not None:
            self._runner = make_jail_runner(await open_command_jail(self.settings.sandbox))
        await super().start()

    async def run(self, row: JsonObject, params: CreateParams, scope: Scope) -> JsonObject:
        environment = self.settings.resources_server.name
        offers = await seed_session(self.calls, environment, row, scope, self.settings)
        try:
            response, attachments = await self._perform(row, params, scope)
            verdict = await request_verdict(self.calls, environment, row, response, scope, self.settings)
        except BaseException:
            if offers.get("supports_explicit_close"):
                await self.close_session(scope)
            raise
        return {**verdict, **attachments}

    async def respond(self, params: CreateParams, scope: Scope) -> Response:
        response, _ = await self._perform({PARAMS: params}, params, scope)
        return response

    async def _perform(self, row: JsonObject, params: CreateParams, scope: Scope) -> tuple[Response, JsonObject]:
        """Run the command; returns the response and the attachments of the record."""
        folder = await self._make_folder(scope)
        failed = True
        try:
            endpoint, result, shown = await self._command(row, params, scope, folder)
            attachments = self._attachments(shown, endpoint, scope.rollout_id)
            failure = failure_of(
                shown,
                endpoint,
                self.name,
                accepted=self.settings.accept_exit_codes,
                timeout_fails=self.settings.on_timeout == "fail",
                offers_tools=self.settings.offers_tools,
            )
            if failure is not None:
                self._keep_evidence(folder, shown, attachments)
                raise CallError(failure)
            failed = False
            return make_scored_response(params, endpoint, result, self._answer(folder, result)), attachments
        finally:
            await self._clean_up(folder, failed=failed)

    async def _command(
        self, row: JsonObject, params: CreateParams, scope: Scope, folder: RolloutFolder
    ) -> tuple[RolloutEndpoint, CommandResult, CommandResult]:
        """Run the command. Returns its endpoint, its result, and the result without secrets, for the record."""
        async with self.open_endpoint(params, scope) as (endpoint, address):
            spec = await asyncio.to_thread(self._spec, row, params, scope.rollout_id or "", folder, address)
            failure = find_unusable_text(spec, self.name)
            if failure is not None:
                raise CallError(failure)
            result = await self._runner(spec)
            return endpoint, result, hide_secrets(result, spec)

    def _spec(
        self, row: JsonObject, params: CreateParams, rollout_id: str, folder: RolloutFolder, address: RolloutAddress
    ) -> CommandSpec:
        settings, tools = self.settings, params.get("tools") or ()
        prompt = make_prompt(params)
        if settings.tools_in_prompt and tools:
            prompt += describe_tools(tools)
        values = make_placeholders(
            folder, address, prompt=prompt, model=settings.model_name, rollout_id=rollout_id, python=settings.python
        )
        folder.write(prompt, make_task(row, rollout_id, settings.task_fields), settings.files, values)
        extra = {**({"HOME": str(folder.home_dir)} if settings.own_home else {}), **settings.environment}
        variables = inherited_environ(settings.inherit_environment)
        variables |= make_variables(values, extra, has_tools=bool(tools), host=self.listener.host)
        if settings.tools_in_prompt:
            folder.write_tool_command(values["gymnast_python"])
            variables["PATH"] = f"{folder.bin_dir}{os.pathsep}{variables.get('PATH', os.defpath)}"
        by_stdin = {"stdin": folder.prompt_file} if settings.prompt_via == "stdin" else {}
        return CommandSpec(
            make_arguments(resolve_paths(settings), values, with_prompt=settings.prompt_via == "argument"),
            variables,
            folder.working_dir,
            mark=address.key,
            folders=(folder.root,),
            timeout_s=settings.timeout_s,
            max_output_bytes=settings.max_output_bytes,
            **by_stdin,
        )

    def _attachments(self, result: CommandResult, endpoint: RolloutEndpoint, rollout_id: str | None) -> JsonObject:
        return {
            "ng_model_call_capture": self.capture(endpoint, rollout_id),
            "ng_agent_observations": make_observations(result, endpoint, self.name, rollout_id),
        }

    def _answer(self, folder: RolloutFolder, result: CommandResult) -> str | None:
        if self.settings.answer_from == "last_message":
            return None
        return result.stdout if self.settings.answer_from == "stdout" else folder.answer(self.settings.max_output_bytes)

    async def _make_folder(self, scope: Scope) -> RolloutFolder:
        settings = self.settings
        return await asyncio.to_thread(
            make_rollout_folder, settings.scratch_dir, settings.working_dir, scope.rollout_id or "rollout"
        )

    # --- afterwards --------------------------------------------------------------------------------------------------

    def _keep_evidence(self, folder: RolloutFolder, result: CommandResult, attachments: Any) -> None:
        if self.settings.keep_working_dir == "never":
            return
        (folder.root / "stdout.txt").write_text(result.stdout)
        (folder.root / "stderr.txt").write_text(result.stderr)
        (folder.root / "trace.json").write_bytes(orjson.dumps(attachments))
        self.log.warning("kept the folder of a failed rollout: %s", folder.root)

    async def _clean_up(self, folder: RolloutFolder, *, failed: bool) -> None:
        keep = self.settings.keep_working_dir
        if keep == "never" or (keep == "on_failure" and not failed):
            await asyncio.to_thread(folder.remove)


def make_jail_runner(jail: CommandJail) -> CommandRunner:
    """A runner that runs commands locally, inside the sandbox."""

    async def run(spec: CommandSpec) -> CommandResult:
        argv = await asyncio.to_thread(jail.wrap, spec.argv, spec.cwd, spec.folders)
        return await run_locally(replace(spec, argv=argv))

    return run
