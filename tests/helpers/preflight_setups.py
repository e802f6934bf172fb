"""Setups for the preflight of a collection: faulty ones with what must be reported, and healthy but odd ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.doctor.lab import RIGHT, WRONG, Answer, Policy, error, said

ROWS: Final = 40
TOOL: Final = {"type": "function", "name": "look", "description": "", "strict": False, "parameters": {"type": "object"}}
SAME: Final = said("[[A=B]]")


def listing(name: str = "lab", **fields: Any) -> Answer:
    """The reply to GET /models."""
    return Answer(json.dumps({"object": "list", "data": [{"id": name, **fields}]}).encode())


def always(answer: Answer) -> Policy:
    return lambda _, __: answer


def after(number: int, first: Answer, then: Answer = RIGHT) -> Policy:
    """Replies to the first requests in one way, and to later ones in another."""
    return lambda count, _: first if count < number else then


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A run: its policy, rows and options."""

    policy: Policy = lambda _, __: RIGHT
    models: Answer | None = None
    judge: Policy | None = None
    """With one, the environment is equivalence_llm_judge."""
    judge_models: Answer | None = None
    environment: str = "mcqa"
    model_type: str = "vllm_model"
    rows: dict[str, Any] = field(default_factory=dict)
    vary: Callable[[int], dict[str, Any]] = lambda _: {}
    """Fields of each row by its number; `params` are added to its request."""
    url: Callable[[str], str] = lambda url: url
    more: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Faulty(Setup):
    """A run that must end before much is spent, with a message that matches `says`."""

    says: str
    max_answers: int = 1
    """How many good replies of the policy may be used."""
    max_attempts: int = 6


@dataclass(frozen=True, kw_only=True)
class Healthy(Setup):
    """A run that must be completed."""

    missing: int = 0
    """Rollouts that fail for reasons of their own."""
    warns: str | None = None
    judge_failures: int = 0
    """Rollouts that are repeated because their judge failed."""


def openai_error(status: int, message: str, kind: str, code: str | None = None) -> Answer:
    return error(status, {"error": {"message": message, "type": kind, "param": None, "code": code}})


def vllm_error(status: int, message: str, kind: str = "BadRequestError") -> Answer:
    return error(status, {"object": "error", "message": message, "type": kind, "param": None, "code": status})


NO_KEY: Final = openai_error(401, "Incorrect API key provided: sk-1. You can find it in…", "invalid_request_error")
NO_MODEL: Final = vllm_error(404, "The model `lab` does not exist.", "NotFoundError")
NO_QUOTA: Final = openai_error(
    429, "You exceeded your current quota, please check your plan and billing details.", "insufficient_quota"
)
NO_TOOLS: Final = vllm_error(
    400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
)
OVERFLOW: Final = vllm_error(
    400,
    "This model's maximum context length is 64 tokens. However, you requested 3000 tokens in the messages, "
    "Please reduce the length of the messages.",
)
LONG_ROWS: Final = {"responses_create_params": {"input": [{"role": "user", "content": "many words " * 900}]}}


def refuse_tools(_: int, body: dict[str, Any]) -> Answer:
    return NO_TOOLS if body.get("tools") else RIGHT


def refuse_large_output(_: int, body: dict[str, Any]) -> Answer:
    asked = body.get("max_tokens") or body.get("max_completion_tokens") or 0
    text = f"max_tokens={asked} cannot be greater than max_model_len=512. Please request fewer output tokens."
    return vllm_error(400, text) if asked > 512 else RIGHT


def refuse_temperature(_: int, body: dict[str, Any]) -> Answer:
    text = "Unsupported parameter: 'temperature' is not supported with this model."
    return openai_error(400, text, "invalid_request_error") if "temperature" in body else RIGHT


def refuse_small_output(_: int, body: dict[str, Any]) -> Answer:
    asked = body.get("max_tokens") or body.get("max_completion_tokens") or 999
    text = "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 32"
    return openai_error(400, text, "invalid_request_error") if asked < 32 else SAME


