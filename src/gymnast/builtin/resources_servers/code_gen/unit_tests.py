"""The tests of a row: standard input and output of a program, or arguments and value of a function."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator, model_validator


class UnitTests(BaseModel):
    """Pairs of `inputs[i]` and `outputs[i]`. With `fn_name`: arguments, one JSON value per line, and the value."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    inputs: list[Any]
    outputs: list[Any]
    fn_name: str | None = None

    @field_validator("fn_name", mode="before")
    @classmethod
    def _empty_is_none(cls, name: Any) -> Any:
        return name or None

    @model_validator(mode="after")
    def _check_pairs(self) -> UnitTests:
        if not self.inputs or len(self.inputs) != len(self.outputs):
            counts = f"{len(self.inputs)} inputs and {len(self.outputs)} outputs"
            raise ValueError(f"expected as many inputs as outputs, and at least one; got {counts}")
        return self

    def __len__(self) -> int:
        return len(self.inputs)

    def input_for(self, index: int) -> Any:
        """The input of the program: text on standard input, or the arguments of the function."""
        value = self.inputs[index]
        return value if self.fn_name else _as_text(value)

    def expected(self, index: int) -> Any:
        """The expected output or value."""
        expected = self.outputs[index]
        return expected if self.fn_name else _as_text(expected)


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(map(str, value))
    return value if isinstance(value, str) else str(value)
