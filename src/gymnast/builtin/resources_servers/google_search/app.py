"""Multiple-choice questions with web search: Google's API and live pages, or a recording of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, PositiveFloat, PositiveInt, model_validator

from gymnast.kit import (
    Attempt,
    Environment,
    EnvironmentSettings,
    FailureDetail,
    FailureKind,
    HttpError,
    ScoringSettings,
    ServerContext,
    Stage,
    Task,
    Verdict,
    message_text,
    tool,
)

from . import nemo_gym_rules, strict_rules
from .live import ApiKey, LiveWeb, WebError
from .recording import Recording, UnrecordedError

HERE: Final = Path(__file__).parent
GOOGLE: Final = "https://www.googleapis.com/customsearch/v1"
UNRECORDED: Final = "not in the recording"
Backend = Literal["live", "record", "replay"]
_ERROR_START: Final = re.compile(r"Error: Unexpected error [-=] ")


class GoogleSearchSettings(ScoringSettings, EnvironmentSettings):
    google_api_key: str | None = None
    google_cx: str | None = None
    """The id of the Programmable Search Engine."""
    backend: Backend | None = None
    """live: Google and the web. record: the recording, and the web for what is not in it, which is then appended.
    replay: the recording only. By default live with a key, else replay."""
    recording: str = "data/example_recording.jsonl"
    """The file to replay or to record to; a relative path is also looked up in this environment's folder."""
    unrecorded: Literal["tell", "fail"] = "tell"
    """What a request that is not in a replayed recording does: return an error to the model, or fail the rollout."""
    api_url: str = GOOGLE
    timeout_s: PositiveFloat = 10.0
    """For a search."""
    max_concurrent_requests: PositiveInt = 32
    allow_private_addresses: bool = False
    """Let the model browse addresses that are not public, such as localhost."""

    @model_validator(mode="after")
    def _has_key(self) -> GoogleSearchSettings:
        if (self.google_api_key is None) != (self.google_cx is None):
            raise ValueError("google_api_key and google_cx: set both or neither")
        if self.google_api_key is None and self.backend in {"live", "record"}:
            raise ValueError(f"backend {self.backend} needs google_api_key and google_cx")
        return self

    @property
    def chosen_backend(self) -> Backend:
        return self.backend or ("replay" if self.google_api_key is None else "live")


class GoogleSearchTask(Task):
    expected_answer: str
    task_difficulty_qwen3_32b_avg_8: float | None = None


class SearchReply(BaseModel):
    search_results: str
    """Google's reply as JSON text, or an error."""


class PageReply(BaseModel):
    page_content: str


class GoogleSearchVerdict(Verdict):
    parsed_option: str | None
    unrecorded_calls: int
    """Tool calls for which the recording had no result."""


class GoogleSearch(Environment[GoogleSearchTask, None]):
    """Two tools without state; scored by the boxed option."""

    settings: GoogleSearchSettings
    parallel_tools = True

    def __init__(self, name: str, settings: GoogleSearchSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._live: LiveWeb | None = None
        self._recording: Recording | None = None

    async def start(self) -> None:
        settings, backend = self.settings, self.settings.chosen_backend
        if backend != "live":
            path = find_recording(settings.recording, must_exist=backend == "replay")
            self._recording = Recording.load(path, must_exist=backend == "replay")
        if backend != "replay":
            assert settings.google_api_key is not None
            assert settings.google_cx is not None
            key = ApiKey(settings.api_url, settings.google_api_key, settings.google_cx)
            self._live = LiveWeb(
                key,
                settings.timeout_s,
                threads=settings.max_concurrent_requests,
                allow_private=settings.allow_private_addresses,
            )
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        if self._live is not None:
            self._live.close()

    @tool
    async def search(self, query: str) -> SearchReply:
        """Search the web with Google. Returns up to 10 results.

        Args:
            query: What to search for.
        """
        try:
            return SearchReply(search_results=await self._request("search", query))
        except (WebError, UnrecordedError) as error:
            return SearchReply(search_results=f"Error: Unexpected error - {self._tell(error)}")

    @tool
    async def browse(self, url: str) -> PageReply:
        """Read the text of a web page. Long pages are shortened.

        Args:
            url: The address of the page.
        """
        try:
            return PageReply(page_content=await self._request("browse", url))
        except (WebError, UnrecordedError) as error:
            return PageReply(page_content=f"Error: Unexpected error = {self._tell(error)}")

    async def _request(self, kind: Literal["search", "browse"], text: str) -> str:
        recording, live = self._recording, self._live
        if recording is not None:
            result = recording.find(kind, text)
            if result is not None:
                return result
            if live is None:
                raise UnrecordedError(f"the {kind} for {text[:200]!r} is {UNRECORDED}")
        assert live is not None
        result = await (live.search(text) if kind == "search" else live.browse(text))
        if recording is not None:
            recording.add(kind, text, result)
        return result

    def _tell(self, error: WebError | UnrecordedError) -> str:
        """The error for the model, unless the settings make it a failure of the rollout."""
        self.log.warning("%s", error)
        strict, unrecorded = self.settings.scoring == "strict", isinstance(error, UnrecordedError)
        if (self.settings.unrecorded == "fail") if unrecorded else strict:
            detail = FailureDetail(FailureKind.TOOL_ERROR, Stage.TOOL, str(error), instance=self.name, status=500)
            raise HttpError(500, str(error), failure=detail) from error
        return str(error)

    async def verify(self, attempt: Attempt[GoogleSearchTask, None]) -> GoogleSearchVerdict:
        expected = attempt.task.expected_answer
        if self.settings.scoring == "strict":
            option = strict_rules.find_option(attempt.output)
            right = option is not None and strict_rules.same_option(option, expected)
        else:
            option = nemo_gym_rules.find_option(attempt.output)
            right = option == expected
        return GoogleSearchVerdict(
            reward=float(right), parsed_option=option, unrecorded_calls=count_unrecorded(attempt.output)
        )


def count_unrecorded(output: list[dict[str, Any]]) -> int:
    """How many tool outputs say that the recording had no result."""
    texts = [_output_text(item) for item in output if item.get("type") == "function_call_output"]
    return sum(UNRECORDED in text and _ERROR_START.search(text) is not None for text in texts)


def _output_text(item: dict[str, Any]) -> str:
    output = item.get("output")
    return output if isinstance(output, str) else message_text({"content": output})


def find_recording(name: str, *, must_exist: bool) -> Path:
    """The path itself, or the file below this environment's folder."""
    path = Path(name).expanduser()
    shipped = HERE / name
    return shipped if must_exist and not path.exists() and shipped.exists() else path
