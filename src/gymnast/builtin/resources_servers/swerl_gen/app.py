"""SWE-style tasks: the model edits a repository, or writes a script that reproduces a bug; the sandbox runs both."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final, Literal

import orjson
from pydantic import ConfigDict, PositiveInt, field_validator

from gymnast.kit import (
    Attempt,
    InvalidBody,
    JsonObject,
    SandboxedEnvironment,
    SandboxedSettings,
    SandboxSettings,
    ScoringSettings,
    ServerContext,
    Task,
    Verdict,
)

from .edits import extract_patch, find_script, script_patch
from .logs import FULL, NO, PARTIAL, names_of
from .running import Repository, RowError, TestRun, Verification, run_action, with_deadline
from .strict_answers import find_strict_patch, find_strict_script

PYTEST: Final = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments")
_REWARDS: Final = {FULL: 1.0, PARTIAL: 0.2, NO: 0.0}
_MAX_CHECKED: Final = 4096
_REPRODUCTIONS: Final = 2
"""How often strict scoring runs a script on each side, so that a random result does not pass."""
_BROKEN: Final = 2
_FIXED: Final = 0
"""Exit codes of a script that reproduces a bug: before and after the fix."""


class SwerlGenSettings(ScoringSettings, SandboxedSettings):
    num_processes: PositiveInt = 8
    """Verifications that run at the same time; the sandbox may allow fewer."""
    sandbox_timeout: PositiveInt = 600
    """Seconds per verification."""
    debug: bool = False
    """Put the end of the log into `verification_result.log`."""
    relaxed_formatting: bool = False
    """Accept edits without solution tags."""
    env: str | None = None
    """For configurations of NeMo Gym; the sandbox is chosen by `sandbox`."""
    sandbox: SandboxSettings = SandboxSettings(packages=PYTEST)


class SwerlGenTask(Task):
    model_config = ConfigDict(extra="ignore", frozen=True)
    instance: dict[str, Any]
    dataset_name: str | None = None
    dataset_split: str | None = None
    metadata: dict[str, Any] = {}
    partial_similarity: bool | None = None
    mode: Literal["eval", "repro-gen"] = "eval"

    @field_validator("instance")
    @classmethod
    def _is_complete(cls, value: dict[str, Any]) -> dict[str, Any]:
        missing = [name for name in ("instance_id", "repo") if value.get(name) is None]
        if missing:
            raise ValueError(f"missing: {', '.join(missing)}")
        return value


class SwerlGenVerdict(Verdict):
    verification_result: dict[str, Any] | None = None
    verification_time: float | None = None
    model_patch: str | None = None
    repro_test_info_base64: str | None = None
    model_output: str | None = None


class SwerlGen(SandboxedEnvironment[SwerlGenTask, None]):
    """Scores one answer; no session, no tools."""

    settings: SwerlGenSettings

    def __init__(self, name: str, settings: SwerlGenSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._slots = asyncio.Semaphore(settings.num_processes)
        self._checked: OrderedDict[str, None] = OrderedDict()
        """Rows whose tests are known to fail without a patch."""

    def parse_task(self, row: dict[str, Any]) -> SwerlGenTask:
        task = super().parse_task(row)
        scripts = ("setup_script", "test_script") if task.mode == "eval" else ("regression_script", "patch")
        missing = [name for name in scripts if not isinstance(task.instance.get(name), str)]
        if missing:
            raise InvalidBody.of_field(f"missing for mode {task.mode}: {', '.join(missing)}", "instance")
        if not isinstance(task.metadata.get("files"), dict) and not isinstance(task.metadata.get("archive"), str):
            problem = "expected the repository, as files (path: text) or archive (a path): images do not run here"
            raise InvalidBody.of_field(problem, "metadata")
        if self.settings.scoring == "strict" and task.mode == "eval":
            _check_names(task.instance)
        return task

    async def verify(self, attempt: Attempt[SwerlGenTask, None]) -> SwerlGenVerdict:
        text = answer_text(attempt.output)
        if not text:
            return SwerlGenVerdict(reward=0.0)
        try:
            verify = self._verify_patch if attempt.task.mode == "eval" else self._verify_script
            return await verify(attempt.task, text)
        except RowError as error:
            raise InvalidBody.of_field(str(error), "instance") from error

    # --- patches ------------------------------------------------------------------------------------------------------

    async def _verify_patch(self, task: SwerlGenTask, text: str) -> SwerlGenVerdict:
        patch = await asyncio.to_thread(self._find_patch, task, text)
        if patch is None:
            return SwerlGenVerdict(reward=0.0, model_output=text)
        started = time.monotonic()
        score = self._test_strictly if self.settings.scoring == "strict" else self._evaluate
        reward, result = await score(task, patch)
        return SwerlGenVerdict(
            reward=reward,
            verification_result=result,
            verification_time=time.monotonic() - started,
            model_patch=patch,
            model_output=text,
        )

    def _find_patch(self, task: SwerlGenTask, text: str) -> str | None:
        metadata = task.metadata
        try:
            files = json.loads(metadata["relevant_file_contents"])
            remove = bool(metadata["remove_repo_name"])
        except (KeyError, TypeError, ValueError):
            files, remove = None, False
        if self.settings.scoring == "strict":
            shown = files if isinstance(files, dict) else metadata.get("files") or {}
            return find_strict_patch(text, shown, remove_repo_name=remove)
        if not isinstance(files, dict):
            return None
        try:
            return extract_patch(text, files, remove_repo_name=remove, relaxed=self.settings.relaxed_formatting)
        except TypeError:  # a content that is not text
            return None

    async def _evaluate(self, task: SwerlGenTask, patch: str) -> tuple[float, JsonObject]:
        done = await self._run("evaluate", task, {"patch": patch})
        resolution = done.report.get("resolution") if "ending" not in done.report else None
        if done.status == "done" and "ending" in done.report:
            resolution = NO  # it was stopped for its use of memory, processes or disk
        result = self._result(done, resolution=resolution)
        return (_REWARDS.get(resolution or NO, 0.0) if done.status == "done" else 0.0), result

    async def _test_strictly(self, task: SwerlGenTask, patch: str) -> tuple[float, JsonObject]:
        fixed, kept = names_of(task.instance, "FAIL_TO_PASS"), names_of(task.instance, "PASS_TO_PASS")
        await self._check_row(task, fixed, [*fixed, *kept])
        done, passed, problem = await self._test(task, patch, [*fixed, *kept])
        missing = [name for name in (*fixed, *kept) if name not in passed]
        if problem is None and missing:
            problem = f"{len(missing)} of {len(fixed) + len(kept)} tests do not pass, such as {missing[0]}"
        result = self._result(done, resolution=FULL if problem is None else NO)
        return float(problem is None), {**result, "reason": problem}

    async def _test(
        self, task: SwerlGenTask, patch: str, names: list[str]
    ) -> tuple[Verification, set[str], str | None]:
        run = TestRun.make(names)
        done = await self._run("test", task, {"patch": patch, **run.request()})
        if "ending" in done.report:
            return done, set(), f"the tests were stopped: {done.report['ending']}"
        if "refused" in done.report:
            return done, set(), str(done.report["refused"])
        return (done, *run.read_passed_tests(done.report))

    async def _check_row(self, task: SwerlGenTask, fixed: list[str], names: list[str]) -> None:
        """Refuse a row whose tests pass without a patch. Each row is run once for this."""
        key = hashlib.sha256(orjson.dumps([task.instance, task.metadata], default=str)).hexdigest()
        if key in self._checked:
            self._checked.move_to_end(key)
            return
        done, passed, problem = await self._test(task, "", names)
        if problem is not None:
            log = str(done.report.get("log", ""))[-300:]
            raise RowError(f"the tests cannot be run without a patch: {problem}\n{log}".strip())
        already = [name for name in fixed if name in passed]
        if already:
            raise RowError(f"FAIL_TO_PASS: {already[0]} passes without a patch")
        self._checked[key] = None
        while len(self._checked) > _MAX_CHECKED:
            self._checked.popitem(last=False)

    # --- tests that reproduce a bug -----------------------------------------------------------------------------------

    async def _verify_script(self, task: SwerlGenTask, text: str) -> SwerlGenVerdict:
        strict = self.settings.scoring == "strict"
        script = await asyncio.to_thread(find_strict_script if strict else find_script, text)
        if script is None:
            return SwerlGenVerdict(reward=0.0, model_output=text)
        code, number = script
        info = {"instance_id": task.instance["instance_id"], "test_patch": [script_patch(code, number)]}
        started = time.monotonic()
        request = {"script": {"name": f"reproduce_bug_{number}.py", "code": code}}
        reward, result = await (self._reproduce_strictly if strict else self._reproduce)(task, request)
        return SwerlGenVerdict(
            reward=reward,
            verification_result=result,
            verification_time=time.monotonic() - started,
            model_patch=task.instance["patch"],
            repro_test_info_base64=base64.b64encode(json.dumps(info).encode()).decode(),
            model_output=text,
        )

    async def _reproduce(self, task: SwerlGenTask, request: JsonObject) -> tuple[float, JsonObject]:
        done = await self._run("reproduce", task, {**request, "patch": task.instance["patch"]})
        before, after = done.report.get("before"), done.report.get("after")
        right = done.status == "done" and bool(before) and bool(after)
        reward = float(right and before[0] == _BROKEN and after[0] == _FIXED)  # type: ignore[index]
        return reward, self._result(done, before=before, after=after)

    async def _reproduce_strictly(self, task: SwerlGenTask, request: JsonObject) -> tuple[float, JsonObject]:
        codes: dict[str, list[int | None]] = {}
        for side, patch in (("before", ""), ("after", task.instance["patch"])):
            runs = [await self._run("run_script", task, {**request, "patch": patch}) for _ in range(_REPRODUCTIONS)]
            codes[side] = [done.report.get("exit_code") for done in runs]
        right = set(codes["before"]) == {_BROKEN} and set(codes["after"]) == {_FIXED}
        return float(right), self._result(runs[-1], before=codes["before"], after=codes["after"])

    # --- the sandbox --------------------------------------------------------------------------------------------------

    async def _run(self, action: str, task: SwerlGenTask, request: JsonObject) -> Verification:
        limits = with_deadline(self.limits, float(self.settings.sandbox_timeout))
        repository = await asyncio.to_thread(read_repository, task.metadata)
        async with self._slots:
            return await run_action(self.sandbox, limits, action, repository, {"instance": task.instance, **request})

    def _result(
        self,
        done: Verification,
        *,
        resolution: str | None = None,
        before: list[int | None] | None = None,
        after: list[int | None] | None = None,
    ) -> JsonObject:
        result: JsonObject = {
            "status": done.status,
            "resolution": resolution,
            "return_codes_after_patch": after,
            "return_codes_before_patch": before,
        }
        return {**result, "log": done.report.get("log")} if self.settings.debug else result


def answer_text(output: list[JsonObject]) -> str:
    """The texts of all assistant messages, one below the other."""
    texts: list[str] = []
    for item in output:
        if item.get("type", "message") != "message" or item.get("role") != "assistant":
            continue
        content = item.get("content")
        if isinstance(content, str):
            texts.append(content)
        else:
            texts += [part["text"] for part in content or () if part.get("type") == "output_text"]
    return "\n".join(texts).strip()


def read_repository(metadata: dict[str, Any]) -> Repository:
    """The repository of a row: its files, or its archive, which is read here."""
    files = metadata.get("files")
    if isinstance(files, dict):
        wrong = next((name for name, text in files.items() if not isinstance(text, str)), None)
        if wrong is not None:
            raise RowError(f"metadata.files: the content of '{wrong}' is not text")
        return Repository(files)
    path = Path(str(metadata["archive"])).expanduser()
    try:
        return Repository(archive=path.read_bytes())
    except OSError as error:
        raise RowError(f"metadata.archive: cannot read '{path}': {error.strerror}") from error


def _check_names(instance: dict[str, Any]) -> None:
    """Strict scoring runs pytest, which names tests by file."""
    try:
        fixed, kept = names_of(instance, "FAIL_TO_PASS"), names_of(instance, "PASS_TO_PASS")
    except ValueError as error:
        raise InvalidBody.of_field(f"FAIL_TO_PASS, PASS_TO_PASS: {error}", "instance") from error
    if not all(isinstance(names, list) for names in (fixed, kept)) or not fixed:
        raise InvalidBody.of_field("FAIL_TO_PASS: expected a list with at least one test", "instance")
    wrong = next((name for name in (*fixed, *kept) if ".py::" not in str(name)), None)
    if wrong is not None:
        raise InvalidBody.of_field(f"expected tests such as tests/test_a.py::test_b, got {wrong!r}", "instance")
