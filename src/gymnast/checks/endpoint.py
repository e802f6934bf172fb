"""`check endpoint`: finds out with a few tiny requests what a policy endpoint supports.

Answers and tool calls go through the model server that a run uses, so its conversion is tested too; other requests go
to the endpoint directly. The whole check uses a few hundred tokens.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gymnast.checks.endpoint_client import EndpointClient, EndpointReply, make_client
from gymnast.checks.endpoint_evidence import (
    calls_of,
    find_call_problem,
    find_control_token,
    find_logprob_problem,
    gist,
    has_output_tokens,
    has_reasoning,
    is_cut,
    names_differ,
    text_of,
)
from gymnast.checks.endpoint_probes import PROBES, TOOL
from gymnast.checks.endpoint_result import EndpointCheck, EndpointOptions, EndpointResult, Status
from gymnast.errors import CallError
from gymnast.runtime.cell import Cell, make_cell_options
from gymnast.runtime.loader import is_server_class, load_entry, settings_type
from gymnast.runtime.probe import CONTEXT_KEYS
from gymnast.types.failure import KINDS, FailureKind, Stage, bounded
from gymnast.wire.dialects.chat_chunks import BrokenStream, StreamedError, parse_completion_stream
from gymnast.wire.endpoint_errors import MEANINGS, Cause, Certainty
from gymnast.wire.message import error_text

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.config import Config, Environ, Instance
    from gymnast.types.failure import FailureDetail
    from gymnast.types.json import JsonObject
    from gymnast.wire.message import Reply


_PROMPT: Final = "Reply with the single word: ready"
_TRAINING: Final = "return_token_id_information"
_HUGE: Final = 1_000_000_000
_ROOM_TO_THINK: Final = 1024
"""Output tokens of a second try, for models that think before they answer."""
_GENERAL_KINDS: Final = frozenset(
    {
        *(FailureKind.MODEL_QUOTA, FailureKind.MODEL_AUTH, FailureKind.MODEL_NOT_FOUND),
        *(FailureKind.MODEL_RATE_LIMITED, FailureKind.MODEL_OVERLOADED, FailureKind.MODEL_UNREACHABLE),
    }
)
"""Failures that say nothing about the feature that a request tests."""
_HARMLESS_WITHOUT_MODELS: Final = frozenset({Cause.NO_SUCH_PATH, Cause.SERVER_ERROR, Cause.UNRECOGNISED})
"""What GET /models may answer at an endpoint that works."""


async def check_endpoint(
    config: Config, environ: Environ, instance: Instance, options: EndpointOptions, log_dir: Path
) -> EndpointResult:
    """Run all checks, one after the other."""
    instance = _without_retries(instance, options.timeout_s)
    async with Cell([instance], make_cell_options(config, environ, log_dir=log_dir)) as cell:
        client = make_client(cell, instance, options.timeout_s)
        return await _EndpointChecker(cell, instance, client, options).run()


class _EndpointChecker:
    """Sends the requests in order, collects results and counts tokens."""

    def __init__(self, cell: Cell, instance: Instance, client: EndpointClient, options: EndpointOptions) -> None:
        self._cell, self._instance, self._client, self._options = cell, instance, client, options
        model = next((value for name, value in instance.settings.items() if name.endswith("model")), None)
        self.result = EndpointResult(instance.name, client.address, str(model or ""))
        self._models: JsonObject = {}
        self._answered_by = ""
        self._failed_cause: Cause | None = None

    async def run(self) -> EndpointResult:
        if await self._check_models():
            await self._check_answer()
            await self._check_tools("tools_auto", "auto")
            await self._check_tools("tools_forced", "required")
            await self._check_streaming()
            await self._check_logprobs()
            await self._check_token_ids()
            await self._check_context()
            for name in sorted(PROBES.keys() & self._options.needs):
                await self._check_on_request(name)
            self._note_other_model()
        else:
            self._add("answer", "fail", "not tested: the endpoint cannot be reached", "no rollout can run")
        needed = {"answer", *self._options.needs}
        self.result.checks = [replace(check, needed=check.name in needed) for check in self.result.checks]
        return self.result

    async def _check_models(self) -> bool:
        reply = await self._client.request("/models")
        models = [entry for entry in reply.json().get("data") or () if isinstance(entry, dict)]
        names = [str(entry.get("id")) for entry in models]
        name = self.result.model
        cause = reply.diagnose().cause if not reply.ok else None
        if reply.status is None and cause is not None:
            step = f"start the endpoint, or correct its URL (including /v1); {self._action(cause)}"
            self._add("models", "fail", reply.describe(), self._reason(cause), step, reply)
            return False
        if cause is Cause.KEY_REFUSED:
            self._add("models", "fail", reply.describe(), "the API key is rejected", "check policy_api_key", reply)
        elif cause is not None and cause not in _HARMLESS_WITHOUT_MODELS:
            self._add("models", "fail", reply.describe(), self._reason(cause), self._action(cause), reply)
        elif not reply.ok or not models:
            means = "models cannot be listed; harmless if answers work"
            self._add("models", "unsupported", reply.describe(), means, "check that the URL ends in /v1", reply)
        elif name and name not in names:
            means = f"'{name}' is not among them; most endpoints then return 404"
            step = f"set policy_model_name to one of: {', '.join(names[:5])}"
            self._add("models", "fail", f"it serves {', '.join(names[:5])}", means, step, reply)
        else:
            self._models = next((entry for entry in models if entry.get("id") == name), models[0])
            self._add("models", "pass", f"it serves {', '.join(names[:5])}", took=reply)
        return True

    async def _check_answer(self) -> None:
        outcome = await self._respond_fully(_question(), 16)
        if isinstance(outcome, EndpointCheck):
            self.result.checks.append(replace(outcome, name="answer"))
            return
        response, seconds = outcome
        self._judge_answer(response, seconds)
        usage = response.get("usage") or {}
        if usage.get("total_tokens"):
            observed = f"{usage.get('input_tokens')} in, {usage.get('output_tokens')} out"
            self._add("usage", "pass", observed)
        else:
            means = "tokens and cost of rollouts are unknown; token budgets cannot be enforced"
            self._add("usage", "unsupported", "the reply has no usage", means, "use an endpoint that reports usage")
        self._add("latency", "pass", f"{seconds:.2f} s for {usage.get('output_tokens') or 'a few'} tokens")

    def _judge_answer(self, response: JsonObject, seconds: float) -> None:
        control = find_control_token(response)
        if text_of(response) or (is_cut(response) and has_reasoning(response)):
            means = f"the control token {control} is in the text: the chat template does not fit" if control else ""
            self._add("answer", "pass", gist(response), means, took=seconds)
            return
        means = "every rollout would be scored on an empty answer"
        step = "check the chat template and the reasoning parser of the server; send the same prompt with curl"
        self._add("answer", "fail", gist(response), means, step, seconds)

    async def _check_tools(self, name: str, choice: str) -> None:
        question = "Look up the city of Oslo with the tool."
        outcome = await self._ask_with_tool(question, choice)
        if isinstance(outcome, EndpointCheck):
            step = "start vLLM with --enable-auto-tool-choice --tool-call-parser …; run `gymnast check tools DATA`"
            means = "rows with tools fail" if choice == "auto" else "rows that require a call fail; others do not"
            self._add_failed(outcome, name, means, step)
            return
        response, seconds = outcome
        calls, problem = calls_of(response), find_call_problem(response, TOOL)
        if problem is not None:
            means = "agents see no valid tool call, so every such rollout fails without an error"
            step = "set the tool-call parser that fits the model (vLLM, SGLang: --tool-call-parser; llama.cpp: --jinja)"
            self._add(name, "fail", f"{problem}; it {gist(response)}" if not calls else problem, means, step, seconds)
        elif calls:
            observed = f"called {calls[0].get('name')} with {bounded(str(calls[0].get('arguments')), 80)}"
            self._add(name, "pass", observed, took=seconds)
        elif choice == "auto":
            means = "the request is accepted, but the model did not call the tool: calls may or may not be parsed"
            step = "try a model that calls tools, or --require tools_forced; check the server's tool-call parser"
            self._add(name, "unsupported", f"no call, but {gist(response)}", means, step, seconds)
        else:
            means = "required calls are not enforced: such rows run, but the model may not call a tool"
            step = "keep tool_choice at auto, or use an inference server with constrained decoding"
            self._add(name, "unsupported", f"no call, but {gist(response)}", means, step, seconds)

    async def _ask_with_tool(self, question: str, choice: str) -> tuple[JsonObject, float] | EndpointCheck:
        body = {"input": [{"role": "user", "content": question}], "tools": [TOOL], "tool_choice": choice}
        return await self._respond_fully(body, 64)

    async def _check_on_request(self, name: str) -> None:
        """Checks that cost more, or that few runs need."""
        probe = PROBES[name]
        outcome = await self._respond_fully(probe.body, probe.limit)
        if isinstance(outcome, EndpointCheck):
            self._add_failed(outcome, name, probe.means, probe.next)
            return
        problem = probe.find_problem(outcome[0])
        if problem is None:
            self._add(name, "pass", probe.describe(outcome[0]), took=outcome[1])
        else:
            self._add(name, "unsupported", f"{problem}; it {gist(outcome[0])}", probe.means, probe.next, outcome[1])

    async def _check_streaming(self) -> None:
        reply = await self._chat(8, stream=True, stream_options={"include_usage": True})
        if not reply.ok or not reply.content_type.startswith("text/event-stream"):
            means, step = "the time to first token is unknown", "none: runs stream only if measure_ttft is set"
            self._add("streaming", _status(reply), reply.describe(), means, step, reply)
            return
        try:
            completion, _ = parse_completion_stream(reply.body)
        except (BrokenStream, StreamedError) as error:
            means, step = "rollouts fail if measure_ttft is set", "leave measure_ttft off"
            self._add("streaming", "fail", str(error), means, step, reply)
            return
        self._count(completion.get("usage"))
        message = completion["choices"][0]["message"]
        if not any(message.get(name) for name in ("content", "reasoning_content", "reasoning", "tool_calls")):
            means, step = "the stream has no text: a proxy drops it, or the server streams another way", "leave it off"
            self._add("streaming", "fail", "a complete stream without any text", means, step, reply)
            return
        first_ms = reply.first_byte_ms
        observed = f"first part after {first_ms:.0f} ms" if first_ms is not None else "a complete stream"
        self._add("streaming", "pass", observed, took=reply)

    async def _check_logprobs(self) -> None:
        reply = await self._chat(4, logprobs=True, top_logprobs=1)
        count, problem = find_logprob_problem(reply.json())
        if reply.ok and problem is None:
            self._add("logprobs", "pass", f"{count} tokens with logprobs", took=reply)
            return
        observed = problem if reply.ok and problem is not None else reply.describe()
        means, step = "responses have no log probabilities", "for training use token_ids, which include logprobs"
        self._add("logprobs", "unsupported" if reply.ok else _status(reply), observed, means, step, reply)

    async def _check_token_ids(self) -> None:
        """Uses training mode as a run would: the model server rejects replies without token ids."""
        means = "return_token_id_information does not work: rollouts cannot be used for training"
        step = "use vLLM with return_token_ids (0.10 or later) or embedded_model"
        if not _has_setting(self._instance, _TRAINING):
            self._add("token_ids", "unsupported", f"{self._instance.implementation} has no '{_TRAINING}'", means, step)
            return
        outcome = await self._respond({**_question(), "max_output_tokens": 4}, in_training=True)
        if isinstance(outcome, EndpointCheck):
            check = replace(outcome, name="token_ids", status="unsupported", means=means, next=step)
            self.result.checks.append(check)
            return
        response, seconds = outcome
        items = [item for item in response.get("output") or () if item.get("generation_token_ids")]
        if not items:
            self._add("token_ids", "unsupported", "the reply has none", means, step, seconds)
            return
        sampled, prompt = items[-1]["generation_token_ids"], items[-1].get("prompt_token_ids") or ()
        if len(items[-1].get("generation_log_probs") or ()) != len(sampled) or not prompt:
            observed = f"{len(sampled)} sampled, but without a logprob for each, or without the prompt"
            self._add("token_ids", "unsupported", observed, means, step, seconds)
            return
        observed = f"{len(sampled)} sampled with logprobs, {len(prompt)} in the prompt"
        self._add("token_ids", "pass", observed, took=seconds)

    async def _check_context(self) -> None:
        known = next((self._models[key] for key in CONTEXT_KEYS if isinstance(self._models.get(key), int)), None)
        if known is not None:
            self._add("context", "pass", f"{known} tokens, according to /models")
            return
        if not self._options.probe_context:
            means = "the context length is unknown until a prompt exceeds it"
            step = "--probe-context finds it with an oversized request"
            self._add("context", "unsupported", "/models does not report it", means, step)
            return
        reply = await self._chat(_HUGE, stop=["r", "R", " ", "\n", "e", "a"])
        size = reply.diagnose().max_tokens if not reply.ok else None
        if size is not None:
            self._add("context", "pass", f"{size} tokens, according to its error", took=reply)
        else:
            means, step = "the endpoint does not report it", "look it up in the model's documentation"
            self._add("context", "unsupported", reply.describe(), means, step, reply)

    def _add_failed(self, check: EndpointCheck, name: str, means: str, step: str) -> None:
        """Add a failed request: it is about the tested feature, unless the endpoint names a reason of another sort."""
        is_general = self._failed_cause is not None and MEANINGS[self._failed_cause].kind in _GENERAL_KINDS
        self.result.checks.append(
            replace(check, name=name) if is_general else replace(check, name=name, means=means, next=step)
        )

    def _note_other_model(self) -> None:
        """Note a gateway that answers with another model: the endpoint works, but its user should know."""
        if not names_differ(self.result.model, self._answered_by):
            return
        means = f"the endpoint says that '{self._answered_by}' answered: a gateway may route to another model"
        self.result.checks = [
            replace(check, means=means) if check.name == "answer" and not check.means else check
            for check in self.result.checks
        ]

    def _reason(self, cause: Cause) -> str:
        return MEANINGS[cause].reason.replace("{endpoint}", self._client.address)

    def _action(self, cause: Cause) -> str:
        return MEANINGS[cause].action.replace("{endpoint}", self._client.address)

    async def _respond_fully(self, body: JsonObject, limit: int) -> tuple[JsonObject, float] | EndpointCheck:
        """Send a request with a small output limit; if nothing came before the limit, again with room to think."""
        outcome = await self._respond({**body, "max_output_tokens": limit})
        if isinstance(outcome, EndpointCheck) or not is_cut(outcome[0]):
            return outcome
        if text_of(outcome[0]) or calls_of(outcome[0]) or not has_output_tokens(outcome[0]):
            return outcome
        return await self._respond({**body, "max_output_tokens": _ROOM_TO_THINK})

    async def _respond(
        self, body: JsonObject, *, in_training: bool = False
    ) -> tuple[JsonObject, float] | EndpointCheck:
        """Send a request through the model server, as a run does; a failure becomes a failed check."""
        started = time.perf_counter()
        try:
            if in_training:
                training = replace(self._instance, settings={**self._instance.settings, _TRAINING: True})
                async with Cell([training], replace(self._cell.options, log_dir=None)) as cell:
                    reply = await self._call(cell, body)
            else:
                reply = await self._call(self._cell, body)
        except CallError as error:
            return self._failed_check(error.detail, error.detail.message)
        if not reply.ok:
            return self._failed_check(reply.failure, error_text(reply), reply.status)
        response: JsonObject = reply.body if isinstance(reply.body, dict) else {}
        self._count(response.get("usage"))
        return response, time.perf_counter() - started

    async def _call(self, cell: Cell, body: JsonObject) -> Reply:
        return await cell.calls.call(
            self._instance.name, "/v1/responses", body, stage=Stage.MODEL, timeout_s=self._options.timeout_s
        )

    async def _chat(self, max_tokens: int, **options: Any) -> EndpointReply:
        body = {"messages": [{"role": "user", "content": _PROMPT}], "max_tokens": max_tokens, **options}
        if self.result.model:
            body["model"] = self.result.model
        reply = await self._client.request("/chat/completions", body)
        answer = reply.json()
        self._count(answer.get("usage"))
        if reply.ok and isinstance(answer.get("model"), str):
            self._answered_by = answer["model"]
        return reply

    def _failed_check(self, detail: FailureDetail | None, observed: str, status: int | None = None) -> EndpointCheck:
        """A failed check: with what the endpoint's message means, if it is known."""
        self._failed_cause = None
        kind = detail.kind if detail is not None else FailureKind.MODEL_ERROR
        status = detail.status if detail is not None and detail.status is not None else status
        outcome: Status = "unsupported" if status in {400, 404, 405, 422, 501} else "fail"
        if detail is None or detail.cause is None or detail.certainty == Certainty.STATUS:
            return EndpointCheck("", outcome, bounded(observed, 300), f"{kind}: no rollout can run", KINDS[kind].hint)
        cause = self._failed_cause = Cause(detail.cause)
        return EndpointCheck("", outcome, bounded(observed, 300), self._reason(cause), self._action(cause))

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict) and isinstance(usage.get("total_tokens"), int):
            self.result.tokens_used += usage["total_tokens"]

    def _add(
        self,
        name: str,
        status: Status,
        observed: str,
        means: str = "",
        step: str = "",
        took: EndpointReply | float | None = None,
    ) -> None:
        seconds = took.seconds if isinstance(took, EndpointReply) else took
        rounded = None if seconds is None else round(seconds, 4)
        self.result.checks.append(EndpointCheck(name, status, observed, means, step, rounded))


def _question() -> JsonObject:
    return {"input": [{"role": "user", "content": _PROMPT}]}


def _has_setting(instance: Instance, setting: str) -> bool:
    entry = load_entry(instance) if instance.url is None and instance.directory is not None else None
    return entry is not None and is_server_class(entry) and setting in settings_type(entry).model_fields


def _status(reply: EndpointReply) -> Status:
    return "unsupported" if reply.ok or reply.is_refusal else "fail"


def _without_retries(instance: Instance, timeout_s: float) -> Instance:
    """The instance without retries, so that a check sees the first reply."""
    settings = {"max_attempts": 1, "timeout_s": timeout_s}
    known = {name: value for name, value in settings.items() if _has_setting(instance, name)}
    return replace(instance, settings={**instance.settings, **known})
