"""`nemo_gym.verifier_fixture`: the cases of a server's verifier, each scored by a fresh object in this process."""

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.store.atomic import atomic_write

_CaseKind = Literal["full_reward", "zero_reward", "malformed", "determinism"]
_FixtureInvocation = Callable[[Any, Any], object | Awaitable[object]]
_DETERMINISM = ("seeded", "stochastic", "unknown")


class VerifierFixtureError(ValueError):
    """The cases cannot be used, or the verifier does not do what they say."""


@dataclass(frozen=True)
class VerifierFixture:
    """How to score a case: what makes a server, what its requests are, where the cases are."""

    server_factory: Callable[[], object]
    request_model: type[BaseModel]
    cases_path: str | Path
    invoke: _FixtureInvocation | None = None
    """Scores a request, instead of the server's `verify`."""
    reseed: _FixtureInvocation | None = None
    """Called before a request of kind determinism."""


class VerifierFixtureCase(BaseModel):
    """A line of the file."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    name: str = Field(min_length=1)
    kind: _CaseKind
    request: dict[str, Any]
    expected_reward: Annotated[float, Field(strict=True, allow_inf_nan=False)] | None = None
    expected_error: str | None = None

    @model_validator(mode="after")
    def validate_expectation(self) -> Self:
        """A malformed case expects an error, all others a reward."""
        if self.kind == "malformed":
            if not self.expected_error or self.expected_reward is not None:
                raise ValueError("a malformed case requires expected_error and forbids expected_reward")
        elif self.expected_reward is None or self.expected_error is not None:
            raise ValueError(f"a {self.kind} case requires expected_reward and forbids expected_error")
        return self


@dataclass(frozen=True)
class VerifierFixtureResult:
    """A case that passed, with the rewards it got."""

    name: str
    kind: _CaseKind
    observed_rewards: tuple[float, ...] = ()


def load_verifier_fixture(path: str | Path) -> list[VerifierFixtureCase]:
    """Read the cases of a file."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise VerifierFixtureError(f"Could not read verifier fixture '{path}': {error}") from error
    cases = [_parse_case(line, path, number) for number, line in enumerate(lines, 1) if line.strip()]
    if not cases:
        raise VerifierFixtureError(f"Verifier fixture '{path}' contains no cases")
    return cases


def _parse_case(line: str, path: str | Path, number: int) -> VerifierFixtureCase:
    where = f"verifier fixture '{path}' at line {number}"
    try:
        return VerifierFixtureCase.model_validate(orjson.loads(line))
    except orjson.JSONDecodeError as error:
        raise VerifierFixtureError(f"Invalid JSON in {where}: {error.msg}") from error
    except ValidationError as error:
        message = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        raise VerifierFixtureError(f"Invalid {where}: {message}") from error


async def exercise_verifier_fixture(
    fixture: VerifierFixture,
    *,
    reward_range: Sequence[float],
    higher_is_better: bool = True,
    determinism: str | Enum,
    update_expected: bool = False,
) -> tuple[VerifierFixtureResult, ...]:
    """Score every case; raises at the first that has another outcome.

    With `update_expected` the rewards in the file become those observed, unless a case breaks a rule: full and zero
    rewards are the ends of the range, and equal requests get equal rewards.
    """
    path = Path(fixture.cases_path)
    cases = load_verifier_fixture(path)
    rules = _make_rules(reward_range, determinism, higher_is_better=higher_is_better)
    required = {"full_reward", "zero_reward", "malformed"} | ({"determinism"} if rules.seeded else set())
    missing = sorted(required - {case.kind for case in cases})
    if missing:
        raise VerifierFixtureError(f"Verifier fixture '{path}' is missing required cases: {', '.join(missing)}")
    results: list[VerifierFixtureResult] = []
    updated = list(cases)
    for index, case in enumerate(cases):
        if case.kind == "determinism" and not rules.seeded:
            continue
        rewards = await _score(fixture, case, rules)
        if rewards and update_expected:
            updated[index] = case.model_copy(update={"expected_reward": rewards[0]})
        elif rewards and rewards[0] != case.expected_reward:
            _raise_difference(f"Case '{case.name}' reward mismatch", case.expected_reward, rewards[0])
        results.append(VerifierFixtureResult(case.name, case.kind, rewards))
    if updated != cases:
        _write_cases(path, updated)
    return tuple(results)


@dataclass(frozen=True)
class _Rules:
    """What the manifest says about rewards."""

    lower: float
    upper: float
    higher_is_better: bool
    seeded: bool

    @property
    def ends(self) -> dict[str, tuple[float, str, str]]:
        """The reward that cases of a kind must get, and how messages call the kind and that end of the range."""
        best, worst = (self.upper, "upper"), (self.lower, "lower")
        if not self.higher_is_better:
            best, worst = worst, best
        return {"full_reward": (*best, "Full-reward"), "zero_reward": (*worst, "Zero-reward")}


