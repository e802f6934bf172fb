"""The experts that vLLM reports for models with experts (`--enable-return-routed-experts`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnast.kit import BadGeneration, parse_experts

if TYPE_CHECKING:
    from gymnast.kit import RoutedExperts


def experts_in(reported: Any) -> RoutedExperts | None:
    """The experts of prompt and generation. Raises BadGeneration."""
    if reported is None:
        return None
    try:
        return parse_experts(reported)
    except ValueError as error:
        raise BadGeneration(f"the routed experts cannot be read: {error}") from error
