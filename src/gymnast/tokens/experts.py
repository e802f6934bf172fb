"""Experts that a mixture-of-experts model chose while it sampled, so that a trainer can choose the same. Pure.

Each call stores the rows that its parent does not have: from the parent's last token on, which was no input yet when
the parent ended. Only `expert_arrays` needs numpy, which is slow to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gymnast.types.items import ROUTED_EXPERTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.types.json import JsonObject
    from gymnast.types.tokens import RoutedExperts, TokenCall


def new_rows(experts: RoutedExperts | None, keep: int, length: int) -> RoutedExperts | None:
    """The rows of a call that its parent, which shares `keep` tokens with it, does not have.

    None unless they cover all tokens of the call from there, `length` in all, but the last.
    """
    if experts is None:
        return None
    first = max(keep - 1, 0)
    rows = experts.between(first, length)
    return rows if rows.start == first and rows.end >= length - 1 else None


def check_experts(experts: RoutedExperts, keep: int, length: int) -> bool:
    """Whether these are whole rows of a call's own tokens."""
    is_sized = experts.layers > 0 and experts.top_k > 0 and experts.width in {1, 2, 4}
    if not is_sized or len(experts.rows) % experts.row_size:
        return False
    return experts.start == max(keep - 1, 0) and length - 1 <= experts.end <= length


def experts_field(experts: RoutedExperts | None, length: int) -> JsonObject:
    """The training field of an output item: one row for each of its tokens, as NeMo RL reads them."""
    if experts is None:
        return {}
    from gymnast.tokens.expert_arrays import dump_envelope  # noqa: PLC0415 - numpy, for models with experts only

    return {ROUTED_EXPERTS: dump_envelope(experts, length)}


def join_rows(parts: Sequence[RoutedExperts | None]) -> RoutedExperts | None:
    """The rows of sequences that continue each other; None if some are missing. Where two overlap, the first counts."""
    joined: RoutedExperts | None = None
    for part in parts:
        if part is None:
            return None
        joined = part if joined is None else _append(joined, part)
        if joined is None:
            return None
    return joined


def experts_of(calls: Sequence[TokenCall], number: int) -> RoutedExperts | None:
    """The rows of a call's prompt and generation; None if a call of its chain has none."""
    chain: list[RoutedExperts] = []
    cursor: int | None = number
    end: int | None = None
    while cursor is not None:
        call = calls[cursor]
        if call.experts is None:
            return None
        if end is None or call.experts.start < end:
            chain.append(call.experts if end is None else call.experts.between(0, end))
        start = max(call.keep - 1, 0)
        cursor, end = call.parent, start if end is None else min(start, end)  # a fork may keep less than its parent did
    return join_rows(chain[::-1])


def _append(first: RoutedExperts, second: RoutedExperts) -> RoutedExperts | None:
    """The rows of the first, then those that only the second has; None if they do not fit together."""
    if (first.layers, first.top_k) != (second.layers, second.top_k) or second.start > first.end:
        return None
    if first.width != second.width:
        from gymnast.tokens.expert_arrays import widen  # noqa: PLC0415 - numpy, hardly ever needed

        width = max(first.width, second.width)
        first, second = widen(first, width), widen(second, width)
    rest = second.between(first.end, max(second.end, first.end))
    return msgspec.structs.replace(first, rows=first.rows + rest.rows)
