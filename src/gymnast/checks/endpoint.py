"""`check endpoint`: what a policy endpoint can do, asked with a handful of tiny requests.

Answers and tool calls go through the model server of a run, so that its conversion is tested too; the rest is asked of
the endpoint directly. All of it together uses a few hundred tokens.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gymnast.checks.endpoint_line import Answer, Line, line_to
from gymnast.checks.endpoint_report import Check, EndpointOptions, EndpointReport, Status
from gymnast.errors import CallError
from gymnast.runtime.cell import Cell, options_from
from gymnast.runtime.loader import is_server_class, load_entry, settings_type
from gymnast.types.failure import KINDS, Stage, bounded
from gymnast.wire.dialects.chat_chunks import BrokenStream, StreamedError, completion_of_stream
from gymnast.wire.message import error_text

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.config import Config, Environ, Instance
    from gymnast.types.json import JsonObject
    from gymnast.wire.message import Reply

_PROMPT: Final = "Reply with the single word: ready"
_TOOL: Final[JsonObject] = {
    "type": "function",
    "name": "look_up_city",
    "description": "Looks up a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": False,
}
_CONTEXT_KEYS: Final = ("max_model_len", "context_length", "context_window", "max_context_length", "n_ctx")
_TOLD_CONTEXT: Final = re.compile(r"context (?:length|window)[^0-9]{0,40}(\d{3,})")
_TRAINING: Final = "return_token_id_information"
_HUGE: Final = 1_000_000_000


async def check_endpoint(
    config: Config, environ: Environ, instance: Instance, options: EndpointOptions, log_dir: Path
) -> EndpointReport:
    """Ask everything, one after the other."""
    tuned = _tuned(instance, options.timeout_s)
    async with Cell([tuned], options_from(config, environ, log_dir=log_dir)) as cell:
        line = line_to(cell, tuned, options.timeout_s)
        asking = _Asking(cell, tuned, line, options)
        return await asking.run()


class _Asking:
    """The requests, in order, and what they used."""

    def __init__(self, cell: Cell, instance: Instance, line: Line, options: EndpointOptions) -> None:
        self._cell, self._instance, self._line, self._options = cell, instance, line, options
        model = next((value for name, value in instance.settings.items() if name.endswith("model")), None)
        self.report = EndpointReport(instance.name, line.address, str(model or ""))
        self._models: JsonObject = {}

    async def run(self) -> EndpointReport:
        reached = await self._ask_models()
        if reached:
            await self._ask_answer()
            await self._ask_tools("tools_auto", "auto")
            await self._ask_tools("tools_forced", "required")
            await self._ask_streaming()
            await self._ask_logprobs()
            await self._ask_token_ids()
            await self._ask_context()
        else:
            self._add("answer", "fail", "not asked: nobody answers there", "no rollout can be made")
        needed = {"answer", *self._options.needs}
        self.report.checks = [replace(check, needed=check.name in needed) for check in self.report.checks]
        return self.report

    async def _ask_models(self) -> bool:
        found = await self._line.ask("/models")
        listed = [entry for entry in found.json().get("data") or () if isinstance(entry, dict)]
        names = [str(entry.get("id")) for entry in listed]
        wanted = self.report.model
        if found.status is None:
            step = "start the endpoint, or correct its URL (with its /v1)"
            self._add("models", "fail", found.told(), "the endpoint cannot be reached", step, found)
            return False
        if found.status in {401, 403}:
            self._add("models", "fail", found.told(), "the key is refused", "check policy_api_key", found)
        elif not found.ok or not listed:
            means = "models cannot be listed; harmless if answers come"
            self._add("models", "unsupported", found.told(), means, "check that the URL ends in /v1", found)
        elif wanted and wanted not in names:
            means = f"'{wanted}' is not among them: most endpoints then answer 404"
            step = f"set policy_model_name to one of: {', '.join(names[:5])}"
            self._add("models", "fail", f"it serves {', '.join(names[:5])}", means, step, found)
        else:
            self._models = next((entry for entry in listed if entry.get("id") == wanted), listed[0])
            self._add("models", "pass", f"it serves {', '.join(names[:5])}", took=found)
        return True

    async def _ask_answer(self) -> None:
        found = await self._respond({**_question(), "max_output_tokens": 16})
        if isinstance(found, Check):
            self.report.checks.append(replace(found, name="answer"))
            return
        response, seconds = found
        self._add("answer", "pass", _gist(response), took=seconds)
        usage = response.get("usage") or {}
        if usage.get("total_tokens"):
            said = f"{usage.get('input_tokens')} in, {usage.get('output_tokens')} out"
            self._add("usage", "pass", said)
        else:
            means = "tokens and cost of rollouts are not known; budgets in tokens cannot hold"
            self._add("usage", "unsupported", "the reply has no usage", means, "use an endpoint that reports usage")
        self._add("latency", "pass", f"{seconds:.2f} s for {usage.get('output_tokens') or 'a few'} tokens")

    async def _ask_tools(self, name: str, choice: str) -> None:
        body = {
            "input": [{"role": "user", "content": "Look up the city of Oslo with the tool."}],
            "tools": [_TOOL],
            "tool_choice": choice,
            "max_output_tokens": 64,
        }
        found = await self._respond(body)
        if isinstance(found, Check):
            step = (
                "start vLLM with --enable-auto-tool-choice --tool-call-parser …; gymnast check tools DATA for schemas"
            )
            status: Status = "unsupported" if found.status == "unsupported" else "fail"
            means = "rows with tools fail" if choice == "auto" else "rows that require a call fail; others do not"
            self.report.checks.append(replace(found, name=name, status=status, means=means, next=step))
            return
        response, seconds = found
        calls = [item for item in response.get("output") or () if item.get("type") == "function_call"]
        if calls:
            said = f"called {calls[0].get('name')} with {bounded(str(calls[0].get('arguments')), 80)}"
            self._add(name, "pass", said, took=seconds)
        elif choice == "auto":
            means = "the request is taken; this model chose words, or its call was not recognised"
            step = "if it should call tools, check the engine's tool-call parser"
            self._add(name, "pass", f"no call, but {_gist(response)}", means, step, seconds)
        else:
            means = "a required call is not enforced: such rows are taken, but nothing is guaranteed"
            step = "leave tool_choice at auto, or use an engine with constrained decoding"
            self._add(name, "unsupported", f"no call, but {_gist(response)}", means, step, seconds)

    async def _ask_streaming(self) -> None:
        found = await self._chat(8, stream=True, stream_options={"include_usage": True})
        step = "nothing: runs only stream where measure_ttft is set"
        if not found.ok or not found.content_type.startswith("text/event-stream"):
            self._add(
                "streaming", _status(found), found.told(), "the time to the first token is not known", step, found
            )
            return
        try:
            completion, _ = completion_of_stream(found.body)
        except (BrokenStream, StreamedError) as error:
            self._add(
                "streaming", "fail", str(error), "measure_ttft would fail rollouts", "leave measure_ttft off", found
            )
            return
        self._count(completion.get("usage"))
        first = f"first part after {found.first_ms:.0f} ms" if found.first_ms is not None else "a whole stream"
        self._add("streaming", "pass", first, took=found)

    async def _ask_logprobs(self) -> None:
        found = await self._chat(4, logprobs=True, top_logprobs=1)
        choices = found.json().get("choices") or [{}]
        entries = (choices[0].get("logprobs") or {}).get("content") if isinstance(choices[0], dict) else None
        if found.ok and entries:
            self._add("logprobs", "pass", f"{len(entries)} tokens with logprobs", took=found)
            return
        said = "the reply has none" if found.ok else found.told()
        means, step = (
            "replies cannot be weighed by their probability",
            "training needs token_ids, which bring their own",
        )
        self._add("logprobs", "unsupported" if found.ok else _status(found), said, means, step, found)

    async def _ask_token_ids(self) -> None:
        """In training mode, as a run would: the server refuses what has no ids."""
        means = "return_token_id_information cannot work: no rollouts for training"
        step = "use vLLM with return_token_ids (0.10 or later) or embedded_model"
        if not _knows(self._instance, _TRAINING):
            self._add("token_ids", "unsupported", f"{self._instance.implementation} has no '{_TRAINING}'", means, step)
            return
        found = await self._respond({**_question(), "max_output_tokens": 4}, in_training=True)
        if isinstance(found, Check):
            said = replace(found, name="token_ids", status="unsupported", means=means, next=step)
            self.report.checks.append(said)
            return
        response, seconds = found
        items = [item for item in response.get("output") or () if item.get("generation_token_ids")]
        if not items:
            self._add("token_ids", "unsupported", "the reply has none", means, step, seconds)
            return
        sampled, prompt = items[-1]["generation_token_ids"], items[-1].get("prompt_token_ids") or ()
        said_ids = f"{len(sampled)} sampled with logprobs, {len(prompt)} of the prompt"
        self._add("token_ids", "pass", said_ids, took=seconds)

    async def _ask_context(self) -> None:
        known = next((self._models[key] for key in _CONTEXT_KEYS if isinstance(self._models.get(key), int)), None)
        if known is not None:
            self._add("context", "pass", f"{known} tokens, says /models")
            return
        if not self._options.probe_context:
            means = "how long prompts may be is not known before they fail"
            self._add(
                "context", "unsupported", "/models does not say", means, "--probe-context asks for too much on purpose"
            )
            return
        found = await self._chat(_HUGE, stop=["r", "R", " ", "\n", "e", "a"])
        told = _TOLD_CONTEXT.search(found.body.decode(errors="replace"))
        if told is not None:
            self._add("context", "pass", f"{told[1]} tokens, says its refusal", took=found)
        else:
            self._add("context", "unsupported", found.told(), "the endpoint does not tell", "look it up", found)

    async def _respond(self, body: JsonObject, *, in_training: bool = False) -> tuple[JsonObject, float] | Check:
        """A request as a run makes it, through the model server; a failure as a check that fails."""
        started = time.perf_counter()
        try:
            if in_training:
                other = replace(self._instance, settings={**self._instance.settings, _TRAINING: True})
                async with Cell([other], replace(self._cell.options, log_dir=None)) as cell:
                    reply = await self._call(cell, body)
            else:
                reply = await self._call(self._cell, body)
        except CallError as error:
            return _failed(error.detail.kind, error.detail.message, None)
        if not reply.ok:
            status = reply.failure.status if reply.failure is not None and reply.failure.status else reply.status
            kind = reply.failure.kind if reply.failure is not None else "model_error"
            return _failed(kind, error_text(reply), status)
        response: JsonObject = reply.body if isinstance(reply.body, dict) else {}
        self._count(response.get("usage"))
        return response, time.perf_counter() - started

    async def _call(self, cell: Cell, body: JsonObject) -> Reply:
        return await cell.calls.call(
            self._instance.name, "/v1/responses", body, stage=Stage.MODEL, timeout_s=self._options.timeout_s
        )

    async def _chat(self, max_tokens: int, **more: Any) -> Answer:
        body = {"messages": [{"role": "user", "content": _PROMPT}], "max_tokens": max_tokens, **more}
        if self.report.model:
            body["model"] = self.report.model
        found = await self._line.ask("/chat/completions", body)
        self._count(found.json().get("usage"))
        return found

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict) and isinstance(usage.get("total_tokens"), int):
            self.report.tokens_used += usage["total_tokens"]

    def _add(
        self, name: str, status: Status, said: str, means: str = "", step: str = "", took: Answer | float | None = None
    ) -> None:
        seconds = took.seconds if isinstance(took, Answer) else took
        rounded = None if seconds is None else round(seconds, 4)
        self.report.checks.append(Check(name, status, said, means, step, rounded))


def _failed(kind: str, said: str, status: int | None) -> Check:
    known = KINDS.get(kind)
    refused: Status = "unsupported" if status in {400, 404, 405, 422, 501} else "fail"
    hint = known.hint if known is not None else "read the endpoint's log"
    return Check("", refused, bounded(said, 300), f"{kind}: no rollout can be made", hint)


def _question() -> JsonObject:
    return {"input": [{"role": "user", "content": _PROMPT}]}


def _knows(instance: Instance, setting: str) -> bool:
    entry = load_entry(instance) if instance.url is None and instance.directory is not None else None
    return entry is not None and is_server_class(entry) and setting in settings_type(entry).model_fields


def _status(found: Answer) -> Status:
    return "unsupported" if found.ok or found.is_refusal else "fail"


def _gist(response: JsonObject) -> str:
    texts = [
        part.get("text") or ""
        for item in response.get("output") or ()
        if item.get("type") == "message"
        for part in item.get("content") or ()
    ]
    text = " ".join("".join(texts).split())
    return f"answered {bounded(text, 60)!r}" if text else f"answered nothing ({response.get('status')})"


def _tuned(instance: Instance, timeout_s: float) -> Instance:
    """The instance, told not to try again: a check wants to see the first answer."""
    wanted = {"max_attempts": 1, "timeout_s": timeout_s}
    more = {name: value for name, value in wanted.items() if _knows(instance, name)}
    return replace(instance, settings={**instance.settings, **more})
