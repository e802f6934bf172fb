"""google_search: results from a recording, a recording made from a live API, and what happens to requests not in it."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gymnast.builtin.resources_servers.google_search import live
from gymnast.builtin.resources_servers.google_search.app import GoogleSearch, GoogleSearchSettings
from gymnast.builtin.resources_servers.google_search.live import WebError, refuse_private, shorten_page
from gymnast.builtin.resources_servers.google_search.nemo_gym_rules import first_box
from gymnast.builtin.resources_servers.google_search.recording import Recording, normalize
from gymnast.errors import DataError, NotFoundError, UserError
from tests.helpers.environments import Subject, called, check_cases, collect_examples, said, started
from tests.helpers.jsonl import example_rows, read_jsonl

KEY = "a-secret-key"


async def test_verifier_cases() -> None:
    async with started(GoogleSearch, GoogleSearchSettings()) as subject:
        await check_cases(subject, "google_search")


# --- replaying --------------------------------------------------------------------------------------------------------


async def test_recorded_results_are_replayed_in_any_case_and_spacing() -> None:
    async with started(GoogleSearch, GoogleSearchSettings()) as subject:
        reply = await subject.calls.call("env", "/search", {"query": "  ferrin TUNNEL length   km"})
        assert json.loads(reply.body["search_results"])["items"][0]["title"] == "Ferrin tunnel"
        page = await subject.calls.call("env", "/browse", {"url": "https://example.org/tunnels#list"})
        assert "Ferrin: 5.7 km" in page.body["page_content"]


async def test_a_request_that_is_not_recorded_is_reported_and_counted() -> None:
    async with started(GoogleSearch, GoogleSearchSettings()) as subject:
        search = await subject.calls.call("env", "/search", {"query": "weather in Oslo"})
        page = await subject.calls.call("env", "/browse", {"url": "https://example.org/none"})
        told = "Error: Unexpected error - the search for 'weather in Oslo' is not in the recording"
        assert (search.status, search.body) == (200, {"search_results": told})
        assert page.body["page_content"].endswith("'https://example.org/none' is not in the recording")
        outputs = [
            {"type": "function_call_output", "call_id": "c", "output": json.dumps(body)}
            for body in (search.body, page.body, {"search_results": "it is not in the recording"})
        ]
        row = example_rows("google_search")[0]
        verdict = await subject.verify(row, called("search", {"query": "x"}), *outputs, said("\\boxed{C}"))
        assert (verdict["reward"], verdict["unrecorded_calls"]) == (1.0, 2)


async def test_a_request_that_is_not_recorded_can_fail_the_rollout() -> None:
    async with started(GoogleSearch, GoogleSearchSettings(unrecorded="fail")) as subject:
        reply = await subject.calls.call("env", "/search", {"query": "weather in Oslo"})
        assert reply.status == 500
        assert "is not in the recording" in str(reply.body)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{broken}\n", "line 1"),
        ('{"search": "a", "result": "b"}\n{"search": "a"}\n', "line 2"),
        ('{"search": "a", "browse": "b", "result": "c"}\n', "expected"),
        ('{"search": 1, "result": "c"}\n', "expected"),
        ("[]\n", "expected"),
    ],
)
def test_a_recording_that_cannot_be_read_is_an_error_that_names_the_line(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(content)
    with pytest.raises(DataError) as error:
        Recording.load(path, must_exist=True)
    assert message in str(error.value)


def test_a_missing_recording_is_an_error() -> None:
    with pytest.raises(NotFoundError, match="does not exist"):
        Recording.load(Path("nowhere.jsonl"), must_exist=True)


def test_a_recording_whose_writer_was_killed_is_read_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"search": "a", "result": "1"}\n{"search": "b", "resu')
    recording = Recording.load(path, must_exist=True)
    assert (recording.find("search", "A"), recording.find("search", "b")) == ("1", None)
    recording.add("search", "b", "2")
    assert read_jsonl(path) == [{"search": "a", "result": "1"}, {"search": "b", "result": "2"}]
    path.write_text('{"search": "a", "result": "1"}')  # written by hand, without a line break
    recording = Recording.load(path, must_exist=True)
    assert len(recording) == 1
    recording.add("browse", "u", "2")
    assert len(Recording.load(path, must_exist=True)) == 2


def test_what_makes_two_requests_the_same() -> None:
    assert normalize("search", " Cafe\u0301  AU lait") == normalize("search", "café au lait")
    assert normalize("browse", "https://a/B#c") != normalize("browse", "https://a/b")


# --- live -------------------------------------------------------------------------------------------------------------


class Api(BaseHTTPRequestHandler):
    """A stand-in for Google's API that answers a query with itself, and 429 to the query `busy`."""

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        self.server.queries.append(query)  # type: ignore[attr-defined]
        body = json.dumps({"items": [{"title": query["q"][0]}]}).encode()
        self.send_response(429 if query["q"] == ["busy"] else 200)
        self.end_headers()
        self.wfile.write(b"not JSON" if query["q"] == ["garbled"] else body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    """The API on a port, and pages that trafilatura would fetch."""
    pages = {"https://example.org/a": "<p>text</p>", "https://example.org/empty": "<p></p>"}
    fake = SimpleNamespace(fetch_url=pages.get, extract=lambda html: html[3:-4] or None)
    real = importlib.import_module
    monkeypatch.setattr(live, "find_spec", lambda _: fake)
    monkeypatch.setattr("importlib.import_module", lambda name: fake if name == "trafilatura" else real(name))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    server.queries = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def settings_for(api: ThreadingHTTPServer, **more: Any) -> GoogleSearchSettings:
    url = f"http://127.0.0.1:{api.server_port}/v1"
    return GoogleSearchSettings(google_api_key=KEY, google_cx="engine", api_url=url, **more)


async def search(subject: Subject, query: str) -> str:
    reply = await subject.calls.call("env", "/search", {"query": query})
    assert reply.status == 200, reply.body
    result: str = reply.body["search_results"]
    return result


async def test_a_live_search_is_what_google_says(api: ThreadingHTTPServer) -> None:
    async with started(GoogleSearch, settings_for(api)) as subject:
        assert json.loads(await search(subject, "blue whales")) == {"items": [{"title": "blue whales"}]}
    assert api.queries == [{"key": [KEY], "cx": ["engine"], "q": ["blue whales"]}]  # type: ignore[attr-defined]


async def test_a_failed_search_is_reported_without_the_key(api: ThreadingHTTPServer) -> None:
    async with started(GoogleSearch, settings_for(api)) as subject:
        for query in ("busy", "garbled"):
            told = await search(subject, query)
            assert told.startswith("Error: Unexpected error - ")
            assert KEY not in told
    async with started(GoogleSearch, settings_for(api, scoring="strict")) as subject:
        reply = await subject.calls.call("env", "/search", {"query": "busy"})
        assert reply.status == 500
        assert KEY not in str(reply.body)


async def test_what_is_recorded_is_replayed_without_the_api(api: ThreadingHTTPServer, tmp_path: Path) -> None:
    path = tmp_path / "new" / "recording.jsonl"
    async with started(GoogleSearch, settings_for(api, backend="record", recording=str(path))) as subject:
        first = await search(subject, "blue whales")
        assert await search(subject, "Blue  whales") == first
        assert (await search(subject, "busy")).startswith("Error")
        page = await subject.calls.call("env", "/browse", {"url": "https://example.org/a"})
        assert page.body == {"page_content": "text"}
    assert len(api.queries) == 2  # type: ignore[attr-defined]
    assert [next(iter(entry)) for entry in read_jsonl(path)] == ["search", "browse"]
    async with started(GoogleSearch, GoogleSearchSettings(recording=str(path))) as subject:
        assert await search(subject, "blue whales") == first
        assert "not in the recording" in await search(subject, "busy")


async def test_pages(api: ThreadingHTTPServer) -> None:
    async with started(GoogleSearch, settings_for(api)) as subject:
        contents = {
            url: (await subject.calls.call("env", "/browse", {"url": url})).body["page_content"]
            for url in (
                "https://example.org/a",
                "https://example.org/empty",
                "https://example.org/b",
                "http://127.0.0.1/",
            )
        }
    assert list(contents.values()) == [
        *("text", "No text found", "No HTML found", "Error: Unexpected error = 127.0.0.1 is not a public address")
    ]


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "http://[::1]/x", "http://10.0.0.1", "http://169.254.169.254/m"])
def test_private_addresses_are_refused(url: str) -> None:
    with pytest.raises(WebError, match="not a public address"):
        refuse_private(url)


