"""`nemo_gym.judge`: ask a model for a verdict. Without one there is no reward: the row reports a failed judge."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from gymnast.compat.nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.types.failure import FailureKind, bounded
from gymnast.types.task import FAILURE_CLASS, JUDGE_ERROR

ResponseT = TypeVar("ResponseT", bound=BaseModel)


class JudgeError(Exception):
    """A judge gave no verdict."""


async def call_judge(
    server_client: ServerClient, *, server_name: str, url_path: str, json: Any, response_model: type[ResponseT]
) -> ResponseT:
    """Call the judge and parse its reply. Any failure is a JudgeError."""

    async def call() -> ResponseT:
        response = await server_client.post(server_name=server_name, url_path=url_path, json=json)
        await raise_for_status(response)
        return response_model.model_validate(await get_response_json(response))

    verdict: ResponseT = await reraise_judge_errors(call())
    return verdict


async def reraise_judge_errors(coro: Awaitable[Any]) -> Any:
    """Await a judge call; raise its errors as JudgeError."""
    try:
        return await coro
    except JudgeError:
        raise
    except Exception as error:
        raise JudgeError(f"{type(error).__name__}: {bounded(str(error) or repr(error), 2000)}") from error


def judge_failsafe(verify_fn: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Wrap `verify` so that a failed judge gives a row without a verdict: the request's fields and the error."""

    @functools.wraps(verify_fn)
    async def verify(*args: Any, **kwargs: Any) -> Any:
        try:
            return await verify_fn(*args, **kwargs)
        except JudgeError as error:
            request = next(value for value in (*args, *kwargs.values()) if isinstance(value, BaseModel))
            cause = error.__cause__
            message = str(error) if cause is not None else f"{type(error).__name__}: {error}"
            row = {
                **jsonable_encoder(request),
                "reward": 0.0,
                FAILURE_CLASS: FailureKind.JUDGE_FAILED.value,
                JUDGE_ERROR: message,
            }
            return JSONResponse(row)

    return verify


__getattr__ = missing_from("nemo_gym.judge")