FAULTY: Final[dict[str, Faulty]] = {
    "key refused for completions only": Faulty(policy=always(NO_KEY), says="key"),
    "key of another provider": Faulty(
        policy=always(error(401, {"type": "error", "error": {"type": "authentication_error", "message": "x-api-key"}})),
        says="key",
    ),
    "model unknown": Faulty(policy=always(NO_MODEL), models=listing("other"), says="does not exist|model"),
    "model unknown, nothing listed": Faulty(policy=always(NO_MODEL), models=error(404), says="does not exist|model"),
    "model not pulled": Faulty(
        policy=always(error(404, {"error": {"message": "model 'lab' not found, try pulling it first"}})), says="model"
    ),
    "no access to the model": Faulty(
        policy=always(
            openai_error(403, "Project `p` does not have access to model `lab`", "invalid_request_error", "model_x")
        ),
        says="access",
    ),
    "quota used up": Faulty(policy=always(NO_QUOTA), says="quota"),
    "credits used up": Faulty(
        policy=always(error(402, {"error": {"message": "Insufficient credits.", "code": 402}})), says="credits"
    ),
    "credits used up, told with status 200": Faulty(
        policy=always(error(200, {"error": {"message": "Insufficient credits", "code": 402}})), says="credits"
    ),
    "URL without /v1": Faulty(url=lambda url: url.removesuffix("/v1"), says="/v1"),
    "URL with /v1 twice": Faulty(url=lambda url: f"{url}/v1", says="/v1"),
    "URL of a web page": Faulty(policy=always(Answer(b"<!doctype html><html>hello</html>")), says="web page|html"),
    "completions redirected": Faulty(
        policy=always(error(301, b"", location="https://127.0.0.1:9/v1/chat/completions")), says="redirect"
    ),
    "https to a plain port": Faulty(url=lambda url: url.replace("http:", "https:"), says="TLS|https"),
    "tools not enabled": Faulty(policy=refuse_tools, rows={"tools": [TOOL]}, says="tool"),
    "tools unknown to the model": Faulty(
        policy=always(
            error(400, {"error": {"message": "registry.ollama.ai/library/lab:latest does not support tools"}})
        ),
        rows={"tools": [TOOL]},
        says="tools",
    ),
    "every row exceeds the context": Faulty(
        policy=always(OVERFLOW), models=listing(max_model_len=64), rows=LONG_ROWS, says="context"
    ),
    "every row exceeds the context after one answer in time": Faulty(
        policy=always(OVERFLOW), models=listing(context_length=64), rows=LONG_ROWS, says="context"
    ),
    "output larger than the context": Faulty(
        policy=refuse_large_output, more=("--max-output-tokens", "9000"), says="max_model_len|max_output_tokens"
    ),
    "parameter refused": Faulty(policy=refuse_temperature, more=("--temperature", "0.5"), says="temperature"),
    "no chat template": Faulty(
        policy=always(
            vllm_error(
                400,
                "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat "
                "template if the tokenizer does not define one.",
            )
        ),
        says="template",
    ),
    "a model that cannot chat": Faulty(
        policy=always(vllm_error(400, "The model does not support Chat Completions API")), says="[Cc]hat"
    ),
    "no Responses API": Faulty(policy=always(error(404)), model_type="openai_model", says="/responses|Responses"),
    "not the Messages API": Faulty(
        policy=always(error(404)), model_type="anthropic_model", says="messages|Messages|URL"
    ),
    "judge: model unknown": Faulty(judge=always(NO_MODEL), judge_models=listing("other"), says="judge"),
    "judge: model unknown, nothing listed": Faulty(judge=always(NO_MODEL), judge_models=error(404), says="judge"),
    "judge: quota used up": Faulty(judge=always(NO_QUOTA), says="judge.*(quota|credit)|quota.*judge"),
    "judge: key refused for completions only": Faulty(judge=always(NO_KEY), says="judge"),
    "judge: URL of a web page": Faulty(judge=always(Answer(b"<html>hi</html>")), says="judge"),
}