def test_a_long_page_is_shortened() -> None:
    assert shorten_page("a " * 10_000) == "a " * 10_000
    text = "b" * 5_000 + " a" * 10_000 + "c" * 5_000
    assert shorten_page(text) == "b" * 5_000 + "..." + "c" * 5_000


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"google_api_key": "k"}, "set both or neither"),
        ({"backend": "live"}, "needs google_api_key"),
        ({"backend": "record"}, "needs google_api_key"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GoogleSearchSettings(**settings)


async def test_live_without_trafilatura_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="trafilatura"):
        async with started(GoogleSearch, GoogleSearchSettings(google_api_key="k", google_cx="c")):
            pass


# --- scoring ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("\\boxed{C}", "C"),
        ("\\boxed{\n}\\boxed{C}", "C"),
        ("\\boxed{" * 3 + "C}", "\\boxed{\\boxed{C"),
        ("\\boxed{C", None),
        ("\\boxed{\n\\boxed{", None),
        ("", None),
    ],
)
def test_the_first_box(text: str, box: str | None) -> None:
    assert first_box(text) == box


async def test_a_run_over_the_examples(tmp_path: Path) -> None:
    options = [row["expected_answer"] for row in example_rows("google_search")]
    replies = [f"\\boxed{{{option}}}" for option in options]
    replies[1] = "no idea"
    records = await collect_examples(tmp_path, "google_search", replies)
    assert [record["reward"] for record in records] == [1.0, 0.0, 1.0, 1.0, 1.0]
    assert records[0]["parsed_option"] == options[0]
