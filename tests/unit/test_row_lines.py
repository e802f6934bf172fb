"""The lines of a caller's rows are kept as they are, in little room."""

from __future__ import annotations

import sys

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gymnast.rollouts.row_lines import RowLines
from gymnast.types.task import ROLLOUT_ID

TEXTS = st.sampled_from(["", "a", f',"{ROLLOUT_ID}":', f'{{"{ROLLOUT_ID}":1}}', "é\n"])
ROWS = st.dictionaries(st.sampled_from(["task", ROLLOUT_ID, "more"]), TEXTS | st.lists(TEXTS, max_size=2))


@given(st.lists(ROWS, max_size=6))
def test_whatever_rows_contain_their_lines_are_kept(rows: list[dict[str, object]]) -> None:
    lines = [orjson.dumps(row) for row in rows]
    kept = RowLines(lines)
    assert list(kept) == lines
    assert len(kept) == len(lines)
    assert kept[1:] == lines[1:]


def test_rows_of_a_group_share_what_is_not_their_identity() -> None:
    task = {"question": "x" * 10_000}
    rows = ({**task, ROLLOUT_ID: f"r-{number}", "_ng_rollout_index": number} for number in range(16))
    kept = RowLines(map(orjson.dumps, rows))
    parts = {id(part): sys.getsizeof(part) for pair in kept._parts for part in pair}
    assert sum(parts.values()) < 12_000
