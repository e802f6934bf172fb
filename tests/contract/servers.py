"""The servers under contract test: one native environment, and a foreign FastAPI application that does the same."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.middleware.sessions import SessionMiddleware

from gymnast.errors import CallError
from gymnast.kit import Attempt, Environment, Task, Verdict, tool
from gymnast.types.failure import FailureDetail, FailureKind, Stage


class CountTask(Task):
    start: int
    expected: int


class CountVerdict(Verdict):
    found: int


class Box:
    """A session."""

    def __init__(self, value: int) -> None:
        self.value = value


class Counting(Environment[CountTask, Box]):
    """A counter with a session, a tool that fails and one that calls a broken inner server."""

    async def open(self, task: CountTask) -> Box:
        return Box(task.start)

    @tool
    async def add(self, session: Box, amount: int) -> dict[str, int]:
        """Add to the counter."""
        session.value += amount
        return {"value": session.value}

    @tool
    async def shout(self, text: str) -> str:
        """Say it louder."""
        return text.upper()

    @tool
    async def doze(self, seconds: float) -> str:
        """Take long."""
        await asyncio.sleep(seconds)
        return "awake"

    @tool
    async def explode(self) -> str:
        """Raise."""
        raise RuntimeError("boom: ünïcode")

    @tool
    async def ask_inner(self) -> str:
        """Call a server that fails."""
        raise CallError(FailureDetail(FailureKind.JUDGE_FAILED, Stage.VERIFY, "judge said no", body='{"why":"tired"}'))

    async def verify(self, attempt: Attempt[CountTask, Box]) -> CountVerdict:
        found = attempt.session.value
        return CountVerdict(reward=float(found == attempt.task.expected), found=found)


class AddBody(BaseModel):
    amount: int


class SeedBody(BaseModel):
    start: int
    expected: int


def foreign_app(name: str = "counting") -> FastAPI:
    """The same environment as somebody else writes it: FastAPI, Starlette sessions, the contract's error bodies."""
    app = FastAPI()
    counters: dict[str, int] = {}

    @app.middleware("http")
    async def session_id(request: Request, call_next: Any) -> Any:
        request.session["session_id"] = request.session.get("session_id") or str(uuid.uuid4())
        return await call_next(request)

    app.add_middleware(SessionMiddleware, secret_key=f"Counting___{name}", session_cookie=f"Counting___{name}")

    @app.middleware("http")
    async def errors(request: Request, call_next: Any) -> Any:
        try:
            return await call_next(request)
        except Exception as error:
            return JSONResponse(repr(error), status_code=500)

    @app.get("/")
    async def liveness() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/seed_session")
    async def seed_session(body: SeedBody, request: Request) -> dict[str, Any]:
        counters[request.session["session_id"]] = body.start
        return {}

    @app.post("/add")
    async def add(body: AddBody, request: Request) -> dict[str, int]:
        counters[request.session["session_id"]] += body.amount
        return {"value": counters[request.session["session_id"]]}

    @app.post("/explode")
    async def explode() -> None:
        raise RuntimeError("boom: ünïcode")

    @app.post("/verify")
    async def verify(body: dict[str, Any], request: Request) -> dict[str, Any]:
        found = counters.pop(request.session["session_id"])
        kept = {key: body[key] for key in ("responses_create_params", "response")}
        return {**kept, "reward": float(found == body["expected"]), "found": found}

    return app
