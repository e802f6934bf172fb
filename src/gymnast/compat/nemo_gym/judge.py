"""`nemo_gym.judge`: asking a model for a verdict. Without one there is no reward: the row says the judge failed."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from gymnast.compat.nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.types.failure import bounded
from gymnast.types.task import FAILURE_CLASS, JUDGE_ERROR

__all__ = [
    "JudgeError",
    "ResponseT",
    "call_judge",
    "judge_failsafe",
    "reraise_judge_errors",
]

ResponseT = TypeVar("ResponseT", bound=BaseModel)


class JudgeError(Exception):
    """A judge gave no verdict."""


async def call_judge(
    server_client: ServerClient, *, server_name: str, url_path: str, json: Any, response_model: type[ResponseT]
) -> ResponseT:
    """The judge's answer as a model. Whatever goes wrong on the way is a JudgeError."""

    async def asked() -> ResponseT:
        response = await server_client.post(server_name=server_name, url_path=url_path, json=json)
        await raise_for_status(response)
        return response_model.model_validate(await get_response_json(response))

    found: ResponseT = await reraise_judge_errors(asked())
    return found


async def reraise_judge_errors(coro: Awaitable[Any]) -> Any:
    """Await something that asks a judge; its errors are the judge's."""
    try:
        return await coro
    except JudgeError:
        raise
    except Exception as error:
        raise JudgeError(f"{type(error).__name__}: {bounded(str(error) or repr(error), 2000)}") from error


def judge_failsafe(verify_fn: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """A `verify` whose failing judge becomes a row without a verdict: the request's fields, and what went wrong."""

    @functools.wraps(verify_fn)
    async def verify(*args: Any, **kwargs: Any) -> Any:
        try:
            return await verify_fn(*args, **kwargs)
        except JudgeError as error:
            asked = next(value for value in (*args, *kwargs.values()) if isinstance(value, BaseModel))
            cause = error.__cause__
            said = str(error) if cause is not None else f"{type(error).__name__}: {error}"
            row = {**jsonable_encoder(asked), "reward": 0.0, FAILURE_CLASS: "judge_failed", JUDGE_ERROR: said}
            return JSONResponse(row)

    return verify


__getattr__ = missing_from("nemo_gym.judge")