def image_row(number: int) -> dict[str, Any]:
    picture = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 20_000, "detail": "auto"}
    content = [{"type": "input_text", "text": f"What is this? {number}"}, picture]
    return {"params": {"input": [{"role": "user", "content": content}]}}


def refuse_images(_: int, body: dict[str, Any]) -> Answer:
    text = "lab is not a multimodal model"
    return vllm_error(400, text) if "image_url" in json.dumps(body["messages"]) else RIGHT


def refuse_other_models(_: int, body: dict[str, Any]) -> Answer:
    return RIGHT if body["model"] == "lab" else NO_MODEL


HEALTHY: Final[dict[str, Healthy]] = {
    "right answers": Healthy(),
    "wrong answers": Healthy(policy=always(WRONG)),
    "no list of models": Healthy(models=error(404)),
    "a list that the key may not read": Healthy(
        models=openai_error(
            403,
            "You have insufficient permissions for this operation. Missing scopes: api.model.read.",
            "invalid_request_error",
        )
    ),
    "a list that is not implemented": Healthy(models=error(501, b"not implemented")),
    "a list that is refused": Healthy(models=error(400, {"error": "bad request"})),
    "a list with a rate limit": Healthy(models=openai_error(429, "Rate limit reached, try again in 20 s", "requests")),
    "an empty list": Healthy(models=Answer(b'{"object": "list", "data": []}')),
    "a list of another form": Healthy(models=Answer(b'["lab"]')),
    "a list that is a page": Healthy(models=Answer(b"<html>hello</html>")),
    "a model that is not listed": Healthy(models=listing("other")),
    "a rate limit at first": Healthy(policy=after(2, openai_error(429, "Rate limit reached", "requests"))),
    "overloaded at first": Healthy(policy=after(3, error(503, {"error": "overloaded"}))),
    "loading at first": Healthy(policy=after(3, error(503, {"error": {"message": "Loading model", "code": 503}}))),
    "an error at first": Healthy(policy=after(1, error(500, {"error": "CUDA error"}))),
    "a key refused once": Healthy(policy=after(1, NO_KEY), missing=1),
    "a model that is unknown twice": Healthy(policy=after(2, NO_MODEL), missing=2),
    "an answer cut off": Healthy(policy=always(said("", finish="length"))),
    "an empty answer": Healthy(policy=always(said(""))),
    "no usage": Healthy(policy=always(said("It is \\boxed{A}", usage=False))),
    "a slow first answer": Healthy(policy=after(1, said("It is \\boxed{A}", delay_s=3.0))),
    "filtered at first": Healthy(
        policy=after(2, openai_error(400, "The response was filtered", "content_filter", "content_filter")), missing=2
    ),
    "some rows with images that are refused": Healthy(
        policy=refuse_images, vary=lambda number: image_row(number) if number < 3 else {}, missing=3
    ),
    "large images and a small context": Healthy(models=listing(max_model_len=1024), vary=image_row),
    "a context that is listed wrongly": Healthy(models=listing(max_model_len=64), rows=LONG_ROWS),
    "first rows too long": Healthy(
        policy=lambda _, body: OVERFLOW if len(str(body)) > 2000 else RIGHT,
        models=listing(max_model_len=64),
        vary=lambda number: {"params": LONG_ROWS["responses_create_params"]} if number < 8 else {},
    ),
    "first rows with tools": Healthy(
        policy=refuse_tools, vary=lambda number: {"params": {"tools": [TOOL]}} if number < 3 else {}, missing=3
    ),
    "a model that calls no tools": Healthy(rows={"tools": [TOOL]}),
    "no tools supported and none used": Healthy(policy=refuse_tools),
    "a small budget of tokens": Healthy(more=("--max-tokens", "100000")),
    "workers": Healthy(more=("--workers", "2")),
    "no preflight": Healthy(more=("--no-preflight",)),
    "URL of the completions": Healthy(url=lambda url: f"{url}/chat/completions"),
    "URL with a slash at its end": Healthy(url=lambda url: f"{url}/"),
    "an endpoint that closes connections": Healthy(
        policy=always(Answer(RIGHT.body, headers=(("connection", "close"),)))
    ),
    "judge": Healthy(judge=always(SAME)),
    "judge: rate limit at first": Healthy(judge=after(2, openai_error(429, "Rate limit reached", "requests"), SAME)),
    "judge: overloaded at first": Healthy(judge=after(2, error(503, {"error": "overloaded"}), SAME)),
    "judge: refuses small answers": Healthy(judge=refuse_small_output),
    "judge: key refused once": Healthy(judge=after(1, NO_KEY, SAME), warns="judge", judge_failures=1),
    "judge: model not listed": Healthy(judge=always(SAME), judge_models=listing("other")),
    "judge: empty at first": Healthy(judge=after(1, said("", finish="length"), SAME)),
    "judge: slow at first": Healthy(judge=after(1, said("[[A=B]]", delay_s=6.0), SAME)),
    "judge: not used, and refuses": Healthy(
        environment="lab_with_judge", judge=always(NO_MODEL), judge_models=error(404), warns="judge"
    ),
}