def _make_rules(reward_range: Sequence[float], determinism: str | Enum, *, higher_is_better: bool) -> _Rules:
    if len(reward_range) != 2:
        raise VerifierFixtureError("reward_range must contain exactly two endpoints")
    if any(isinstance(end, bool) or not isinstance(end, int | float) for end in reward_range):
        raise VerifierFixtureError("reward_range endpoints must be finite numbers")
    lower, upper = (float(end) for end in reward_range)
    if not math.isfinite(lower) or not math.isfinite(upper) or lower >= upper:
        raise VerifierFixtureError("reward_range must contain finite endpoints with lower < upper")
    if not isinstance(higher_is_better, bool):
        raise VerifierFixtureError("higher_is_better must be a boolean")
    kind = str(getattr(determinism, "value", determinism))
    if kind not in _DETERMINISM:
        raise VerifierFixtureError(f"Unsupported determinism value: {kind!r}")
    return _Rules(lower, upper, higher_is_better, kind == "seeded")


async def _score(fixture: VerifierFixture, case: VerifierFixtureCase, rules: _Rules) -> tuple[float, ...]:
    """The rewards of a case: one, two if it must be the same twice, or none if an error is expected."""
    if case.kind == "malformed":
        await _expect_error(fixture, case)
        return ()
    again = case.kind == "determinism"
    reward = await _observe(fixture, case, reseed=again)
    if not rules.lower <= reward <= rules.upper:
        raise VerifierFixtureError(
            f"Case '{case.name}' returned reward {reward} outside declared range [{rules.lower}, {rules.upper}]"
        )
    if case.kind in rules.ends:
        expected, end, kind = rules.ends[case.kind]
        if reward != expected:
            _raise_difference(f"{kind} case '{case.name}' does not pin the {end} endpoint", expected, reward)
    if not again:
        return (reward,)
    repeated = await _observe(fixture, case, reseed=True)
    if repeated != reward:
        _raise_difference(f"Determinism case '{case.name}' changed on a fresh server", reward, repeated)
    return reward, repeated


async def _expect_error(fixture: VerifierFixture, case: VerifierFixtureCase) -> None:
    try:
        await _observe(fixture, case)
    except _CaseError as error:
        if str(case.expected_error) not in str(error.cause):
            raise VerifierFixtureError(
                f"Malformed case '{case.name}' error did not contain {case.expected_error!r}: {error.cause}"
            ) from error.cause
        return
    raise VerifierFixtureError(f"Malformed case '{case.name}' did not raise an error")


class _CaseError(VerifierFixtureError):
    """A request that the server refused, or failed at."""

    def __init__(self, name: str, cause: Exception) -> None:
        super().__init__(f"Case '{name}' failed: {cause}")
        self.cause = cause


async def _observe(fixture: VerifierFixture, case: VerifierFixtureCase, *, reseed: bool = False) -> float:
    """The reward of a case by a server of its own."""
    if reseed and fixture.reseed is None:
        raise VerifierFixtureError("a seeded determinism case requires a reseed adapter")
    try:
        server = fixture.server_factory()
    except Exception as error:
        raise VerifierFixtureError(f"Case '{case.name}' could not create a fresh server: {error}") from error
    try:
        request = fixture.request_model.model_validate(case.request)
        if reseed and fixture.reseed is not None:
            await _finish(fixture.reseed(server, request))
        result = await _finish((fixture.invoke or _verify)(server, request))
    except VerifierFixtureError:
        raise
    except Exception as error:
        raise _CaseError(case.name, error) from error
    reward = result.get("reward") if isinstance(result, Mapping) else getattr(result, "reward", result)
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
        raise VerifierFixtureError(f"Case '{case.name}' returned a non-finite numeric reward: {reward!r}")
    return float(reward)


def _verify(server: Any, request: Any) -> object:
    verify = getattr(server, "verify", None)
    if not callable(verify):
        raise VerifierFixtureError("server_factory returned an object without a callable verify method")
    return verify(request)


async def _finish(value: object) -> Any:
    return await value if inspect.isawaitable(value) else value


def _raise_difference(what: str, expected: float | None, observed: float) -> None:
    raise VerifierFixtureError(f"{what}: expected {expected}, observed {observed}")


def _write_cases(path: Path, cases: list[VerifierFixtureCase]) -> None:
    if path.is_symlink() or not path.is_file():
        raise VerifierFixtureError(f"Refusing to replace non-regular verifier fixture '{path}'")
    values = [case.model_dump(mode="json", exclude_none=True) for case in cases]
    mode = path.stat().st_mode
    try:
        atomic_write(path, b"".join(orjson.dumps(each, option=orjson.OPT_SORT_KEYS) + b"\n" for each in values))
        path.chmod(mode & 0o777)
    except OSError as error:
        raise VerifierFixtureError(f"Could not update verifier fixture '{path}': {error}") from error


__getattr__ = missing_from("nemo_gym.verifier_fixture")
