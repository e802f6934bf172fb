"""The program that runs on NeMo Gym's interpreter: its servers, one after the other, asked by lines of JSON.

    python original.py CHECKOUT

It uses nothing of Gymnast. The line `{"open": "mcqa"}` forks a process with that server, so that what all servers
import is imported once; then a line of standard input is a request (see generate.py), a line of standard output its
reply: `{"replies": [{"status": …, "body": …}, …]}`, until the line `{"close": true}`. What servers print goes to
standard error. Judges are scripted by the request, remote functions run here, and what draws random numbers is seeded.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.util
import inspect
import json
import math
import os
import random
import signal
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TextIO
from unittest.mock import AsyncMock, MagicMock

JUDGE = {"type": "responses_api_models", "name": "judge"}
ASKS_A_JUDGE = {"judge_model_server": JUDGE, "judge_responses_create_params": {"input": []}}
SYSTEM = "You are the judge."
END_OF_QUESTION = "\n=== context\n"
MULTICHALLENGE_PROMPT = "{question}" + END_OF_QUESTION + "{context}\n=== reply\n{response}\n=== passes\n{pass_criteria}"
REQUIRED: dict[str, dict[str, Any]] = {
    "code_gen": {"num_processes": 1, "unit_test_timeout_secs": 3, "debug": False},
    "equivalence_llm_judge": {
        **ASKS_A_JUDGE,
        "judge_prompt_template_fpath": str(Path(__file__).with_name("judge_prompt.txt")),
    },
    "genrm_compare": {
        "genrm_model_server": JUDGE,
        "genrm_responses_create_params": {"input": []},
        "genrm_parse_retries": 0,
        "default_principle": "Be fair.",
        "num_rollouts_per_prompt": 2,
    },
    "google_search": {"google_api_key": "-", "google_cx": "-"},
    "math_with_judge": {**ASKS_A_JUDGE, "should_use_judge": False, "library_verifier_max_concurrency": 1},
    "multichallenge": {
        **ASKS_A_JUDGE,
        "judge_prompt_template": MULTICHALLENGE_PROMPT,
        "judge_system_message": SYSTEM,
    },
    "single_step_tool_use_with_argument_comparison": {
        "tool_call_comparator_config": {"word_count_similarity_threshold": 0.1}
    },
    "text_to_sql": {**ASKS_A_JUDGE, "judge_system_message": SYSTEM},
}
"""Settings without a default, those that make judges answerable by a script, and shorter limits for programs."""
PROMPTS: dict[str, tuple[str, ...]] = {
    "text_to_sql": ("sql_dialect", "sql_context", "sql_prompt", "first_answer", "second_answer"),
    "math_with_judge": ("question", "first_answer", "second_answer"),
}
"""What is put into the prompts of judges that have no setting, in an order that both sides use."""
OF_THE_ORIGINAL: dict[str, dict[str, Any]] = {"math_with_judge": {"library_verifier_timeout_seconds": 600}}
"""Limits of time that has passed, which a busy machine would reach. See `_count_cpu_time`."""
SEED = 0


class Script:
    """What the judge answers: the replies in turn, over and over, or by the text of the question; and its calls.

    A reply is a text, or the items of an output.
    """

    def __init__(self) -> None:
        self.replies: Any = []
        self.count = 0
        self.asked: list[str] = []

    def load(self, replies: Any) -> None:
        self.replies, self.count, self.asked = replies, 0, []

    def answer(self, params: dict[str, Any]) -> Any:
        self.asked.append(_describe_call(params))
        if isinstance(self.replies, str):
            return self.replies
        if isinstance(self.replies, dict):
            return self.replies.get(_question(params), self.replies.get("*", ""))
        self.count += 1
        return self.replies[(self.count - 1) % len(self.replies)] if self.replies else ""

    def add_calls(self, replies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The replies to a request; the last one with the calls of the judge, in any order."""
        return [*replies[:-1], {**replies[-1], "asked": sorted(self.asked)}] if self.asked else replies


def _describe_call(params: dict[str, Any]) -> str:
    """A call of a judge: who says what, and the parameters that are set."""
    messages = [[item.get("role"), item.get("content")] for item in params.get("input", [])]
    others = {name: value for name, value in params.items() if name != "input" and value is not None}
    return json.dumps([messages, others], sort_keys=True)