def refuse_tools_as(answer: Answer) -> Policy:
    return lambda _, body: answer if body.get("tools") else RIGHT


def refuse_max_tokens(_: int, body: dict[str, Any]) -> Answer:
    text = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    refusal = openai_error(400, text, "invalid_request_error", "unsupported_parameter")
    return refusal if "max_tokens" in body else SAME


LATER_FAULTY: Final[dict[str, Faulty]] = {
    "bare unauthorized": Faulty(policy=always(error(401, {"error": "Unauthorized"})), says="key"),
    "unauthorized without a body": Faulty(policy=always(error(401)), says="key"),
    "invalid key with status 400": Faulty(
        policy=always(
            error(400, [{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}}])
        ),
        says="key",
    ),
    "deployment missing": Faulty(
        policy=always(
            error(
                404,
                {
                    "error": {
                        "code": "DeploymentNotFound",
                        "message": "The API deployment for this resource does not exist.",
                    }
                },
            )
        ),
        says="deployment|model",
    ),
    "no provider with tools": Faulty(
        policy=refuse_tools_as(
            error(404, {"error": {"message": "No endpoints found that support tool use.", "code": 404}})
        ),
        rows={"tools": [TOOL]},
        says="tool",
    ),
    "model decommissioned": Faulty(
        policy=always(
            openai_error(
                400,
                "The model `lab` has been decommissioned and is no longer supported.",
                "invalid_request_error",
                "model_decommissioned",
            )
        ),
        says="model",
    ),
    "gateway without the model": Faulty(
        policy=always(
            error(
                400,
                {"error": {"message": "/chat/completions: Invalid model name passed in model=lab. Call `/v1/models`"}},
            )
        ),
        says="model",
    ),
    "tools need a flag": Faulty(
        policy=refuse_tools_as(error(500, {"error": {"code": 500, "message": "tools param requires --jinja flag"}})),
        rows={"tools": [TOOL]},
        says="tool|jinja",
    ),
    "template missing": Faulty(
        policy=always(error(422, {"error": "Template error: template not found", "error_type": "template_error"})),
        says="template",
    ),
    "credit too low": Faulty(
        policy=always(
            error(
                400,
                {
                    "type": "error",
                    "error": {
                        "type": "invalid_request_error",
                        "message": "Your credit balance is too low to access the Anthropic API.",
                    },
                },
            )
        ),
        says="credit",
    ),
    "balance used up": Faulty(
        policy=always(error(402, {"error": {"message": "Insufficient Balance", "type": "unknown_error"}})),
        says="balance|credit|quota",
    ),
    "no access granted": Faulty(
        policy=always(error(403, {"message": "You don't have access to the model with the specified model ID."})),
        says="access",
    ),
    "sign-in page": Faulty(
        policy=always(error(302, b"", location="https://sso.example/cdn-cgi/access/login")), says="redirect"
    ),
    "static site": Faulty(policy=always(error(405, b"<html><h1>405 Not Allowed</h1><hr>nginx</html>")), says="URL|url"),
    "another API": Faulty(policy=always(error(200, {"models": []})), says="answer|format|reply", max_attempts=ROWS),
    "not a chat model": Faulty(
        policy=always(
            openai_error(
                404,
                "This is not a chat model and thus not supported in the v1/chat/completions endpoint.",
                "invalid_request_error",
            )
        ),
        says="chat",
    ),
    "subscription needed": Faulty(
        policy=always(error(403, {"error": "this model requires a subscription, upgrade for access"})),
        says="subscription",
    ),
    "max_tokens not supported": Faulty(
        policy=refuse_max_tokens, more=("--max-output-tokens", "100"), says="max_completion_tokens"
    ),
    "judge: credit too low": Faulty(
        judge=always(error(400, {"error": {"message": "Your credit balance is too low to access the API."}})),
        says="judge.*credit",
    ),
    "judge: bare not found": Faulty(judge=always(error(404, {"detail": "Not Found"})), says="judge"),
    "judge: bare unauthorized": Faulty(judge=always(error(401)), says="judge.*key"),
    "judge: no access": Faulty(
        judge=always(error(403, {"message": "You don't have access to the model with the specified model ID."})),
        says="judge.*access",
    ),
}
LATER_HEALTHY: Final[dict[str, Healthy]] = {
    "a rate limit inside a good status": Healthy(
        policy=after(1, error(200, {"error": {"message": "Rate limit exceeded", "code": 429}}))
    ),
    "a key that works after two rollouts": Healthy(policy=after(2, error(401, {"error": "Unauthorized"})), missing=2),
    "a gateway whose route appears late": Healthy(policy=after(2, error(404, {"detail": "Not Found"})), missing=2),
    "a gateway that is down at first": Healthy(policy=after(2, error(502, b"<html>502 Bad Gateway</html>"))),
    "a list that this key may not call": Healthy(
        models=error(403, {"error": {"message": "Virtual key is not allowed to call this route.", "code": "403"}})
    ),
    "a list that is gone": Healthy(models=error(410, b"")),
    "a list that must be asked otherwise": Healthy(models=error(422, {"detail": "field required"})),
    "a refusal": Healthy(policy=always(said("I cannot help with that."))),
    "one at a time": Healthy(more=("--concurrency", "1")),
    "a listed context that just fits": Healthy(models=listing(max_model_len=8)),
    "a listed context of nothing": Healthy(models=listing(max_model_len=0)),
    "a listed context as text": Healthy(models=listing(max_model_len="64"), rows=LONG_ROWS),
    "the context of another model": Healthy(models=listing("other", max_model_len=64), rows=LONG_ROWS),
    "a first row that is too large": Healthy(
        policy=lambda _, body: error(413, b"<html>413</html>") if len(str(body)) > 2000 else RIGHT,
        vary=lambda number: {"params": LONG_ROWS["responses_create_params"]} if number < 1 else {},
        missing=1,
    ),
    "first rows with a parameter that is refused": Healthy(
        policy=refuse_temperature, vary=lambda number: {"params": {"temperature": 0.5}} if number < 4 else {}, missing=4
    ),
    "first rows of another model": Healthy(
        policy=refuse_other_models, vary=lambda number: {"params": {"model": "other"}} if number < 4 else {}
    ),
    "a tool call in each answer": Healthy(policy=always(RIGHT), rows={"tools": [TOOL]}),
    "answers that take a while": Healthy(policy=always(said("It is \\boxed{A}", delay_s=0.2))),
    "judge: refuses max_tokens": Healthy(judge=refuse_max_tokens),
    "judge: filters the probe": Healthy(
        judge=after(1, openai_error(400, "The response was filtered", "content_filter", "content_filter"), SAME)
    ),
    "judge: a page once": Healthy(judge=after(1, Answer(b"<html>hello</html>"), SAME), warns="judge", judge_failures=1),
    "judge: an error at first": Healthy(judge=after(1, error(500, {"error": "CUDA error"}), SAME)),
    "judge: no usage": Healthy(judge=always(said("[[A=B]]", usage=False))),
    "judge: thinks for long": Healthy(judge=after(1, said("", finish="length"), SAME)),
}
