"""The text of records that a search covers: instructions, input and trajectory, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.report.transcript_items import as_text, decode_record
from gymnast.studio.line_files import Batch
from gymnast.studio.query_bits import match_parts, query_bits
from gymnast.studio.record_structs import Params, Response
from gymnast.types.encoding import encode_json
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gymnast.studio.text_signature import Signer

_GAP: Final = b"\0"
_PADDING: Final = b"\0\0\0"
"""After a text, and between texts: neither belongs to a word."""
_MIN_SHARE: Final = 0.7
_ESCAPE: Final = b"\\u"
_CALL: Final = b'"function_call"'
_CALL_OUTPUT: Final = b'"function_call_output"'
_CALL_BITS: Final = query_bits(["n_call"])
"""Of the end of `function_call`: enough to tell most records without one."""
_EMPTY_LIST: Final = 2
"""The length of a trajectory without items."""
_ANY: Final = msgspec.json.Decoder()


class SearchedTexts:
    """The searched texts of some records, with what is counted in them."""

    def __init__(
        self, params: Sequence[Params], responses: Sequence[Response], whole: Batch | None, signer: Signer
    ) -> None:
        """`whole`: the lines of these records, if there are no others among them."""
        self._inputs = [own.input for own in params]
        self._instructions = [own.instructions for own in params]
        self._outputs = [own.output for own in responses]
        self.output_sizes = list(map(len, self._outputs))
        self.signatures, self.escaped = self._sign(whole, signer)
        """One row each, also with the characters that escapes stand for, and which records have such."""

    def _sign(self, whole: Batch | None, signer: Signer) -> tuple[NDArray[np.uint8], list[int]]:
        batch = whole if whole is not None and self._is_most_of(whole) else self._join(range(len(self._outputs)))
        signatures, escaped = signer.sign(batch)
        if escaped:
            decoded, _ = signer.sign(self._join(escaped, decode=True))
            signatures[escaped] |= decoded
        return signatures, escaped

    def _is_most_of(self, whole: Batch) -> bool:
        """Whether lines are little more than the searched texts: then the texts need not be copied out of them."""
        return sum(self.output_sizes) + sum(map(len, self._inputs)) > whole.size_bytes * _MIN_SHARE

    def _parts(self, number: int) -> tuple[Any, Any, Any]:
        return self._instructions[number], self._inputs[number], self._outputs[number]

    def _join(self, numbers: Sequence[int], *, decode: bool = False) -> Batch:
        """The texts of some records one after the other, perhaps with escaped characters decoded."""
        join = join_searched if decode else _join_parts
        return Batch.of([join(*self._parts(number)) + _PADDING for number in numbers])

    def count_calls(self) -> tuple[list[int | None], list[int]]:
        """Turns and tool calls of each trajectory. Only those whose signature allows a call are looked through."""
        turns: list[int | None] = [1 if size > _EMPTY_LIST else None for size in self.output_sizes]
        calls = [0] * len(turns)
        columns = self.signatures.T
        may_call = match_parts(lambda byte: columns[byte].tobytes(), _CALL_BITS, len(turns))
        for number in may_call.nonzero()[0].tolist():
            turns[number], calls[number] = _count_calls(bytes(self._outputs[number]))
        return turns, calls


def _count_calls(output: bytes) -> tuple[int | None, int]:
    """Turns and tool calls of a trajectory. Quotes inside of texts are escaped, so they are not counted."""
    if len(output) <= _EMPTY_LIST:
        return None, 0
    return 1 + output.count(_CALL_OUTPUT), output.count(_CALL)


def _join_parts(*parts: Any) -> bytes:
    return _GAP.join(parts)


def join_searched(*parts: Any) -> bytes:
    """The JSON text that a search covers, with escaped characters decoded."""
    text = _join_parts(*parts)
    return text if _ESCAPE not in text else encode_json([_ANY.decode(part) for part in parts if bytes(part)])


_SEARCHED: Final = msgspec.json.Decoder(
    msgspec.defstruct(
        "Searched",
        [("params", Params | None, None), ("response", Response | None, None)],
        rename={"params": PARAMS},
        gc=False,
    )
)


def searched_of(line: bytes) -> bytes:
    """The JSON text of a line that a search covers, in lower case."""
    try:
        record: Any = _SEARCHED.decode(line)
        params, response = record.params or Params(), record.response or Response()
        return lower(join_searched(params.instructions, params.input, response.output))
    except (ValueError, RecursionError):
        record = decode_record(line) or {}
        parts = [record.get(PARAMS), record.get("response")]
        inputs = [
            part.get(name) for part, name in zip(parts, ("input", "output"), strict=True) if isinstance(part, dict)
        ]
        return as_text(inputs).lower().encode(errors="replace")


def lower(text: bytes) -> bytes:
    """A text in lower case, also outside of ASCII."""
    return text.lower() if text.isascii() else text.decode(errors="replace").lower().encode()