def _question(params: dict[str, Any]) -> str:
    metadata = params.get("metadata") or {}
    if "response_1" in metadata:
        return f"{metadata['response_1']} | {metadata['response_2']}"
    texts = [item.get("content") for item in params.get("input", []) if item.get("role") == "user"]
    return texts[-1].split(END_OF_QUESTION)[0] if texts and isinstance(texts[-1], str) else ""


class Original:
    """The servers of one environment, one for each combination of settings."""

    def __init__(self, checkout: Path, environment: str) -> None:
        self.environment, self.script = environment, Script()
        folder = checkout / "resources_servers" / environment
        sys.path[:0] = [str(folder), str(checkout)]
        os.chdir(folder)
        self.module = _import(folder / "app.py", environment)
        self.server_class = _find_server(self.module)
        _run_remote_functions_here(self.module)
        _set_prompts(environment, self.module, self.server_class)
        _seed_langdetect()
        if environment == "math_with_judge":
            _count_cpu_time()
            _warm_up_math_verify()
        self.lacks = _watch_nltk()
        self.clients: dict[str, Any] = {}

    def score(self, request: dict[str, Any]) -> dict[str, Any]:
        """The replies to a request."""
        self.script.load(request.get("judge", []))
        if self.environment == "blackjack":
            seed = request["steps"][0][1].get("seed")
            self.module.random = SimpleNamespace(Random=lambda: random.Random(seed))  # type: ignore[attr-defined]
        app = self._app(request.get("settings", {}))
        self.lacks.clear()
        replies = asyncio.run(_send(app, request["steps"], together=bool(request.get("together"))))
        replies = self.script.add_calls(replies)
        return {"error": f"{self.lacks[0]} is not installed"} if self.lacks else {"replies": replies}

    def _app(self, settings: dict[str, Any]) -> Any:
        key = json.dumps(settings, sort_keys=True)
        if key not in self.clients:
            config_class = self.server_class.model_fields["config"].annotation
            known = {name: value for name, value in settings.items() if name in config_class.model_fields}
            fields = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": self.environment}
            required = {**REQUIRED.get(self.environment, {}), **OF_THE_ORIGINAL.get(self.environment, {})}
            config = config_class(**{**fields, **required, **known})
            self.clients[key] = self.server_class(config=config, server_client=self._client()).setup_webserver()
        return self.clients[key]

    def _client(self) -> Any:
        client_class = importlib.import_module("nemo_gym.server_utils").ServerClient

        async def post(*, server_name: str, url_path: str, json: Any, **_: Any) -> Any:
            params = json if isinstance(json, dict) else json.model_dump(exclude_unset=True, mode="json")
            return _reply(self.script.answer(params))

        client = MagicMock(spec=client_class)
        client.post = AsyncMock(side_effect=post)
        return client


def output_of(answer: Any) -> list[Any]:
    """The items of a judge's answer."""
    if isinstance(answer, list):
        return answer
    part = {"type": "output_text", "text": str(answer), "annotations": []}
    return [{"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": [part]}]


def _reply(answer: Any) -> Any:
    body = {"id": "r", "created_at": 1.0, "model": "judge", "object": "response", "output": output_of(answer)}
    content = json.dumps({**body, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}).encode()
    return SimpleNamespace(
        ok=True,
        status=200,
        read=AsyncMock(return_value=content),
        json=AsyncMock(side_effect=lambda: json.loads(content)),
    )


async def _send(app: Any, steps: list[list[Any]], *, together: bool) -> list[dict[str, Any]]:
    httpx = importlib.import_module("httpx")
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=None) as client:

        async def send(path: str, body: Any) -> dict[str, Any]:
            reply = await client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
            try:
                return {"status": reply.status_code, "body": reply.json()}
            except ValueError:
                return {"status": reply.status_code, "body": reply.text[:500]}

        if together:
            return await gather_until_refused([send(path, body) for path, body in steps])
        replies = []
        for path, body in steps:
            replies.append(await send(path, body))
            if replies[-1]["status"] != 200 or (replies[-1]["body"] or {}).get("terminated"):
                break
        return replies


