"""The tests of a row: standard input and output of a program, or arguments and value of a function."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class UnitTests(BaseModel):
    """Pairs of `inputs[i]` and `outputs[i]`. With `fn_name`: arguments, one JSON value per line, and the value."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    inputs: list[Any]
    outputs: list[Any]
    fn_name: str | None = None

    @property
    def problem(self) -> str | None:
        """Why strict scoring refuses these tests. NeMo Gym takes no tests for passed ones, and drops unpaired ones."""
        if self.inputs and len(self.inputs) == len(self.outputs):
            return None
        counts = f"{len(self.inputs)} inputs and {len(self.outputs)} outputs"
        return f"expected as many inputs as outputs, and at least one; got {counts}"

    def with_named_function(self) -> UnitTests:
        """Takes an empty name for none; NeMo Gym looks for a function with that name."""
        return self if self.fn_name else self.model_copy(update={"fn_name": None})

    def __len__(self) -> int:
        return len(self.inputs)

    def input_for(self, index: int) -> Any:
        """The input of the program: text on standard input, or the arguments of the function."""
        value = self.inputs[index]
        return value if self.fn_name is not None else _as_text(value)

    def expected_output(self, index: int) -> Any:
        """The expected output or value."""
        expected = self.outputs[index]
        return expected if self.fn_name is not None else _as_text(expected)


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(map(str, value))
    return value if isinstance(value, str) else str(value)