async def gather_until_refused(calls: list[Any]) -> list[dict[str, Any]]:
    """The replies of a cohort; as soon as one is refused, that one alone: the others would wait for it."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    pending = set(tasks)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        refused = [task.result() for task in done if task.result()["status"] != 200]
        if refused:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            return refused[:1]
    return [task.result() for task in tasks]


def _import(path: Path, environment: str) -> ModuleType:
    """Imported by the name that the server's own files use where they import each other."""
    name = f"resources_servers.{environment}.app"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
    spec = importlib.util.spec_from_file_location("app", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["app"] = module
    spec.loader.exec_module(module)
    return module


def _find_server(module: ModuleType) -> Any:
    return next(
        member
        for member in vars(module).values()
        if inspect.isclass(member) and member.__module__ == module.__name__ and hasattr(member, "setup_webserver")
    )


def _run_remote_functions_here(module: ModuleType) -> None:
    """Functions of Ray are called in a thread of this process."""
    for name, member in list(vars(module).items()):
        function = getattr(member, "_function", None)
        if function is not None and hasattr(member, "remote"):
            stand_in = SimpleNamespace(remote=lambda *args, call=function: asyncio.to_thread(call, *args))
            setattr(module, name, _no_tests if name == "compute_score" else stand_in)


def _set_prompts(environment: str, module: Any, server_class: Any) -> None:
    """Prompts without words of their own, where no setting has them: both sides ask judges the same then."""
    template = "\n===\n".join(f"{{{name}}}" for name in PROMPTS.get(environment, ()))
    if environment == "text_to_sql":
        module.SQL_JUDGE_PROMPT_TEMPLATE = template
    if environment == "math_with_judge":
        server_class.JUDGE_PROMPT_TEMPLATE, server_class.JUDGE_SYSTEM_MESSAGE = template, SYSTEM


async def _tests_not_run(*_: Any) -> tuple[float, dict[str, Any]]:
    return 0.0, {}


_no_tests = SimpleNamespace(remote=_tests_not_run)
"""In the place of containers: what is read from the reply is compared, not the tests' results."""


def _count_cpu_time() -> None:
    """Alarms ring after so much CPU time of the process: what they interrupt does not depend on the machine's load."""
    set_handler: Any = signal.signal

    def set_either(number: int, handler: Any) -> Any:
        return set_handler(signal.SIGPROF if number == signal.SIGALRM else number, handler)

    def set_alarm(seconds: float) -> int:
        return math.ceil(signal.setitimer(signal.ITIMER_PROF, seconds)[0])

    signal.signal, signal.alarm = set_either, set_alarm  # type: ignore[assignment]


def _warm_up_math_verify() -> None:
    """What takes a quarter of a second in the first comparison, which is a process's only one: its tables, once."""
    verify = importlib.import_module("math_verify")
    verify.verify(verify.parse("\\boxed{\\frac{1}{2}}"), verify.parse("It is \\boxed{0.5}, or $x^2+1$."))


def _seed_langdetect() -> None:
    if importlib.util.find_spec("langdetect") is not None:
        importlib.import_module("langdetect").DetectorFactory.seed = SEED


def _watch_nltk() -> list[str]:
    """The data of nltk that was looked for in vain: without them instructions count as not followed."""
    lacks: list[str] = []
    if importlib.util.find_spec("nltk") is None:
        return lacks
    data: Any = importlib.import_module("nltk.data")
    find = data.find

    def find_or_note(name: str, *args: Any, **options: Any) -> Any:
        try:
            return find(name, *args, **options)
        except LookupError:
            lacks.append(f"nltk's {name}")
            raise

    data.find = find_or_note
    return lacks


def main() -> None:
    """Fork a process for each server that is asked for, until standard input ends."""
    sys.path.pop(0)
    requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    checkout = Path(sys.argv[1])
    _import_what_all_need(checkout)
    for line in requests:
        child = os.fork()
        if child == 0:
            _serve(checkout, json.loads(line)["open"], requests, replies)
            os._exit(0)
        _, ending = os.waitpid(child, 0)
        replies.write(json.dumps({"closed": os.waitstatus_to_exitcode(ending)}) + "\n")
        replies.flush()


def _import_what_all_need(checkout: Path) -> None:
    sys.path.insert(0, str(checkout))
    for name in ("nemo_gym.base_resources_server", "nemo_gym.server_utils", "nemo_gym.reward_profile", "httpx"):
        importlib.import_module(name)
    sys.path.pop(0)


def _serve(checkout: Path, environment: str, requests: TextIO, replies: TextIO) -> None:
    try:
        original = Original(checkout, environment)
    except BaseException as error:
        sys.stderr.write(f"{environment}: {type(error).__name__}: {error}\n")
        return
    gc.freeze()  # servers that fork for each answer would copy what the collector touches
    replies.write('{"ready": true}\n')
    replies.flush()
    for line in requests:
        request = json.loads(line)
        if "close" in request:
            return
        try:
            reply = original.score(request)
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
